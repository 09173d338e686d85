"""Everything between measured batches and the collector, behind nine calls of the loop.

Built only when somebody asked for OTLP, and imported only after the programs are attached: protobuf and HTTP cost time
and memory that measuring does not need. `choose()` and `measure()` per batch, `recalled()`, `explained()` and
`send_spans()` per drain, `name_peers()` per tick, `export()` per metric interval, `forget()` when the kernel has let
counts go, `stop()` at the end. None of them waits for a collector.
"""

import math
from collections.abc import Container, Mapping, Sequence
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, Target
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.peers import Peers, address
from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.counts import NO_COUNTS, Counts
from latencyprobe_agent.measure.evidence import Joined
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.rules import Rules
from latencyprobe_agent.measure.selection import Budget, lone, recall, select
from latencyprobe_agent.signals.evidence import Evidence, Explains, Sample
from latencyprobe_agent.telemetry import conventions as names
from latencyprobe_agent.telemetry import otlp, selfmetrics, spans
from latencyprobe_agent.telemetry.endpoints import Settings, Signal
from latencyprobe_agent.telemetry.evidence_series import EvidenceSeries
from latencyprobe_agent.telemetry.metrics import count_points, evidence_points, record_points
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.points import MetricRequests, Resource
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, RecordHistograms, service_of
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.telemetry.waiting import WaitingRoom

_UNNAMED = 16_384  # records of evidence whose peers are asked for; older ones beyond go without


class Origin(NamedTuple):
    """Who exports: `peers` is None standalone. `shared_key`: another host has the same pairing key."""

    config: Config
    peers: Peers | None
    shared_key: bool
    start_unix_ns: int


