"""Names of the frames of a stack: the kernel's functions; of a process the mapped file and the place in it."""

from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from latencyprobe_agent.kernel.symbols import KernelSymbols

UNKNOWN = "[unknown]"


class Frames:
    """Looks addresses up. The kernel's symbols are read at the first question, a process's mappings at each."""

    def __init__(self, proc: Path = Path("/proc")) -> None:
        self._proc = proc
        self._kernel: KernelSymbols | None = None

    def kernel(self, addresses: Sequence[int]) -> list[str]:
        """Return the function of each address."""
        self._kernel = self._kernel or KernelSymbols(self._proc / "kallsyms")
        return self._kernel.names(addresses)

    def user(self, tgid: int, addresses: Sequence[int]) -> list[str]:
        """Return `library.so+0x1234` for each address: where in the file; `[unknown]` if nothing is there."""
        mapped = []
        with suppress(OSError):  # it has ended
            for line in (self._proc / str(tgid) / "maps").read_text(errors="replace").splitlines():
                span, _, offset, _, _, *path = line.split(maxsplit=5)
                start, _, end = span.partition("-")
                mapped.append((int(start, 16), int(end, 16), int(offset, 16), path[0] if path else ""))
        return [_place(address, mapped) for address in addresses]


def _place(address: int, mapped: Sequence[tuple[int, int, int, str]]) -> str:
    for start, end, offset, path in mapped:
        if start <= address < end:
            name = "".join(letter if letter.isprintable() else "?" for letter in path.rpartition("/")[2])
            return f"{name or '[anonymous]'}+{address - start + offset:#x}"
    return UNKNOWN
