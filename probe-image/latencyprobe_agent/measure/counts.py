"""The kernel's counts, added up over shards and never wrapping.

Everything that SLOs rest on is counted in the kernel per (target set, role, owner), so it is exact when records get
lost. All counters only grow. Owners end: `Ended` keeps their counts when the kernel's table lets them go. The kernel
counts by cgroup; from here on what a container nests is the container's.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EXCHANGE_COUNTS

_NAMES = tuple(EXCHANGE_COUNTS.names or ())

COUNTS = np.dtype([(name, "u8", EXCHANGE_COUNTS[name].shape) for name in _NAMES])
"""`struct exchange_counts` with 64-bit histogram buckets."""


class Counts(NamedTuple):
    """One reading of the kernel's counts: `keys` COUNTS_KEY[n], `values` COUNTS[n], cumulative."""

    keys: NDArray[np.void]
    values: NDArray[np.void]


NO_COUNTS = Counts(np.zeros(0, COUNTS_KEY), np.zeros(0, COUNTS))


class Snapshot(NamedTuple):
    """The kernel's counts at one time, all growing since attach.

    `counts`: of all owners, ended ones added up under owner 0; `living`: its first rows, of owners that still count.
    `let_go`: COUNTS_KEY[n] that have just left these and start from 0 when they come again. `lost`: records or
    exchanges that never arrived, by reason. `unaccounted`: of exchanges, those in no count, by target set; `held`: how
    many keys of the kernel's table each has.
    """

    counts: Counts
    living: Counts
    let_go: NDArray[np.void]
    lost: Mapping[str, int]
    unaccounted: Mapping[int, int] = MappingProxyType({})
    held: Mapping[int, int] = MappingProxyType({})


def added_up(
    slots: NDArray[np.void], values: NDArray[np.void], layout: np.dtype[np.void]
) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Return (COUNTS_KEY[m], `layout`[m]), the sums over the shards of each key.

    `slots`: COUNTS_SLOT[n], those of a key side by side; `values`: what each holds, in fields of the same names.
    """
    keys = slots["key"]
    first = np.flatnonzero(np.append(np.ones(min(len(keys), 1), np.bool_), keys[1:] != keys[:-1]))
    sums = np.zeros(len(first), layout)
    for name in (layout.names or ()) if len(first) else ():
        sums[name] = np.add.reduceat(values[name], first, axis=0, dtype=np.uint64)
    return keys[first], sums


class Shards:
    """Adds up the shards of each key, and remembers its last histogram: the kernel's buckets have 32 bits and wrap."""

    def __init__(self) -> None:
        self._last: dict[bytes, NDArray[np.uint64]] = {}

    def add_up(self, slots: NDArray[np.void], values: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return (COUNTS_KEY[m], COUNTS[m]) from COUNTS_SLOT[n] and EXCHANGE_COUNTS[n], as `added_up()` does.

        Right as long as no key's bucket gains 2^32 between two calls for it.
        """
        keys, totals = added_up(slots, values, COUNTS)
        for key, histogram in zip(keys, totals["histogram"], strict=True):
            last = self._last.get(key.tobytes())
            if last is not None:
                histogram[:] = last + (histogram - last).astype(np.uint32)
            self._last[key.tobytes()] = histogram.copy()
        return keys, totals

    def forget(self, key: bytes) -> None:
        """Forget a key that starts from 0 when it comes again."""
        self._last.pop(key, None)


class Ended:
    """Counts that have left the kernel's table, by container (COUNTS_KEY) while that lives, then under owner 0.

    The table has room for 1,024 keys; a node sees more containers than that in its life, a container more of those that
    it nests, a host more processes.
    """

    def __init__(self) -> None:
        self._totals: dict[bytes, NDArray[np.void]] = {}
        self._ended_before: dict[int, int] = {}

    def over(self, keys: NDArray[np.void], totals: NDArray[np.void], ended: Callable[[int], bool]) -> NDArray[np.bool_]:
        """Return bool[n], which rows of COUNTS_KEY[n] and COUNTS[n] may go: their owner has ended and nothing was added
        since the call before.

        All rows of an owner go at once: what is exported of it is their sum. A minute between two calls is enough: what
        the end of a process left open must have had the time to be counted.
        """
        counted = totals["classes"].sum(axis=1).tolist()
        over: dict[int, int] = {}
        for owner, n in zip(keys["owner"].tolist(), counted, strict=True):
            if owner and ended(owner):
                over[owner] = over.get(owner, 0) + n
        unchanged = [owner for owner, n in over.items() if self._ended_before.get(owner) == n]
        self._ended_before = over
        return np.isin(keys["owner"], np.array(unchanged, np.uint64))

    def add(self, gone: Counts) -> None:
        """Take rows that have left the table, under their containers."""
        for key, total in zip(*gone, strict=True):
            self._add(key, total)

    def living(self, counts: Counts, ended: Callable[[int], bool]) -> Counts:
        """Return the rows of all containers but those that have ended: a container's sum does not fall when something
        that it nested goes. `counts`: what is in the table, under its containers."""
        counting = set(counts.keys["owner"].tolist())
        for key in self._keys():
            if key["owner"] and int(key["owner"]) not in counting and ended(int(key["owner"])):
                rest = key.copy()
                rest["owner"] = 0
                self._add(rest, self._totals.pop(key.tobytes())[0])
        old = Counts(self._keys(), np.concatenate([counts.values[:0], *self._totals.values()]))
        kept = old.keys["owner"] != 0
        keys = np.concatenate([counts.keys, old.keys[kept]])
        return _one_of_each(Counts(keys, np.concatenate([counts.values, old.values[kept]])))

    def join(self, living: Counts) -> Counts:
        """Return the rows of living containers followed by those of the ended ones."""
        keys = self._keys()
        ended = np.flatnonzero(keys["owner"] == 0)
        values = list(self._totals.values())
        return Counts(
            np.concatenate([living.keys, keys[ended]]),
            np.concatenate([living.values, *(values[row] for row in ended.tolist())]),
        )

    def _keys(self) -> NDArray[np.void]:
        return np.frombuffer(b"".join(self._totals), COUNTS_KEY)

    def _add(self, key: np.void, total: np.void) -> None:
        words = self._totals.setdefault(key.tobytes(), np.zeros(1, COUNTS)).view(np.uint64)
        words += np.frombuffer(total.tobytes(), np.uint64)


def _one_of_each(counts: Counts) -> Counts:
    """Add rows of the same key up."""
    packed = np.ascontiguousarray(counts.keys).view(f"V{COUNTS_KEY.itemsize}")
    _, first, of_row = np.unique(packed, return_index=True, return_inverse=True)
    if len(first) == len(packed):
        return counts
    order = np.argsort(of_row, kind="stable")
    words = counts.values[order].view(np.uint64).reshape(len(order), -1)
    sums = np.add.reduceat(words, np.flatnonzero(np.diff(of_row[order], prepend=-1)))
    return Counts(counts.keys[first], sums.view(COUNTS).reshape(-1))
