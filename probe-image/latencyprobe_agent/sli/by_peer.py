"""Who suffers: figures of each objective's worst peers, of minutes that are over, from records.

Receives halves, keeps what is needed of them in columns, and adds these up once a minute, or when these are full:
nothing is made of a single exchange. Good and bad come from the kernel's counts (slicing.py), which know no peers; a
record counts for as many as it stands for, so these are estimates where records are sampled.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from latencyprobe import sli
from latencyprobe.sli import OTHERS, PeerCounts, SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.groups import Groups, groups
from latencyprobe_agent.measure.halves import Halves, adjusted_count
from latencyprobe_agent.measure.objectives import TrackedObjective
from latencyprobe_agent.sli.names import Names
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS

TOLD = 10  # peers of an objective and minute; a report shows half of them
NAMED = 1_024  # addresses that are named at a time: those with most bad events, then with most
ROOM = 16_384  # halves of 34 B
_PLACES = 2 * sli.PEERS  # of peers that are added up at a time
_PAIR = ~1  # two buckets as their first one: half as many bytes, and quantiles within 3.3 %
_PEER = {"high": "u8", "low": "u8"}  # the address
_COLUMNS = {"duration_ns": "i8", "target_set": "u4", "flags": "u4", "role": "u1", "outcome": "u1"}

Tracked = Mapping[tuple[int, int], Sequence[TrackedObjective]]  # by target set and role
_Columns = Mapping[str, NDArray[Any]]
_Name = Callable[[Sequence[bytes]], list[str]]  # packed addresses → what they are called


class ByPeer:
    """Adds halves up by peer, under its name: earlier where an address that is held has changed hands."""

    def __init__(self, names: Names) -> None:
        self._names = names
        self._tracked: Tracked = {}
        self._columns = {column: np.zeros(ROOM, kind) for column, kind in (_PEER | _COLUMNS).items()}
        self._held = 0
        self._minute = 0
        self._since_s = 0.0  # boot time: since when is held what is held
        self._sums: dict[tuple[ObjectiveKey, int], dict[str, PeerCounts]] = {}

    def apply(self, tracked: Tracked) -> None:
        """Count for these objectives from now on."""
        self._fold()
        self._tracked = tracked

    def add(self, halves: Halves, now: Now) -> None:
        """Take in the SLI events of a turn. They count for the minute in which they are handed in, as counts do."""
        minute = now.unix_ns // 10**9 // 60 * 60
        if minute != self._minute:
            self._fold()
            self._minute = minute
        if not len(halves):
            return
        some = _columns(halves)
        first, count = 0, len(some["low"])
        while first < count:
            if self._held == ROOM:
                self._fold()
            if not self._held:
                self._since_s = now.boot_s
            last = min(count, first + ROOM - self._held)
            for column, values in some.items():
                self._columns[column][self._held : self._held + last - first] = values[first:last]
            self._held += last - first
            first = last

    def take(self, now: Now) -> list[SliRow]:
        """Return rows of the minutes that are over."""
        held = self._so_far()
        found = _addresses(held, groups([held["high"], held["low"]]).first[:NAMED])
        self._names.of(found, self._since_s)  # those that are new are known a second later
        if self._names.changed(found, self._since_s, now.boot_s):
            self._fold()
        return self._rows(at for at in self._sums if at[1] != self._minute)

    def close(self) -> list[SliRow]:
        """Return rows of what is left."""
        self._fold()
        return self._rows(self._sums)

    def _rows(self, found: Iterable[tuple[ObjectiveKey, int]]) -> list[SliRow]:
        taken = {at: sli.worst(self._sums[at], most=TOLD) for at in found}
        self._sums = {at: sums for at, sums in self._sums.items() if at not in taken}
        return [SliRow(*key, minute=minute, by_peer=by_peer) for (key, minute), by_peer in taken.items()]

    def _so_far(self) -> _Columns:
        return {column: values[: self._held] for column, values in self._columns.items()}

    def _fold(self) -> None:
        """Add up what is held, by objective and peer."""
        held, self._held = self._so_far(), 0
        found = groups([held["target_set"], held["role"]])
        for group, row in enumerate(found.first.tolist()):
            objectives = self._tracked.get((int(held["target_set"][row]), int(held["role"][row])))
            if not objectives:
                continue
            rows = found.rows(group)
            some = {column: values[rows] for column, values in held.items()}
            for key, by_peer in _added_up(some, objectives, self._named):
                at = key, self._minute
                self._sums[at] = sli.worst(self._sums.get(at, {}), by_peer)

    def _named(self, packed: Sequence[bytes]) -> list[str]:
        return self._names.of(packed, self._since_s)


def _columns(halves: Halves) -> _Columns:
    """Return the columns that are held of the SLI events among some halves."""
    rec, counted = halves.rec, halves.counted
    # addresses of one network are numbers close to each other: their groups need no sorting
    packed = np.ascontiguousarray(rec["peer_addr"]).view(">u8").astype(np.uint64)
    some = {"high": packed[:, 0], "low": packed[:, 1], "duration_ns": halves.duration_ns}
    some |= {column: rec[column] for column in _COLUMNS if column not in some}
    return some if counted.all() else {column: values[counted] for column, values in some.items()}


def _added_up(
    some: _Columns, objectives: Sequence[TrackedObjective], name: _Name
) -> Iterator[tuple[ObjectiveKey, dict[str, PeerCounts]]]:
    """Yield what halves of one target set and role are to its objectives, by peer: the same peers for all of them."""
    stands_for = adjusted_count(some["flags"])
    bad = [np.flatnonzero(one.bad(some["duration_ns"], some["outcome"])) for one in objectives]
    addresses = groups([some["high"], some["low"]])
    most_bad = max(bad, key=len)  # of the objective that is the hardest to meet
    by = [_sums(addresses.of_row, rows, stands_for, len(addresses.first)) for rows in (most_bad, slice(None))]
    names, of_group = _names(some, addresses, by, name)
    of_row = of_group[addresses.of_row]
    place = of_row * HISTOGRAM_BUCKETS + (histogram.positions(some["duration_ns"]) & _PAIR)
    cells = _sums(place, slice(None), stands_for, len(names) * HISTOGRAM_BUCKETS)
    buckets = cells.reshape(len(names), HISTOGRAM_BUCKETS)
    events, histograms = buckets.sum(axis=1).tolist(), [histogram.sparse(one) for one in buckets]
    for objective, rows in zip(objectives, bad, strict=True):
        figures = zip(names, events, _sums(of_row, rows, stands_for, len(names)).tolist(), histograms, strict=True)
        yield objective.key, {peer: PeerCounts(*counts) for peer, *counts in figures if counts[0]}


def _names(
    some: _Columns, found: Groups, by: Sequence[NDArray[np.int64]], name: _Name
) -> tuple[list[str], NDArray[np.intp]]:
    """Return the names of the first peers, and which of them each group of addresses has. `by`: sums of the groups; the
    peers that have no place are OTHERS, the first name."""
    named = _first(by, NAMED)
    names: dict[str, int] = {}
    of_named = [names.setdefault(one, len(names)) for one in name(_addresses(some, found.first[named]))]
    first = _first([np.bincount(of_named, one[named]).astype(np.int64) for one in by], _PLACES)
    place = np.zeros(len(names), np.intp)
    place[first] = np.arange(1, len(first) + 1)
    of_group = np.zeros(len(found.first), np.intp)
    of_group[named] = place[of_named]
    every = list(names)
    return [OTHERS, *(every[i] for i in first.tolist())], of_group


def _addresses(some: _Columns, rows: NDArray[np.intp]) -> list[bytes]:
    return [one.tobytes() for one in np.stack([some["high"][rows], some["low"][rows]], axis=1).astype(">u8")]


def _sums(
    group: NDArray[np.intp], rows: NDArray[np.intp] | slice, values: NDArray[np.int64], many: int
) -> NDArray[np.int64]:
    """Return the sum of some rows' values by group."""
    return np.bincount(group[rows], values[rows], many).astype(np.int64)  # through float64, exact up to 2^53


def _first(sums: Sequence[NDArray[np.int64]], most: int) -> NDArray[np.intp]:
    """Return the groups with the largest sums, the largest first: by the first sum, then by the others."""
    return np.lexsort([-one for one in reversed(sums)])[:most]
