"""Histograms that only records can fill: stages, round trips, `network` of pairs, durations by peer.

Receives halves and pairs, returns series. Cumulative; series are capped, what is above goes to `other` and is counted.
Unlike the kernel's own counts these miss records that the ring refused; a sampled record counts
with its adjusted count.
"""

from collections.abc import Callable, Iterator, Sequence, Set
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import Identity
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.histogram import positions
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.stages import NETWORK_AT, half_stages
from latencyprobe_agent.telemetry.points import Histogram
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.telemetry.shared_room import SharedRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.conventions import Metric
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, HISTOGRAM_MIN, HISTOGRAM_SCALE, Role

# Two kernel buckets are one of ours: scale 4, 16 per power of two, errs by at most 2.2 % and takes 4 kB per series.
_SCALE = HISTOGRAM_SCALE - 1
_OFFSET = HISTOGRAM_MIN // 2
_BUCKETS = HISTOGRAM_BUCKETS // 2
_ZERO = _BUCKETS  # column of durations of 0
_PENDING = 1024  # pairs of (group, address) that wait for a name, shared out among namespaces; 4 kB each

OTHER_OWNER = -1


class Group(NamedTuple):
    """Whose records: target set, role and owner as in `struct counts_key`."""

    target_set: int
    role: Role
    owner: int


class Series(NamedTuple):
    """One histogram. `detail`: stage, peer service or how pairs were joined, "" where the metric has none of them."""

    metric: Metric
    group: Group
    detail: str


class RecordHistograms:
    """Histograms by `Series`. `gained`: owners whose series have grown since somebody emptied it."""

    def __init__(self, cap: SeriesCap, *, by_process: bool, identity_wait_s: float) -> None:
        self.gained: set[int] = set()
        self._cap = cap
        self._columns = (_process if by_process else _cgroup, _target_set, _role)
        self._wait_s = identity_wait_s
        self._counts: dict[Series, NDArray[np.int64]] = {}
        self._sums_ns: dict[Series, int] = {}
        self._pending: dict[tuple[Group, str], tuple[NDArray[np.int64], int, float]] = {}
        self._waiting = SharedRoom(_PENDING)

    def add(self, halves: Halves, now_s: float, *, by_peer: bool) -> None:
        """Add the counted halves of a batch, and its streaming calls. `by_peer`: somebody can name addresses."""
        if (answered_ns := halves.first_answer_ns).any():
            self._add_streaming(halves, answered_ns)
        counted = halves if halves.counted.all() else halves.take(halves.counted)
        if not len(counted):
            return
        of_group, of_row = self._groups([column(counted) for column in self._columns])
        weights = _weights(counted.adjusted_count)
        for i in range(counted.stages.shape[1]):
            rows = _Rows(of_row, counted.stages[:, i], weights)
            table, sums = _tables(rows, len(of_group)), _sums(rows, len(of_group))
            for g, group in enumerate(of_group):
                self._into(Series(names.STAGE_DURATION, group, half_stages(group.role)[i]), table[g], sums[g])
        rtt_ns = counted.rec["srtt_us"].astype(np.int64) * 1000
        rows = _Rows(of_row, rtt_ns, weights)
        self._spread(names.TCP_RTT, of_group, rows if rtt_ns.all() else rows.where(rtt_ns > 0))
        if by_peer:
            self._add_peers(counted, of_group, _Rows(of_row, counted.duration_ns, weights), now_s)

    def _add_streaming(self, halves: Halves, answered_ns: NDArray[np.int64]) -> None:
        at = np.flatnonzero(answered_ns)
        some = halves.take(at)
        of_group, of_row = self._groups([column(some) for column in self._columns])
        rows = _Rows(of_row, answered_ns[at], _weights(some.adjusted_count))
        self._spread(names.FIRST_ANSWER_DURATION, of_group, rows)

    def add_pairs(self, pairs: Pairs, joined: str) -> None:
        """Add `network` of pairs that were joined alike, under their client halves."""
        if len(pairs):
            of_group, of_row = self._groups([pairs.of_clients(column) for column in self._columns])
            rows = _Rows(of_row, pairs.stages[:, NETWORK_AT], _weights(pairs.adjusted_count))
            self._spread(names.NETWORK_DURATION, of_group, rows, joined)

    def name_peers(
        self, known: dict[str, Identity], now_s: float, leaving: Set[int] = frozenset()
    ) -> dict[tuple[Group, str], str]:
        """Move what waits for a name under it; under `unresolved` after the wait, and of target sets that are
        `leaving`. Return the names of what moved."""
        named = {}
        for key in tuple(self._pending):
            group, peer = key
            counts, sum_ns, since_s = self._pending[key]
            identity = known.get(peer)
            if identity is None and now_s - since_s < self._wait_s and group.target_set not in leaving:
                continue
            del self._pending[key]
            self._waiting.give_back(self._cap.namespace(group.target_set))
            named[key] = service_of(identity)
            self._into(Series(names.PEER_DURATION, group, named[key]), counts, sum_ns)
        return named

    @property
    def owners(self) -> set[int]:
        """Return the owners of all series."""
        return {series.group.owner for series in self._counts}

    def forget(self, over: Callable[[Group], bool]) -> None:
        """Drop the series of these groups, which makes room for others."""
        for series in [series for series in self._counts if over(series.group)]:
            del self._counts[series], self._sums_ns[series]
            self._cap.release(series.metric, series.group.target_set, other=series.group.owner == OTHER_OWNER)

    @property
    def unnamed(self) -> set[tuple[Group, str]]:
        """Whose durations, with which address, wait for a name."""
        return set(self._pending)

    @property
    def waiting_peers(self) -> set[str]:
        """Addresses whose names are still to come."""
        return {peer for _, peer in self._pending}

    def series(self) -> Iterator[tuple[Series, Histogram]]:
        """Yield all series, cumulative. Their counts are those that are counted on: who keeps them copies them."""
        for series, counts in self._counts.items():
            sum_s = self._sums_ns[series] / 1e9
            yield series, Histogram(counts[:_BUCKETS], _OFFSET, _SCALE, int(counts[_ZERO]), sum_s)

    def _groups(self, columns: Sequence[NDArray[Any]]) -> tuple[list[Group], NDArray[np.intp]]:
        """Return the groups, and the number of each row's. `columns`: owner, target set and role of each row."""
        found = groups(columns)
        one_each = zip(*(column[found.first].tolist() for column in columns), strict=True)
        return [Group(target_set, Role(role), owner) for owner, target_set, role in one_each], found.of_row

    def _spread(self, metric: Metric, of_group: Sequence[Group], rows: "_Rows", detail: str = "") -> None:
        table, sums = _tables(rows, len(of_group)), _sums(rows, len(of_group))
        for g, group in enumerate(of_group):
            if table[g].any():
                self._into(Series(metric, group, detail), table[g], sums[g])

    def _add_peers(self, halves: Halves, of_group: Sequence[Group], rows: "_Rows", now_s: float) -> None:
        packed = np.ascontiguousarray(halves.rec["peer_addr"]).view(np.uint64)
        found = groups([rows.group, packed[:, 0], packed[:, 1]])
        of_peers = rows._replace(group=found.of_row)
        table, sums = _tables(of_peers, len(found.first)), _sums(of_peers, len(found.first))
        for p, row in enumerate(found.first.tolist()):
            group, peer = of_group[rows.group[row]], address(bytes(halves.rec["peer_addr"][row]))
            counts, sum_ns, since_s = self._pending.get((group, peer), (None, 0, now_s))
            if counts is not None:
                self._pending[group, peer] = (counts + table[p], sum_ns + sums[p], since_s)
            elif self._waiting.take(self._cap.namespace(group.target_set)):
                self._pending[group, peer] = (table[p].copy(), sums[p], now_s)
            else:
                self._into(Series(names.PEER_DURATION, group, names.OTHER), table[p], sums[p])

    def _into(self, series: Series, counts: NDArray[np.int64], sum_ns: int) -> None:
        if series not in self._counts and not self._cap.admit(series.metric, series.group.target_set, series):
            series = _other(series)
            if series not in self._counts and not self._cap.admit_other(series.group.target_set):
                return
        self.gained.add(series.group.owner)
        if series in self._counts:
            self._counts[series] += counts
            self._sums_ns[series] += sum_ns
        else:
            self._counts[series] = counts.copy()
            self._sums_ns[series] = sum_ns


