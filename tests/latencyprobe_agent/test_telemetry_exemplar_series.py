"""Exemplars lead from a point to a span that leaves, of an RPC that it counts; by the agent's own listeners."""

from collections import Counter, defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pytest
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.plan import Identity, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.histogram import positions
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.sampling import Reason, Sampled, Sampler
from latencyprobe_agent.measure.turn import AgentStats, InForce, Turn
from latencyprobe_agent.telemetry.exemplar_series import METRICS, ExemplarSeries
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.ids import to_hex
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, ExchangeClass, Excluded, Outcome, Role
from tests.support import otlp

MS = 10**6
POLICY = SpanPolicy(20 * MS, 0.3, 10**6)


def target(namespace: str, name: str) -> Target:
    return Target(f"{namespace}/p/{name}", namespace, "p", "uid", name, Perspective.SERVER, (), 0, POLICY)


TARGETS = SHOP, BANK, ALL = target("shop", "cart"), target("bank", "till"), target("bank", "all")
SETS = {
    number: TargetSet(tuple(one.id for one in targets), (), 0, POLICY, "shop/p")
    for number, targets in enumerate([(SHOP,), (BANK,), (BANK, ALL)], 1)
}
IN_FORCE = InForce(NodePlan("n1", 1, "", TARGETS, ()), Rules(sets=SETS), FakeResources())
SLOW = {"role": Role.SERVER, "cgroup_id": 7, "stages": (0, 0, 30 * MS, 0)}
DURATIONS = {Role.SERVER: names.SERVER_DURATION.name, Role.CLIENT: names.CLIENT_DURATION.name}


class Kernel:
    """What it has counted of all halves so far."""

    def __init__(self) -> None:
        self._counts: dict[tuple[int, int, int], NDArray[np.void]] = {}

    def count(self, some: Halves) -> Snapshot:
        for rec, duration_ns in zip(some.rec[some.counted], some.duration_ns[some.counted], strict=True):
            key = int(rec["target_set"]), int(rec["role"]), int(rec["cgroup_id"])
            value = self._counts.setdefault(key, np.zeros(1, COUNTS))
            value["outcomes"][0, rec["outcome"]] += 1
            value["histogram"][0, positions(np.array([duration_ns]))] += 1
            value["duration_sum_ns"] += np.uint64(duration_ns)
        keys = np.zeros(len(self._counts), COUNTS_KEY)
        for name, column in zip(("target_set", "role", "owner"), zip(*self._counts, strict=True), strict=False):
            keys[name] = column
        counts = Counts(keys, np.concatenate([np.zeros(0, COUNTS), *self._counts.values()]))
        return Snapshot(counts, counts, keys[:0], {})


class Exported(NamedTuple):
    """A point of a histogram."""

    service: str
    metric: str
    labels: dict[str, Any]
    point: pb.ExponentialHistogramDataPoint


class Agent:
    """Its two listeners, with an outbox each; both look at each turn."""

    def __init__(
        self,
        make_turn: Any,
        *,
        spans: int = 5000,
        capacity: int = 5000,
        series: int = 200,
        delta: bool = False,
        interval_s: float = 1.0,
    ) -> None:
        self.traces, self.metrics = FakeOutbox(), FakeOutbox()
        self.peers = FakePeers(Identity("10.0.0.2", service="web"), Identity("10.0.0.3", service="app"))
        config, exemplars = Config(metric_interval_s=1.0, series=series), ExemplarSeries(capacity)
        room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=spans)
        own = SelfMetrics({"metrics": self.metrics}, room, config, standalone=False)
        start = Now(0, 10**18)
        self._listeners = (
            Spans(self.traces, room, self.peers, shared_key=False, admitted=exemplars.put),
            Metrics(self.metrics, own, config, self.peers, start=start, delta=delta, exemplars=exemplars),
        )
        self._kernel, self._make_turn, self._sampler = Kernel(), make_turn, Sampler(10**6)

    def turn(self, *records: dict[str, Any], at_s: float, **fields: Any) -> Sampled:
        """Take a turn with counts. Return what of it became spans: what is slow or failed, and a share of the rest."""
        turn: Turn = self._make_turn(IN_FORCE, *records, at_s=at_s)
        some, sampled = self._sampler.decide(turn.halves, SETS, b"", turn.now.boot_ns)
        turn = turn._replace(halves=some, counts=self._kernel.count(some), stats=AgentStats())
        for listener in self._listeners:
            listener.take(turn._replace(**{"sampled": sampled, **fields}))
        return sampled

    def exported(self) -> list[Exported]:
        """The points of histograms that have been sent since the last call."""
        found = [
            Exported(resource["service.name"], metric.name, otlp.values(point.attributes), point)
            for resource, metric in otlp.metrics(self.metrics.bodies)
            for point in metric.exponential_histogram.data_points
        ]
        self.metrics.bodies.clear()
        return found

    def exemplars(self, metric: str) -> list[pb.Exemplar]:
        """Those of a metric's points, of the same."""
        return [one for each in self.exported() if each.metric == metric for one in each.point.exemplars]

    def spans(self) -> dict[tuple[bytes, bytes], tuple[str, Span]]:
        """(service, span), by ids, of all that leave."""
        for listener in self._listeners:
            listener.close()
        found = otlp.of_rpcs(self.traces.bodies)
        return {(span.trace_id, span.span_id): (resource["service.name"], span) for resource, span in found}


