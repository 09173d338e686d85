"""Names of kernel addresses, for stacks. /proc/kallsyms shows them to whoever may trace; nothing else is loaded."""

from array import array
from collections.abc import Iterable
from functools import cached_property
from pathlib import Path

import numpy as np

_CODE = b"tTwW"


class KernelSymbols:
    """The kernel's functions, read once: some 8 MB."""

    def __init__(self, kallsyms: Path = Path("/proc/kallsyms")) -> None:
        starts, at, names = array("Q"), array("L"), bytearray()
        with kallsyms.open("rb") as table:
            for line in table:
                address, kind, name, *_ = line.split()
                if kind in _CODE:
                    starts.append(int(address, 16))
                    at.append(len(names))
                    names += name + b"\0"
        order = np.argsort(np.array(starts, np.uint64), kind="stable")
        self._starts = np.array(starts, np.uint64)[order]
        self._at = np.array(at, np.uint32)[order]
        self._names = bytes(names)

    @property
    def known(self) -> bool:
        """Return whether the kernel shows its addresses to this process."""
        return bool(len(self._starts) and self._starts[-1])

    def names(self, addresses: Iterable[int]) -> list[str]:
        """Return the function of each address, up to the first 0; `[unknown]` where the kernel hides its addresses."""
        found = []
        for address in addresses:
            if not address:
                break
            at = int(np.searchsorted(self._starts, np.uint64(address), side="right")) - 1
            found.append(self._name(at) if at >= 0 and self._starts[at] else "[unknown]")
        return found

    def _name(self, at: int) -> str:
        start = int(self._at[at])
        return self._names[start : self._names.index(0, start)].decode()


class KernelNames:
    """The same for who may never ask: they are read with the first question."""

    def __call__(self, addresses: Iterable[int]) -> list[str]:
        """As `KernelSymbols.names()`."""
        return self._symbols.names(addresses)

    @cached_property
    def _symbols(self) -> KernelSymbols:
        return KernelSymbols()
