"""Hostile JSON from a seed: right documents of which some parts were taken away, replaced, doubled or moved, and bytes
that are no document at all.

The same seed makes the same documents, so that a failure can be had again.
"""

import json
import os
import pickle
import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

T = TypeVar("T")
Place = tuple[Any, Any]  # what holds a value, and under which key or index

NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 7, 59, 60, 64, 65_535, 65_536, 2**31, 2**32, 2**53, 2**53 + 1, 2**63 - 1, 2**63, 2**64, 10**30),
    *(-60, -(2**63), -(2**63) - 1, 0.5, -0.0, 80.0, 1e15, 1e300, float("nan"), float("inf"), -float("inf")),
)
TEXTS = (
    *(
        "",
        " ",
        "a",
        "A",
        "-",
        ".",
        "0",
        "1",
        "1e3",
        "null",
        "true",
        "25ms",
        "99.9",
        "Server",
        "None",
        "a" * 64,
        "a" * 254,
    ),
    *(
        "a" * 5_000,
        "\0",
        "\n",
        "x\n",
        "\x1b[31mred\x1b[0m",
        "\x1b]0;title\a",
        "\x9b31m",
        "\r\n\r\n",
        "\u202eabc",
        "\ufeff",
    ),
    *(
        "\ud800",
        "\U0001f600",
        "٣٤",
        "ｓｅｒｖｅｒ",
        "é",
        "../../etc/passwd",
        "$(id)",
        "${jndi:ldap://x}",
        "' OR 1=1 --",
    ),
    *("<script>", "{{ .Values }}", "http://169.254.169.254/", "file:///etc/shadow", "%s%n", "__class__", "10.0.0.1"),
    *("fd00::1", "10.96.0.7", "a/b", "ab" * 16, "AB" * 16, "\u0000" * 300, "a,b", 'a"b\\', "𝟙𝟚ms"),
)
_DEEP = "deep-5d1f"  # stands for what json cannot write
LEVELS = 5_000


class Fuzz:
    """Hostile values, documents and bodies, one after the other."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)

    def one(self, choices: Sequence[T]) -> T:
        """Return one of these."""
        return self.random.choice(choices)

    def often(self, share: float) -> bool:
        """Return True in this share of all cases."""
        return self.random.random() < share

    def value(self, depth: int = 3) -> Any:
        """Return a hostile value."""
        kinds: list[Callable[[], Any]] = [
            lambda: self.one(NUMBERS),
            lambda: self.one(NUMBERS),
            lambda: self.one(TEXTS),
            lambda: self.one(TEXTS),
            lambda: self.one((None, True, False, [], {}, [[]], [{}])),
        ]
        if depth:
            kinds.append(lambda: [self.value(depth - 1) for _ in range(self.random.randrange(4))])
            kinds.append(lambda: {self.one(TEXTS): self.value(depth - 1) for _ in range(self.random.randrange(4))})
        return self.one(kinds)()

    def mutated(self, document: Any, known: Sequence[Any] = ()) -> Any:
        """Return a copy with one to four wrong parts. `known`: values, each right somewhere, to be set elsewhere."""
        whole = [_copied(document)]
        for _ in range(self.one((1, 1, 1, 2, 2, 3, 4))):
            found = list(places(whole))
            holder, at = self.one(found[-12:]) if self.often(0.3) else self.one(found)
            self._wrong(holder, at, known)
        return whole[0]

    def _wrong(self, holder: Any, at: Any, known: Sequence[Any]) -> None:
        """Do something to one value."""
        value = holder[at]
        if self.often(0.5) and (alike := [other for other in (*NUMBERS, *TEXTS) if type(other) is type(value)]):
            holder[at] = self.one(alike)  # what has the right type gets further
            return
        match self.random.randrange(8):
            case 0 if isinstance(holder, dict):
                del holder[at]
            case 1 if isinstance(holder, dict):
                holder[self.one(TEXTS)] = value
            case 2 if isinstance(value, list) and value:
                value.extend(_copied(value[0]) for _ in range(self.one((1, 9, 40, 300))))
            case 3 if isinstance(value, dict):
                value[self.one(TEXTS)] = self.value()
            case 4 if isinstance(value, int | float) and not isinstance(value, bool):
                holder[at] = self.one((value + 1, value - 1, -value, value * 10**6, float(value), str(value)))
            case 5 if isinstance(value, str):
                holder[at] = self.one((value + self.one(TEXTS), self.one(TEXTS) + value, value.upper(), value * 40))
            case 6 if known:
                holder[at] = _copied(self.one(known))
            case _:
                holder[at] = self.value()

    def body(self, document: Any) -> bytes:
        """Return a document's JSON, in some cases damaged."""
        if self.often(0.02):
            whole = [_copied(document)]
            holder, at = self.one(list(places(whole)))
            holder[at] = _DEEP
            document = whole[0]
        text = json.dumps(document).encode()
        if self.often(0.8):
            return text.replace(f'"{_DEEP}"'.encode(), self.one((b"[", b'{"a":')) * LEVELS)
        at, raw = self.random.randrange(len(text) + 1), self.random.randbytes(self.one((1, 2, 9)))
        return self.one((
            text[:at],
            text[:at] + raw + text[at:],
            text[:at] + raw + text[at + len(raw) :],
            text + text,
            b"\xef\xbb\xbf" + text,
            text.decode("utf-8", "replace").encode("utf-16"),
            raw,
            b"",
            b"[" * LEVELS,
            text.replace(b'"', b"'"),
            text.replace(b":", b":" + b"9" * 400 + b",", 1),
            b" " * 1000 + text,
        ))  # fmt: skip


def _copied(value: Any) -> Any:
    return pickle.loads(pickle.dumps(value))  # a fifth of what deepcopy takes


def places(value: Any) -> Iterator[Place]:
    """Yield where each value stands, whatever holds it."""
    entries = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for at, inner in list(entries):
        yield value, at
        yield from places(inner)


def seeded(name: str, default: int, *, seed: int | None = None) -> tuple[int, Fuzz]:
    """Return how many cases to try, by the variable `name` of the environment or `default`, and their source.
    `SEED` in the environment: the one to use again; it is printed."""
    seed = int(os.environ.get("SEED", random.randrange(1 << 30) if seed is None else seed))
    cases = int(os.environ.get(name, default))
    print(f"{cases} cases of seed {seed} (again: {name}={cases} SEED={seed})")
    return cases, Fuzz(seed)