def traffic(dice: np.random.Generator, count: int) -> Iterator[dict[str, Any]]:
    """Halves of three target sets, both roles, five containers and three peers, some of them streaming calls."""
    for _ in range(count):
        streaming = {"stream_id": 7, "conn_class": ExchangeClass.STREAMING, "excluded": Excluded.STREAMING}
        yield {
            "role": Role.SERVER if dice.random() < 0.5 else Role.CLIENT,
            "target_set": dice.integers(1, 4),
            "cgroup_id": dice.integers(1, 6),
            "stages": tuple((dice.exponential(5, 4) * MS).astype(int).tolist()),
            "peer": dice.choice(["10.0.0.2", "10.0.0.3", "192.0.2.1"]),
            "request_offset": dice.integers(1 << 60),
            "outcome": Outcome.OK if dice.random() < 0.9 else Outcome.RESET,
            **(streaming if dice.random() < 0.2 else {}),
        }


def value_of(metric: str, labels: dict[str, Any], span: Span) -> float:
    """What a metric counts of a span."""
    attributes = otlp.values(span.attributes)
    if metric == names.STAGE_DURATION.name:
        return float(attributes[names.stage_attribute(labels[names.STAGE])])
    if metric == names.FIRST_ANSWER_DURATION.name:
        return float(attributes[names.FIRST_ANSWER])
    assert names.FIRST_ANSWER not in attributes, "how long a stream lasts is in no histogram"
    return (span.end_time_unix_nano - span.start_time_unix_nano) / 1e9


def counted(point: pb.ExponentialHistogramDataPoint, value: float) -> bool:
    """Whether the point has anything in the bucket of this value, or beside it: logarithms are not exact."""
    at = round(np.log2(value) * 2**point.scale) - point.positive.offset
    return any(point.positive.bucket_counts[max(at - 1, 0) : at + 1])


@pytest.mark.parametrize("delta", [False, True])
def test_an_exemplar_is_a_span_that_leaves_of_an_rpc_that_its_point_counts(make_turn: Any, delta: bool) -> None:
    dice, agent, seen = np.random.default_rng(4), Agent(make_turn, delta=delta), Counter[str]()
    found: list[Exported] = []
    for second in range(1, 5):
        agent.turn(*traffic(dice, 150), at_s=second)
        found += agent.exported()
    emitted, points_of = agent.spans(), {"cart": {"cart"}, "till": {"till", "all"}}
    for service, metric, labels, point in found:
        assert len(point.exemplars) <= 2
        assert [one.time_unix_nano for one in point.exemplars] == sorted(one.time_unix_nano for one in point.exemplars)
        for one in point.exemplars:
            assert not one.filtered_attributes
            owner, span = emitted[one.trace_id, one.span_id]
            attributes = otlp.values(span.attributes)
            role = Role.SERVER if span.kind == Span.SPAN_KIND_SERVER else Role.CLIENT
            assert owner == service
            assert one.time_unix_nano == span.end_time_unix_nano
            assert one.as_double == pytest.approx(value_of(metric, labels, span), abs=1e-12)
            assert counted(point, one.as_double)
            assert labels[names.TARGET] in points_of[attributes[names.TARGET]]
            assert labels[names.PROBE_NAMESPACE] == {"cart": "shop"}.get(attributes[names.TARGET], "bank")
            assert labels.get(names.ROLE, role.name.lower()) == role.name.lower()
            assert metric not in DURATIONS.values() or metric == DURATIONS[role]
            if metric == names.PEER_DURATION.name:
                assert labels[names.SERVICE_PEER_NAME] == attributes.get(names.SERVICE_PEER_NAME, names.UNRESOLVED)
            seen[metric] += 1
    assert seen.keys() == {metric.name for metric in METRICS}
    assert seen.total() > 500


