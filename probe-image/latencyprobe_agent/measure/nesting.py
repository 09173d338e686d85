"""Which interval of a thread lies within which other one, and how much time some of them cover together. Pure.

Arrays in, arrays out, without a loop over intervals.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

I64 = NDArray[np.int64]
U64 = NDArray[np.uint64]

_LONGEST_NS = 1 << 45  # 9 h: what began longer before the last one's end counts from there


@dataclass(frozen=True)
class Intervals:
    """n intervals, `begin_ns` to `end_ns` of one clock, of whom `of` (u64[n]) says: a thread, or any other number."""

    of: U64
    begin_ns: I64
    end_ns: I64

    def __len__(self) -> int:
        return len(self.of)

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "Intervals":
        """Return these rows."""
        return Intervals(self.of[rows], self.begin_ns[rows], self.end_ns[rows])


class Nested(NamedTuple):
    """Of each inner interval: `within`, the place of an outer one of the same thread that contains it, -1 for none;
    `several`: more than one does."""

    within: NDArray[np.intp]
    several: NDArray[np.bool_]


def nest(outer: Intervals, inner: Intervals) -> Nested:
    """Find the outer interval that each inner one lies in. Equal bounds lie within."""
    nothing = Nested(np.full(len(inner), -1), np.zeros(len(inner), np.bool_))
    if not len(outer) or not len(inner):
        return nothing
    outer, inner, order = _on_one_line(outer, inner)
    longest, second = _longest_two(outer.end_ns)
    # of those that begin before the inner one, the one that ends last
    before = np.searchsorted(outer.begin_ns, inner.begin_ns, side="right") - 1
    at = np.maximum(before, 0)
    there = (before >= 0) & (longest[at] >= inner.end_ns)
    which = np.maximum.accumulate(np.where(outer.end_ns == longest, np.arange(len(outer)), 0))
    return Nested(np.where(there, order[which[at]], -1), there & (second[at] >= inner.end_ns))


def overlapping_others(some: Intervals) -> NDArray[np.bool_]:
    """Return bool[n]: which begin before another one of the same thread has ended that began no later."""
    found = np.zeros(len(some), np.bool_)
    if len(some) > 1:
        line, _, order = _on_one_line(some, some)
        longest, _ = _longest_two(line.end_ns)
        found[order[1:]] = line.begin_ns[1:] < longest[:-1]
    return found


def covered_ns(some: Intervals) -> I64:
    """Return i64[n]: what each adds to the union of those with the same number, in the order in which they begin."""
    new_ns = np.zeros(len(some), np.int64)
    if len(some):
        line, _, order = _on_one_line(some, some)
        longest, _ = _longest_two(line.end_ns)
        until = np.concatenate([line.begin_ns[:1], longest[:-1]])
        new_ns[order] = np.maximum(line.end_ns - np.maximum(line.begin_ns, until), 0)
    return new_ns


def _longest_two(end_ns: I64) -> tuple[I64, I64]:
    """Return for each place the latest and the second latest end so far."""
    longest = np.maximum.accumulate(end_ns)
    loser = np.minimum(end_ns, np.concatenate([[np.iinfo(np.int64).min], longest[:-1]]))
    return longest, np.maximum.accumulate(loser)


def _on_one_line(line: Intervals, others: Intervals) -> tuple[Intervals, Intervals, NDArray[np.intp]]:
    """Put one thread's time behind the other's, so that no two threads' intervals touch: return both, the first in the
    order of begin, and that order. Others of no such thread come before all."""
    threads, place = np.unique(line.of, return_inverse=True)
    last_ns = max(int(line.end_ns.max()), int(others.end_ns.max()))
    room = np.int64(2 * _LONGEST_NS)  # 2^46: with 2^16 threads 2^62

    def placed(some: Intervals, place: NDArray[np.intp]) -> Intervals:
        base = (place + 1) * room
        begin, end = (base - np.minimum(last_ns - at, _LONGEST_NS) for at in (some.begin_ns, some.end_ns))
        return Intervals(some.of, begin, end)

    on_line = placed(line, place)
    order = np.argsort(on_line.begin_ns, kind="stable")
    if others is line:
        return on_line.take(order), on_line, order
    theirs = np.minimum(np.searchsorted(threads, others.of), len(threads) - 1)
    return on_line.take(order), placed(others, np.where(threads[theirs] == others.of, theirs, -1)), order