class Pipeline:
    """The exporters of one agent."""

    def __init__(self, origin: Origin, outboxes: Mapping[Signal, Outbox], *, delta: bool) -> None:
        config, standalone = origin.config, origin.peers is None
        self.outboxes = outboxes
        self._origin = origin
        self._peers = origin.peers or Peers(None)
        self._budget = Budget(config.spans_per_second)
        self._recall_budget = Budget(
            config.spans_per_second
        )  # as many again: the other halves of what the first one let through
        self._waiting = WaitingRoom(
            identity_wait_s=config.identity_wait_s,
            join_wait_s=config.join_wait_s,
            capacity=int(config.spans_per_second * max(config.identity_wait_s, config.recall_wait_s)),
        )
        self._histograms = RecordHistograms(
            config.series, by_process=standalone, identity_wait_s=config.identity_wait_s
        )
        self._evidence = EvidenceSeries(config.series, by_process=standalone)
        self._slo = SloEvents()
        self._unnamed: list[tuple[Evidence, Sequence[Sample], float]] = []  # whose peers are asked for, and since when
        self._requests = MetricRequests(origin.start_unix_ns, delta=delta)
        self._agent = selfmetrics.agent_resource(config, host=standalone)
        self._plan: NodePlan | None = None
        self._rules = Rules()
        self._targets: Mapping[int, Target] = {}
        self._exported: dict[int, int] = {}

    @classmethod
    def open(cls, origin: Origin, chosen: Sequence[Settings], *, delta: bool) -> Self:
        """Start a sender for each signal. Raises ConfigError where gRPC is asked for but not installed."""
        outboxes = {
            one.signal: Outbox(
                otlp.transport(one),
                signal=one.signal,
                collector=one.url,
                capacity_bytes=origin.config.outbox_bytes // len(chosen),
            )
            for one in chosen
        }
        for outbox in outboxes.values():
            outbox.start()
        return cls(origin, outboxes, delta=delta)

    def use(self, plan: NodePlan, rules: Rules, counts: Counts = NO_COUNTS, now_unix_ns: int = 0) -> None:
        """Follow a new plan. Records of sets that it no longer has find no target any more; objectives that it did not
        have before start from `counts`, the kernel's when it came into force."""
        self._plan, self._rules = plan, rules
        self._slo.follow(plan, rules, counts, now_unix_ns)
        targets = {target.id: target for target in plan.targets}
        self._targets = {
            index: next(targets[name] for name in one.targets if name in targets)
            for index, one in rules.sets.items()
            if not targets.keys().isdisjoint(one.targets)
        }

    def choose(self, halves: Halves, now_ns: int) -> None:
        """Choose which halves of a batch become spans, and mark them in it. `now_ns`: boot time."""
        if "traces" in self.outboxes:
            selected = select(halves, self._rules.sets, self._budget, now_ns)
            halves.chosen[selected.index] = selected.reason + np.uint8(1)
            self._waiting.admit(halves, selected, self._targets, now_ns / 1e9)

    def measure(self, halves: Halves, pairs: Pairs, now_ns: int) -> None:
        """Take in a batch that `choose()` has seen, and the pairs that it made."""
        if "traces" in self.outboxes:
            self._admit(lone(pairs), now_ns)
            self._waiting.note_pairs(pairs, by_process=self._origin.peers is None)
        if "metrics" in self.outboxes:
            self._histograms.add(halves, now_ns / 1e9, by_peer=self._origin.peers is not None)
            self._histograms.add_pairs(pairs, names.LOCAL)

    def recalled(self, pairs: Pairs, servers: Mapping[int, tuple[str, str]], asked: Halves, now_ns: int) -> None:
        """Take in pairs whose server halves other nodes told, with `servers` as `Join.server` by the low half of the
        trace id, and the halves of this node that `asked` for a span beside their client's."""
        if "traces" in self.outboxes:
            self._waiting.note_pairs(pairs, by_process=False, recalled=servers)
            self._admit(asked, now_ns)
        if "metrics" in self.outboxes:
            self._histograms.add_pairs(pairs, names.RECALLED)

    def explained(self, explains: Explains, evidence: Evidence | None, joined: Joined | None, now_ns: int) -> None:
        """Take in what a signal recorded, and what it explains."""
        if evidence is not None and "metrics" in self.outboxes:
            samples = explains.samples(evidence)
            if self._origin.peers and any(sample.by_peer for sample in samples):
                self._unnamed.append((evidence, samples, now_ns / 1e9))
            else:
                self._evidence.add(evidence, samples)
        if joined is not None and "traces" in self.outboxes:
            self._waiting.note_evidence(explains, joined)

    def _admit(self, halves: Halves, now_ns: int) -> None:
        if len(halves):
            selected = recall(halves, self._rules.sets, self._recall_budget, now_ns)
            self._waiting.admit(halves, selected, self._targets, now_ns / 1e9)

    def send_spans(
        self,
        resources: Resources,
        now_ns: int,
        unix_offset_ns: int,
        asking: Container[int] = (),
        *,
        all_of_them: bool = False,
    ) -> None:
        """Queue the spans that need not wait any longer. `asking`: as for `WaitingRoom.take_ready()`."""
        ready = self._waiting.take_ready(self._peers, now_ns / 1e9, asking, all_of_them=all_of_them)
        if ready:
            context = spans.Context(resources, unix_offset_ns, self._origin.shared_key)
            for body, count in spans.requests(ready, context):
                self.outboxes["traces"].put(body, count)

    def name_peers(self, now_ns: int, *, all_of_them: bool = False) -> None:
        """Give what is counted by peer the names that are known by now; `all_of_them` at the end of the run."""
        now_s = math.inf if all_of_them else now_ns / 1e9
        wanted = self._histograms.waiting_peers
        if wanted:
            self._histograms.name_peers(self._peers.resolve(wanted), now_s)
        rows, waiting = 0, []
        for evidence, samples, since_s in reversed(self._unnamed):
            packed = np.ascontiguousarray(evidence.rec["flow"]["peer_addr"]).view("V16").ravel()
            distinct, of_row = np.unique(packed, return_inverse=True)
            peers = [address(one.tobytes()) for one in distinct]
            known = self._peers.resolve(set(peers))
            rows += len(evidence)
            if known.keys() < set(peers) and now_s - since_s < self._origin.config.identity_wait_s and rows < _UNNAMED:
                waiting.append((evidence, samples, since_s))
            else:
                services = np.array([service_of(known.get(peer)) for peer in peers])
                self._evidence.add(evidence, samples, services[of_row])
        self._unnamed = waiting[::-1]

    def export(self, counts: Counts, resources: Resources, own: selfmetrics.Self, now_unix_ns: int) -> None:
        """Queue all metrics as they stand."""
        if "metrics" not in self.outboxes or self._plan is None:
            return
        own = own._replace(
            peers_unresolved=self._waiting.unresolved,
            spans_left_out=self._waiting.left_out,
            series_overflow=self._histograms.overflow + self._evidence.overflow,
        )
        counts = self._without_ended(counts, resources)
        points = [
            *count_points(counts, self._plan, self._rules.sets, self._slo, self._origin.config.series),
            *record_points(self._histograms, self._plan, self._rules.sets),
            *evidence_points(self._evidence, self._plan, self._rules.sets),
            *selfmetrics.points(own, self.outboxes),
        ]
        observed: dict[object, Resource] = {
            point.observed: resources.attributes(point.observed) for point in points if isinstance(point.observed, int)
        }
        if OTHER_OWNER in observed:
            observed[OTHER_OWNER] = {**resources.attributes(0), names.SERVICE_NAME: names.OTHER}
        for body, count in self._requests.encode(points, observed | {selfmetrics.AGENT: self._agent}, now_unix_ns):
            self.outboxes["metrics"].put(body, count)

    def _without_ended(self, counts: Counts, resources: Resources) -> Counts:
        """Leave out owners that have ended and whose last counts have been exported: their series end as they did."""
        seen = counts.values["outcomes"].sum(axis=1) + counts.values["excluded"].sum(axis=1)
        now: dict[int, int] = {}
        for owner, count in zip(counts.keys["owner"].tolist(), seen.tolist(), strict=True):
            now[owner] = now.get(owner, 0) + count
        over = {owner for owner, n in now.items() if self._exported.get(owner) == n and resources.ended(owner)}
        self._exported = now
        self._histograms.forget(over)
        self._evidence.forget(over)
        kept = ~np.isin(counts.keys["owner"], np.array(sorted(over), np.uint64))
        return Counts(counts.keys[kept], counts.values[kept])

    def forget(self, keys: NDArray[np.void]) -> None:
        """Forget COUNTS_KEYs that the kernel has let go: they start from 0 when they come again."""
        self._slo.forget(keys)

    def stop(self, timeout_s: float) -> None:
        """Deliver what is queued, for at most `timeout_s`."""
        for outbox in self.outboxes.values():
            outbox.stop(timeout_s / len(self.outboxes))
