"""Maps in which programs count per (target set, role, owner): how large they are, how they are read and emptied.

A key has an entry for each of its shards (`struct counts_slot`), which a CPU makes when it first counts there. So what
they hold grows with the CPUs that count, LP_SHARDS at most, and not with those that a machine might be given.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.maps import Map, possible_cpus
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, COUNTS_SLOT, COUNTS_SLOTS, SHARDS

_MOST_BYTES = 160 << 20  # of the kernel's memory, which counts as the agent's: its limit is 384 MiB
_KEYS_AT_ONCE = 32  # with all their shards, counts of exchanges take 5 MB: they are added up before the next are read

AddUp = Callable[[NDArray[np.void], NDArray[np.void]], tuple[NDArray[np.void], NDArray[np.void]]]
"""(slots, values) → (keys, totals), as `measure.counts.added_up()`: the shards of a key come side by side, at once."""


def shards() -> int:
    """Return how many shards a key has here."""
    return min(possible_cpus(), SHARDS)


def entries(layout: np.dtype[np.void]) -> int:
    """Return how many entries of `layout` such a map needs here: for 1,024 keys, or for as many as there is memory."""
    bytes_of_one = 1 << layout.itemsize.bit_length()  # as the kernel allocates them
    return min(COUNTS_SLOTS // SHARDS * shards(), _MOST_BYTES // bytes_of_one)


def read(
    counts: Map, layout: np.dtype[np.void], add_up: AddUp, slots: Iterable[bytes] | None = None
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return the COUNTS_KEY[n] in the map, and the sums that `add_up` makes of their shards' values of `layout`.
    `slots`: those that are looked at, None for all."""
    found = [add_up(np.zeros(0, COUNTS_SLOT), np.zeros(0, layout))]
    of_key: dict[bytes, dict[bytes, None]] = defaultdict(dict)
    for slot in counts.keys() if slots is None else slots:
        of_key[slot[: COUNTS_KEY.itemsize]][slot] = None
    keys = list(of_key)
    for start in range(0, len(keys), _KEYS_AT_ONCE):
        slots = [slot for key in keys[start : start + _KEYS_AT_ONCE] for slot in of_key[key]]
        values = np.zeros(len(slots), layout)
        for row, slot in enumerate(slots):
            counts.lookup(slot, values[row : row + 1].view(np.uint8).data)
        found.append(add_up(np.frombuffer(b"".join(slots), COUNTS_SLOT), values))
    keys_of, totals = zip(*found, strict=True)
    return np.concatenate(keys_of), np.concatenate(totals)


def forget(counts: Map, keys: NDArray[np.void]) -> None:
    """Take all shards of these COUNTS_KEYs out of the map; one that comes again starts from 0."""
    slots = np.zeros((len(keys), shards()), COUNTS_SLOT)
    slots["key"], slots["shard"] = keys[:, None], np.arange(shards())
    for slot in slots.reshape(-1):
        counts.delete(slot.tobytes())
