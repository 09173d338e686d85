"""Room in the kernel's table of counts that is kept for what finds none of its own there.

The kernel makes slots as it counts, first come, first served; what finds the table full counts under owner 0 of its
target set, if that has a slot. So these are made before anybody counts, and some spare ones, which are taken out again
where another set's is to be made and the table is full.
"""

from collections.abc import Collection, Iterable, Set

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.maps import Map
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, COUNTS_SLOT

_SPARE = 32  # of so many slots one: with two CPUs 512 KiB, with 20 and more 5 MiB
_SPARE_OWNER = 2**64 - 1  # no cgroup's number


class KeptRoom:
    """What is kept in `table`, a map by COUNTS_SLOT."""

    def __init__(self, table: Map) -> None:
        self._table = table
        self._slots: set[bytes] = set()  # of owner 0
        self._spare: set[bytes] = set()
        self._was_full = False
        self._wanted: Set[bytes] = frozenset()
        self._left_over: Set[bytes] = frozenset()

    def follow(self, keys: Iterable[np.void]) -> None:
        """Make the slots of these COUNTS_KEYs (of owner 0), as far as there is room for them, the first ones first."""
        wanted = [slot for key in keys for slot in _slots(key)]
        self._wanted = frozenset(wanted)
        for slot in wanted:
            if slot not in self._slots and not self._make(slot):
                break
        if wanted:
            self._make_spare()

    def used(self, slots: Collection[bytes], *, everything: bool) -> list[bytes]:
        """Return which of all slots of the table somebody may have counted in. Before the table is full nobody counts
        under owner 0, but where the kernel has no memory at hand: `everything` asks for these too."""
        self._was_full |= len(slots) >= self._table.max_entries
        unused = self._spare if self._was_full or everything else self._spare | self._slots
        return [slot for slot in slots if slot not in unused]

    def let_go(self) -> None:
        """Take out slots that were not wanted at the last call either, and in which nobody has counted. To be called
        once a minute: by then nobody counts there any more."""
        left_over, value = self._slots - self._wanted, np.zeros(self._table.value_size, np.uint8)
        for slot in left_over & self._left_over:
            if self._table.lookup(slot, value.data) and not value.any():
                self._table.delete(slot)
                self._slots.discard(slot)
        self._left_over = left_over
        if self._wanted:
            self._make_spare()

    def forget(self, keys: Iterable[np.void]) -> None:
        """Take note of COUNTS_KEYs whose slots have been taken out."""
        self._slots.difference_update(slot for key in keys for slot in _slots(key))

    def _make(self, slot: bytes) -> bool:
        """Make a slot, in the place of a spare one if need be. Return whether it is there."""
        made = self._table.add(slot, bytes(self._table.value_size))
        while not made and self._spare:  # the kernel may be quicker to take what has become free
            self._table.delete(self._spare.pop())
            made = self._table.add(slot, bytes(self._table.value_size))
        if made:
            self._slots.add(slot)
        return made

    def _make_spare(self) -> None:
        for number in range(self._table.max_entries // _SPARE // counts.shards()):
            for slot in _slots(np.array((_SPARE_OWNER, 0, number), COUNTS_KEY)):
                if slot not in self._spare:
                    if not self._table.add(slot, bytes(self._table.value_size)):
                        return
                    self._spare.add(slot)


def _slots(key: NDArray[np.void] | np.void) -> list[bytes]:
    """Return the slots of a COUNTS_KEY."""
    slots = np.zeros(counts.shards(), COUNTS_SLOT)
    slots["key"], slots["shard"] = key, np.arange(len(slots))
    return [slot.tobytes() for slot in slots]
