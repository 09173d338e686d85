"""How much is kept of what a pod's author writes at will: a pod may have 1.5 MiB, a cluster 150,000 pods. Pure."""

from collections.abc import Callable, Iterable
from typing import TypeVar

T = TypeVar("T")
Pair = tuple[str, str]

TEXT_BYTES = 2_048  # of a pod: resource attributes of annotations and OTEL_* variables, images
LABELS, LABEL_BYTES = 128, 16_384
ITEM_BYTES = 8_192  # of its containers and ports together: 64 with the longest names, or 10 and 90 ports
_ITEM = 64  # bytes of each, beside its name
_NAMED = 3  # of what is left out
_NAME = 63  # characters


class Text:
    """What is left of a pod's TEXT_BYTES. `left_out`: what had no room, the first few by name."""

    def __init__(self) -> None:
        self.left_out: tuple[str, ...] = ()
        self._bytes = TEXT_BYTES
        self._item_bytes = ITEM_BYTES

    def items(self, what: str, found: Iterable[T], name: Callable[[T], str]) -> list[T]:
        """Return the first containers or ports, as many as there is room for."""
        kept: list[T] = []
        for one in found:
            self._item_bytes -= _ITEM + len(name(one))
            if self._item_bytes < 0:
                self.omit(f"{what} above {len(kept)}")
                break
            kept.append(one)
        return kept

    def pairs(self, pairs: Iterable[Pair], of: str = "") -> tuple[Pair, ...]:
        """Return those pairs that there is room for. `of`: whose, such as `container main`."""
        return tuple((name, value) for name, value in pairs if self._take(name, value, of))

    def image(self, image: str, of: str) -> str:
        """Return an image's name, empty if there is no room for it."""
        return image if self._take("image", image, of) else ""

    def omit(self, what: str) -> None:
        """Say that this is left out."""
        if len(self.left_out) < _NAMED and what not in self.left_out:
            self.left_out += (what,)

    def _take(self, name: str, value: str, of: str) -> bool:
        size = len(name.encode()) + len(value.encode())
        if size > self._bytes:
            self.omit(f"{name[:_NAME]} of {of}" if of else name[:_NAME])
            return False
        self._bytes -= size
        return True


def is_too_much(labels: dict[str, str]) -> bool:
    """Return whether a pod has more labels than can be kept."""
    return len(labels) > LABELS or sum(len(key) + len(value) for key, value in labels.items()) > LABEL_BYTES