def test_the_slowest_of_the_interval_that_became_a_span_is_one_of_them(make_turn: Any) -> None:
    dice, agent = np.random.default_rng(5), Agent(make_turn)
    for second in range(1, 4):
        sampled = agent.turn(*traffic(dice, 150), at_s=second)
        expected: defaultdict[tuple[str, str, str], float] = defaultdict(float)
        for half, ns, event in zip(
            sampled.halves.rec, sampled.halves.duration_ns.tolist(), sampled.halves.counted, strict=True
        ):
            for one in (one for one in TARGETS if one.id in SETS[int(half["target_set"])].targets and event):
                key = DURATIONS[Role(int(half["role"]))], one.name, f"service-{half['cgroup_id']}"
                expected[key] = max(expected[key], ns / 1e9)
        assert expected == {
            (metric, labels[names.TARGET], service): max(one.as_double for one in point.exemplars)
            for service, metric, labels, point in agent.exported()
            if metric in DURATIONS.values() and point.exemplars
        }


def test_one_of_them_was_drawn_of_all_rpcs_and_is_the_same_at_both_ends(make_turn: Any) -> None:
    dice, agent = np.random.default_rng(6), Agent(make_turn)
    for second in range(1, 11):
        processed_ns, offsets = (dice.exponential(20, 40) * MS).astype(int), dice.integers(1 << 60, size=40)
        both = [
            {"role": role, "cgroup_id": role, "stages": (0, 0, ns, 0), "request_offset": offset}
            for ns, offset in zip(processed_ns, offsets, strict=True)
            for role in DURATIONS
        ]
        halves = make_turn(IN_FORCE, *both).halves
        (drawn,) = to_hex(halves.take(np.array([halves.join_key.argmax()])).trace_ids(b""))
        agent.turn(*both, at_s=second)
        for service, metric, _, point in agent.exported():
            if metric in DURATIONS.values():
                assert drawn in {one.trace_id.hex() for one in point.exemplars}, service


def test_they_are_renewed_with_each_export(make_turn: Any) -> None:
    agent = Agent(make_turn)
    agent.turn(SLOW, at_s=1)
    agent.turn(at_s=2)
    agent.turn(SLOW | {"request_offset": 9}, at_s=3)
    first, second = agent.exemplars(names.SERVER_DURATION.name)
    assert first.trace_id != second.trace_id


@pytest.mark.parametrize("limit", ["spans", "capacity"])
def test_what_found_no_room_is_none(make_turn: Any, limit: str) -> None:
    agent = Agent(make_turn, **{limit: 1})
    agent.turn(SLOW, SLOW | {"request_offset": 9, "stages": (0, 0, 90 * MS, 0)}, at_s=1)
    (one,) = agent.exemplars(names.SERVER_DURATION.name)
    assert one.as_double == pytest.approx(0.03)
    assert (one.trace_id, one.span_id) in agent.spans()


def test_what_was_sampled_for_the_sake_of_another_half_may_be_of_an_earlier_interval_and_is_none(
    make_turn: Any, make_halves: Any
) -> None:
    agent = Agent(make_turn)
    quick = make_halves(SLOW | {"stages": (0, 0, MS, 0)})
    for second, reason in enumerate((Reason.OTHER_HALF, Reason.CALL), 1):
        theirs = Sampled(quick, quick.trace_ids(b""), np.full(1, reason, np.uint8), np.ones(1))
        agent.turn(SLOW | {"stages": (0, 0, MS, 0)}, at_s=second, sampled=theirs)
    assert agent.exemplars(names.SERVER_DURATION.name) == []
    assert len(agent.spans()) == 1


def test_a_series_that_is_folded_into_other_has_none(make_turn: Any) -> None:
    agent = Agent(make_turn, series=1)
    agent.turn(*(SLOW | {"cgroup_id": owner, "request_offset": owner} for owner in (7, 8, 9)), at_s=1)
    found = [one for one in agent.exported() if one.metric == names.SERVER_DURATION.name]
    assert {one.service: len(one.point.exemplars) for one in found} == {"service-7": 1, names.OTHER: 0}


def test_a_peer_has_them_as_long_as_all_of_its_durations_are_under_one_name(make_turn: Any) -> None:
    agent = Agent(make_turn)

    def exemplars(at_s: float, service: str) -> int:
        agent.peers.identities = {"10.0.0.9": Identity("10.0.0.9", service=service)} if service else {}
        agent.turn(SLOW | {"peer": "10.0.0.9", "request_offset": round(at_s * 10)}, at_s=at_s)
        return len(agent.exemplars(names.PEER_DURATION.name))

    assert exemplars(1.0, "") == 0
    assert exemplars(2.0, "early") == 1
    assert exemplars(2.5, "early") + exemplars(3.0, "late") == 0, "its address changes hands"
    assert exemplars(3.5, "late") + exemplars(4.0, "") == 0, "it is forgotten"
