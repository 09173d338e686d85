"""What only records can fill: histograms of stages, pairs and peers; and the metrics of evidence. Cumulative. Beside
them exemplars, of whatever counts durations of RPCs."""

import math
from collections.abc import Callable, Iterator, Sequence, Set
from itertools import chain
from typing import NamedTuple

import numpy as np

from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.evidence import EvidenceBatch
from latencyprobe_agent.measure.turn import InForce, Turn
from latencyprobe_agent.signals.evidence import Evidence, Sample
from latencyprobe_agent.telemetry.evidence_series import EvidenceSeries
from latencyprobe_agent.telemetry.exemplar_series import ExemplarSeries
from latencyprobe_agent.telemetry.metric_points import Exemplars, evidence_points, record_points
from latencyprobe_agent.telemetry.points import Point
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, Group, RecordHistograms, service_of
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.addresses import address

_UNNAMED = 16_384  # records of evidence whose peers are asked for; older ones beyond go without

_SEVERAL = {OTHER_OWNER, 0}  # 0: who is not known, or found no room in the kernel's table


class _Unnamed(NamedTuple):
    """Evidence whose peers are asked for since `since_s`."""

    evidence: Evidence
    samples: Sequence[Sample]
    since_s: float


class RecordSeries:
    """`peers`: None where nobody can name an address, and series are by process. `cap`: of all of them."""

    def __init__(self, cap: SeriesCap, identity_wait_s: float, peers: Peers | None, exemplars: ExemplarSeries) -> None:
        self.cap = cap
        self.exemplars = exemplars
        self._peers = peers
        self._identity_wait_s = identity_wait_s
        self._histograms = RecordHistograms(cap, by_process=peers is None, identity_wait_s=identity_wait_s)
        self._evidence = EvidenceSeries(cap, by_process=peers is None)
        self._unnamed: list[_Unnamed] = []

    def add(self, turn: Turn) -> None:
        """Take a turn's halves, pairs and evidence, and what signals have counted."""
        self._histograms.add(turn.halves, turn.now.boot_s, by_peer=self._peers is not None)
        self._histograms.add_pairs(turn.pairs.events, names.LOCAL)
        self._histograms.add_pairs(turn.remote.pairs.events, names.REMOTE)
        for batch in turn.evidence:
            self._add_evidence(batch, turn.now.boot_s)
        for gained in turn.gained:
            self._evidence.add_counted(gained)

    def _add_evidence(self, batch: EvidenceBatch, now_s: float) -> None:
        if not len(batch.records):
            return
        samples = batch.explains.samples(batch.records)
        if self._peers is not None and any(sample.by_peer for sample in samples):
            self._unnamed.append(_Unnamed(batch.records, samples, now_s))
        else:
            self._evidence.add(batch.records, samples)

    def name_peers(self, now_s: float = math.inf, leaving: Set[int] = frozenset()) -> None:
        """Count what waits for a peer's name where that is known by now; at the end of the run (inf) all of it, and all
        of target sets whose numbers are `leaving` them. To be called after each turn with counts."""
        waiting = self._histograms.waiting_peers
        known = self._peers.resolve(waiting) if self._peers and waiting else {}
        self.exemplars.name(self._histograms.name_peers(known, now_s, leaving), self._histograms.unnamed)
        if self._peers is None:
            return
        rows, still = 0, []
        for one in reversed(self._unnamed):
            rows += len(one.evidence)
            last_call = now_s - one.since_s >= self._identity_wait_s or rows >= _UNNAMED
            last_call |= bool(leaving) and not leaving.isdisjoint(one.evidence.rec["flow"]["target_set"].tolist())
            if not self._name(one, self._peers, last_call=last_call):
                still.append(one)
        self._unnamed = still[::-1]

    def _name(self, one: _Unnamed, peers: Peers, *, last_call: bool) -> bool:
        """Add evidence under its peers' names, if all are known or nobody waits any longer; return whether it was."""
        packed = np.ascontiguousarray(one.evidence.rec["flow"]["peer_addr"]).view("V16").ravel()
        distinct, of_row = np.unique(packed, return_inverse=True)
        addresses = [address(each.tobytes()) for each in distinct]
        known = peers.resolve(set(addresses))
        if known.keys() < set(addresses) and not last_call:
            return False
        services = np.array([service_of(known.get(each)) for each in addresses])
        self._evidence.add(one.evidence, one.samples, services[of_row])
        return True

    @property
    def owners(self) -> set[int]:
        """Return the owners of all series but those that stand for several."""
        return (self._histograms.owners | self._evidence.owners) - _SEVERAL

    def idle(self) -> set[int]:
        """Return the owners whose series have gained nothing since the last export. To be asked once per export."""
        idle = self.owners - self._histograms.gained - self._evidence.gained
        self._histograms.gained.clear()
        self._evidence.gained.clear()
        return idle

    def withheld(self, owners: set[int]) -> None:
        """Take note of owners that this export leaves out: they are not idle at the next."""
        self._evidence.gained |= owners & self.owners

    def forget(self, owners: Set[int]) -> None:
        """Drop the series of owners that have ended, which makes room for others."""
        self._forget(lambda group: group.owner in owners)

    def begin_anew(self, numbers: Set[int]) -> None:
        """Drop the series of these target sets."""
        self._forget(lambda group: group.target_set in numbers)

    def _forget(self, over: Callable[[Group], bool]) -> None:
        self._histograms.forget(over)
        self._evidence.forget(over)

    def points(self, in_force: InForce, without: Set[int], exemplars: Exemplars) -> Iterator[Point]:
        """Yield the points of all owners but these."""
        plan, sets = in_force.plan, in_force.rules.sets
        of_all = (record_points(self._histograms, plan, sets, exemplars), evidence_points(self._evidence, plan, sets))
        yield from (point for point in chain(*of_all) if point.observed not in without)
