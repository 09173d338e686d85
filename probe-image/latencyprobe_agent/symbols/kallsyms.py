"""Functions of the kernel by address, from /proc/kallsyms. It shows addresses to whoever may trace; else all are 0."""

from array import array
from collections.abc import Iterable
from functools import cached_property
from itertools import takewhile
from pathlib import Path

import numpy as np

from latencyprobe.text import UNKNOWN

_FUNCTIONS = b"tTwW"


class Kallsyms:
    """The table, read once: 200,000 functions take some 7 MB."""

    def __init__(self, table: Path = Path("/proc/kallsyms")) -> None:
        starts, ends, names = array("Q"), array("I"), bytearray()
        with table.open("rb") as lines:
            for line in lines:
                address, kind, name = line.split(None, 3)[:3]
                if kind in _FUNCTIONS and (start := int(address, 16)):
                    names += name
                    starts.append(start)
                    ends.append(len(names))
        order = np.argsort(np.array(starts, np.uint64), kind="stable")
        self._starts = np.array(starts, np.uint64)[order]
        self._ends = np.array(ends, np.uint32)[order]
        self._begins = np.array(array("I", [0])[: len(ends)] + ends[:-1], np.uint32)[order]
        self._names = bytes(names)

    @property
    def hidden(self) -> bool:
        """Whether the kernel shows no address."""
        return not len(self._starts)

    def name(self, address: int) -> str | None:
        """Return the function that starts last before the address."""
        at = int(np.searchsorted(self._starts, np.uint64(address), side="right")) - 1
        if at < 0:
            return None
        return self._names[self._begins[at] : self._ends[at]].decode(errors="replace")


class KernelNames:
    """Names for who may never ask: the table, which is no container's, is read with the first question."""

    def __call__(self, addresses: Iterable[int]) -> list[str]:
        """Return the function of each address, up to the first 0; `[unknown]` where the kernel hides its addresses."""
        return [self._table.name(address) or UNKNOWN for address in takewhile(bool, addresses)]

    @cached_property
    def _table(self) -> Kallsyms:
        return Kallsyms()
