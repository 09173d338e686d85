"""Names of kernel addresses, for stacks. /proc/kallsyms shows them to whoever may trace; nothing else is loaded."""

from collections.abc import Iterable
from pathlib import Path

import numpy as np


class KernelSymbols:
    """The kernel's functions, read once."""

    def __init__(self, kallsyms: Path = Path("/proc/kallsyms")) -> None:
        rows = (line.split() for line in kallsyms.read_text().splitlines())
        functions = sorted((int(address, 16), name) for address, kind, name, *_ in rows if kind in "tTwW")
        self._starts = np.array([address for address, _ in functions], np.uint64)
        self._names = [name for _, name in functions]

    def names(self, addresses: Iterable[int]) -> list[str]:
        """Return the function of each address, up to the first 0; `[unknown]` where the kernel hides its addresses."""
        found = []
        for address in addresses:
            if not address:
                break
            at = int(np.searchsorted(self._starts, np.uint64(address), side="right")) - 1
            found.append(self._names[at] if at >= 0 and self._starts[at] else "[unknown]")
        return found