def _other(series: Series) -> Series:
    detail = names.OTHER if series.metric is names.PEER_DURATION else series.detail
    return series._replace(group=series.group._replace(owner=OTHER_OWNER), detail=detail)


def service_of(identity: Identity | None) -> str:
    """Return the peer's service name in points; `identity` None: nobody could name it in time."""
    return names.UNRESOLVED if identity is None else identity.service or identity.workload or names.OTHER


class _Rows(NamedTuple):
    """`group`: number of each row's group; `ns`: the duration that is counted; `weight`: its adjusted count, None where
    every row counts once."""

    group: NDArray[np.intp]
    ns: NDArray[np.int64]
    weight: NDArray[np.int64] | None

    def where(self, wanted: NDArray[np.bool_]) -> "_Rows":
        """Return some of the rows."""
        return _Rows(self.group[wanted], self.ns[wanted], None if self.weight is None else self.weight[wanted])


def _weights(adjusted_count: NDArray[np.int64]) -> NDArray[np.int64] | None:
    return adjusted_count if (adjusted_count > 1).any() else None


def _process(some: Halves) -> NDArray[Any]:
    writer, reader = some.rec["writer_tgid"], some.rec["reader_tgid"]
    return np.where(writer, writer, reader)


def _cgroup(some: Halves) -> NDArray[Any]:
    return some.rec["cgroup_id"]


def _target_set(some: Halves) -> NDArray[Any]:
    return some.rec["target_set"]


def _role(some: Halves) -> NDArray[Any]:
    return some.rec["role"]


def _adjusted_count(some: Halves) -> NDArray[np.int64]:
    return some.adjusted_count


def _tables(rows: _Rows, groups: int) -> NDArray[np.int64]:
    """Return i64[groups, _BUCKETS + 1]: how many exchanges of each group fall in each column."""
    width = _BUCKETS + 1
    at, cells = positions(rows.ns), groups * width
    at >>= 1
    at[rows.ns <= 0] = _ZERO
    at += rows.group * width
    table = np.bincount(at, minlength=cells)
    if rows.weight is not None:
        heavy = rows.weight > 1
        table += np.bincount(at[heavy], weights=rows.weight[heavy] - 1, minlength=cells).astype(np.int64)
    return table.reshape(groups, width)


def _sums(rows: _Rows, groups: int) -> list[int]:
    # float64 is exact up to 2^53 ns: 104 days of durations in one batch
    weighted = rows.ns if rows.weight is None else rows.ns * rows.weight
    return [int(total) for total in np.bincount(rows.group, weights=weighted, minlength=groups)]
