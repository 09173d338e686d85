"""Metrics of evidence: the samples of every signal, added up per target set, role and owner, cumulative.

Receives batches of evidence with their samples (`signals.evidence.Explains.samples`), and what signals have counted in
the kernel (`counted`); returns series. They are capped as those of records are.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.histogram import positions
from latencyprobe_agent.signals.evidence import Evidence, Sample
from latencyprobe_agent.telemetry.points import Histogram, Labels
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, Group
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, Metric
from latencyprobe_agent.vocabulary.records import HISTOGRAM_BUCKETS, HISTOGRAM_MIN, HISTOGRAM_SCALE, Role


class Series(NamedTuple):
    """One counter or histogram, with the labels that its signal gave it."""

    metric: Metric
    group: Group
    labels: Labels


class EvidenceSeries:
    """Counters and histograms by `Series`. `gained`: owners whose series have grown since somebody emptied it."""

    def __init__(self, cap: SeriesCap, *, by_process: bool) -> None:
        self.gained: set[int] = set()
        self._cap = cap
        self._by_process = by_process
        self._sums: dict[Series, float] = {}
        self._histograms: dict[Series, Histogram] = {}

    def add(self, evidence: Evidence, samples: Sequence[Sample], services: NDArray[np.str_] | None = None) -> None:
        """Add the samples of a batch. `services`: str[n], who is at the other end of each record."""
        flow = evidence.rec["flow"]
        owner = flow["owner_tgid"].astype(np.uint64) if self._by_process else flow["cgroup_id"]
        for sample in samples:
            of_rows = dict(sample.labels)
            if sample.by_peer and services is not None:
                of_rows[names.SERVICE_PEER_NAME] = services[sample.rows]
            self._add(sample, flow, owner, of_rows)

    def add_counted(self, gained: Gained) -> None:
        """Add what a signal has counted in the kernel."""
        for sample in gained.signal.explains.counted(gained.keys, gained.values):
            self._add(sample, gained.keys, gained.keys["owner"], dict(sample.labels))

    def _add(
        self,
        sample: Sample,
        whose: NDArray[np.void],
        owner: NDArray[np.uint64],
        of_rows: Mapping[Attribute, NDArray[np.str_]],
    ) -> None:
        """Add a sample by target set and role of `whose`, owner, and the labels of its rows."""
        at, owner = whose[sample.rows], owner[sample.rows]
        for rows in _groups([at["target_set"], at["role"], owner, *of_rows.values()]):
            first = rows[0]
            role = Role(int(at["role"][first]))
            if role is Role.UNKNOWN:
                continue
            group = Group(int(at["target_set"][first]), role, int(owner[first]))
            labels = tuple((name, str(values[first])) for name, values in of_rows.items())
            self._into(Series(sample.metric, group, labels), sample.values[rows])

    @property
    def owners(self) -> set[int]:
        """Return the owners of all series."""
        return {series.group.owner for series in (*self._sums, *self._histograms)}

    def forget(self, over: Callable[[Group], bool]) -> None:
        """Drop the series of these groups, which makes room for others."""
        held: tuple[dict[Series, float], dict[Series, Histogram]] = (self._sums, self._histograms)
        for table in held:
            for series in [series for series in table if over(series.group)]:
                del table[series]
                self._cap.release(series.metric, series.group.target_set, other=series.group.owner == OTHER_OWNER)

    def series(self) -> Iterator[tuple[Series, int | float | Histogram]]:
        """Yield all series, cumulative."""
        for series, total in self._sums.items():
            yield series, int(total) if total == int(total) else total
        yield from self._histograms.items()

    def _into(self, series: Series, values: NDArray[np.generic]) -> None:
        if not self._has(series) and not self._cap.admit(series.metric, series.group.target_set, series):
            series = _other(series)
            if not self._has(series) and not self._cap.admit_other(series.group.target_set):
                return
        self.gained.add(series.group.owner)
        if series.metric.kind == "counter":
            self._sums[series] = self._sums.get(series, 0) + values.sum().item()
            return
        ns = np.round(values.astype(np.float64) * 1e9).astype(np.int64)
        counts = np.bincount(positions(ns[ns > 0]), minlength=HISTOGRAM_BUCKETS)
        before = self._histograms.get(series)
        new = Histogram(counts, HISTOGRAM_MIN, HISTOGRAM_SCALE, int((ns <= 0).sum()), float(ns.sum()) / 1e9)
        if before:
            new = new._replace(
                counts=before.counts + counts, zero=before.zero + new.zero, sum_s=before.sum_s + new.sum_s
            )
        self._histograms[series] = new

    def _has(self, series: Series) -> bool:
        return series in self._sums or series in self._histograms


def _other(series: Series) -> Series:
    labels = tuple((name, names.OTHER if name == names.SERVICE_PEER_NAME else v) for name, v in series.labels)
    return series._replace(group=series.group._replace(owner=OTHER_OWNER), labels=labels)


def _groups(columns: Sequence[NDArray[np.generic]]) -> list[NDArray[np.intp]]:
    """Return the rows of each distinct combination."""
    if not len(columns[0]):
        return []
    codes = np.zeros(len(columns[0]), np.intp)
    for column in columns:
        values, of_row = np.unique(column, return_inverse=True)
        _, codes = np.unique(codes * len(values) + of_row, return_inverse=True)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.flatnonzero(np.diff(codes[order])) + 1)
