"""What an agent and the operator export of a small shop, by their own code: an hour of it, a minute at a time.

Two namespaces have a LatencyProbe of the same names. In each the container `cart` serves, and `web` on the same node
calls it; 2 % of the RPCs are bad.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from prometheus_client.parser import text_string_to_metric_families

from latencyprobe.plan import Container, Identity, NodePlan, PlannedObjective, Pod, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.pressure import Quota, Reading
from latencyprobe_agent.identity.resources import PodResources
from latencyprobe_agent.measure import sampling
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.evidence import EvidenceBatch
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce, Turn, empty
from latencyprobe_agent.measure.unsent import of_halves
from latencyprobe_agent.signals.table import HANDSHAKES, RETRANSMITS, EvidenceSignal
from latencyprobe_agent.telemetry.exemplar_series import ExemplarSeries
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import (
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    ConnectOutcome,
    ExchangeClass,
    Excluded,
    Outcome,
    RetransmitKind,
    Role,
    UnsentReason,
)
from latencyprobe_agent.vocabulary.undelivered import Undelivered
from latencyprobe_operator.metrics import OperatorCollector, Sources, exposition
from latencyprobe_operator.plan.agents import NodeState
from tests.support.exchanges import exchanges
from tests.support.remote_write import Sampled

MINUTES = 70
EVENTS, BAD, AMBIGUOUS = 600, 12, 60  # of each end, in a minute
PER_END = 10  # records, in a minute
GOAL = "99.9"
THRESHOLD_NS = 25_000_000
NAMESPACES = ("shop", "bank")
_MS = 1_000_000
_SECOND = 10**9
_POLICY = SpanPolicy(THRESHOLD_NS, 0.0, 100)


def objective(window: str) -> str:
    """The name of the objective of the shop that has this window."""
    return f"fast-{window}"


class Told(NamedTuple):
    """The bodies of an agent's OTLP requests: of metrics one for each minute."""

    metrics: list[bytes]
    traces: list[bytes]


def exported(until_s: int) -> Told:
    """What an agent sends, the last of it at this time (Unix s). One RPC of each end and minute becomes a span."""
    outbox, plan = FakeOutbox(), _plan()
    outbox.errors["ConnectionRefusedError"] += 1
    room = WaitingRoom(identity_wait_s=0.0, join_wait_s=0.0, capacity=100)
    config = Config(node="n1", instance="agent-1", pod="agent-x", pod_namespace="latencyprobe-agents")
    outboxes, exemplars = {"traces": FakeOutbox(), "metrics": outbox}, ExemplarSeries(100)
    own = SelfMetrics(
        outboxes, room, config, standalone=False, undelivered=lambda: Undelivered(3, {"too_old": 2})
    )  # fmt: skip
    peers = FakePeers(Identity("10.0.0.1", service="cart"), Identity("10.0.0.2", service="web"))
    start = Now(0, (until_s - MINUTES * 60) * _SECOND)
    spans = Spans(outboxes["traces"], room, peers, shared_key=False, admitted=exemplars.put)
    points = Metrics(outbox, own, config, peers, start=start, delta=False, exemplars=exemplars)
    in_force = InForce(plan, Rules(sets=_sets(plan)), _resources(plan))
    for minute in range(1, MINUTES + 1):
        now = Now(minute * 60 * _SECOND, start.unix_ns + minute * 60 * _SECOND)
        turn = _turn(in_force, now, minute)
        spans.take(turn)
        points.take(turn)
    spans.close()
    return Told(outbox.bodies, outboxes["traces"].bodies)


def scraped(until_s: int) -> Iterator[Sampled]:
    """What a Prometheus reads at the operator's /metrics each minute."""
    for minute in range(1, MINUTES + 1):
        text = exposition(OperatorCollector(sources(minute)))().decode()
        at_ms = (until_s - (MINUTES - minute) * 60) * 1000
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = {"__name__": sample.name, "job": "latencyprobe", **sample.labels}
                yield Sampled(labels, at_ms, sample.value)


def _plan() -> NodePlan:
    targets, objectives, pods = [], [], []
    for namespace in NAMESPACES:
        name = f"{namespace}/checkout/cart"
        ids = (name, namespace, "checkout", f"uid-{namespace}", "cart")
        targets.append(Target(*ids, Perspective.SERVER, (THRESHOLD_NS,), 0, _POLICY, evidence=("retransmits",)))
        for window in WINDOW_S if namespace == "shop" else ("28d",):
            for side in Perspective:
                id_ = f"{namespace}/checkout/{objective(window)}"
                asked = (0, True, f"{window}{side}", GOAL, window, 100)
                objectives.append(PlannedObjective(id_, name, objective(window), side, *asked))
        for workload in ("cart", "web"):
            uid, resource = f"{namespace}-{workload}", {"service.name": workload, "service.namespace": namespace}
            resource |= {"k8s.namespace.name": namespace, "k8s.pod.name": f"{workload}-0", "k8s.node.name": "n1"}
            containers = (Container("main", f"{namespace}{workload}".encode().hex().ljust(64, "0")),)
            pods.append(Pod(uid, namespace, f"{workload}-0", (), containers, resource))
    return NodePlan("n1", 1, "", tuple(targets), tuple(objectives), tuple(pods))


def _sets(plan: NodePlan) -> dict[int, TargetSet]:
    return {
        number: TargetSet((target.id,), target.thresholds_ns, 0, _POLICY, f"{target.namespace}/checkout")
        for number, target in enumerate(plan.targets, 1)
    }


def _owners() -> list[tuple[int, Role, int]]:
    """(target set, role, owner) of all ends: cart serves, web calls."""
    return [(s, role, 10 * s + role) for s in range(1, len(NAMESPACES) + 1) for role in (Role.SERVER, Role.CLIENT)]


def _resources(plan: NodePlan) -> PodResources:
    cgroups = {}
    for target_set, role, owner in _owners():
        pod = plan.pods[2 * (target_set - 1) + (role is Role.CLIENT)]
        cgroups[owner] = Cgroup(pod.uid, pod.containers[0].id, f"/{pod.uid}")
    return PodResources(plan, cgroups)


def _turn(in_force: InForce, now: Now, minute: int) -> Turn:
    some = halves(np.concatenate([_records(*end, minute) for end in _owners()]))
    pairs = LocalJoin().join(some)
    evidence = [_retransmits(), _handshakes(), of_halves(some, pairs)]
    return empty(now, in_force)._replace(
        halves=some,
        sampled=_sampled(some.take(np.arange(0, len(some), PER_END))),
        pairs=pairs,
        evidence=tuple(batch for batch in evidence if batch),
        counts=_counts(minute),
        stats=_stats(minute),
        gained=(_connections(),),
        pressure={owner: _stall(owner, minute) for _, _, owner in _owners()},
    )


def _sampled(some: Halves) -> sampling.Sampled:
    reasons = np.full(len(some), sampling.Reason.RATIO, np.uint8)
    return sampling.Sampled(some, some.trace_ids(b""), reasons, np.ones(len(some)))


def _records(target_set: int, role: Role, owner: int, minute: int) -> Any:
    """Some exchanges of an end in this minute, whose halves are pairs."""
    stages = (1, 2, 20, 2) if role is Role.SERVER else (1, 26, 1, 2)
    ends = {"local": "10.0.0.1", "peer": "10.0.0.2"} if role is Role.SERVER else {"peer": "10.0.0.1"}
    return exchanges(
        PER_END,
        role,
        start_ns=(60 * minute - 30) * _SECOND,
        stages=tuple(ms * _MS for ms in stages),
        target_set=target_set,
        cgroup_id=owner,
        srtt_us=200,
        request_offset=np.arange(PER_END) + 100 * minute + 10_000 * target_set,
        unsent_reason=UnsentReason.NAGLE if role is Role.SERVER else UnsentReason.NONE,
        held_ns=_MS,
        **ends,
    )


def _evidence(signal: EvidenceSignal, **fields: Any) -> EvidenceBatch:
    records = np.zeros(len(_owners()), signal.record)
    for record, (target_set, role, owner) in zip(records, _owners(), strict=True):
        record["flow"]["target_set"], record["flow"]["role"], record["flow"]["cgroup_id"] = target_set, role, owner
    for name, value in fields.items():
        records[name] = value
    return EvidenceBatch(signal.switch, signal.explains, signal.columns(records), None, None)


def _retransmits() -> EvidenceBatch:
    return _evidence(RETRANSMITS, kind=RetransmitKind.SEGMENT, segs=2)


def _handshakes() -> EvidenceBatch:
    outcomes = [ConnectOutcome.OK, ConnectOutcome.OK, ConnectOutcome.OK, ConnectOutcome.REFUSED]
    return _evidence(HANDSHAKES, rtt_ns=_MS, connect_ns=_MS, n_syn=1, outcome=outcomes)


def _connections() -> Gained:
    """What one minute brought."""
    keys, values = np.zeros(len(_owners()), COUNTS_KEY), np.zeros(len(_owners()), EVIDENCE_COUNTS)
    for key, (target_set, role, owner) in zip(keys, _owners(), strict=True):
        key["owner"], key["target_set"], key["role"] = owner, target_set, role
    values["connections"][:, [ConnectOutcome.OK, ConnectOutcome.REFUSED]] = 5, 1
    return Gained(HANDSHAKES, keys, values)


def _counts(minute: int) -> Snapshot:
    ends = _owners()
    keys, values = np.zeros(len(ends), COUNTS_KEY), np.zeros(len(ends), COUNTS)
    for key, value, (target_set, role, owner) in zip(keys, values, ends, strict=True):
        key["owner"], key["target_set"], key["role"] = owner, target_set, role
        value["outcomes"][[Outcome.OK, Outcome.RESET]] = minute * (EVENTS - 2), minute * 2
        value["within"][0] = minute * (EVENTS - BAD)
        value["classes"][[ExchangeClass.PINGPONG, ExchangeClass.PIPELINED]] = minute * EVENTS, minute * AMBIGUOUS
        value["excluded"][Excluded.PIPELINED] = minute * AMBIGUOUS
        value["histogram"][[400, 500]] = minute * (EVENTS - BAD), minute * BAD
        value["duration_sum_ns"] = minute * EVENTS * 20 * _MS
    return Snapshot(Counts(keys, values), Counts(keys, values), keys[:0], {})


def _stats(minute: int) -> AgentStats:
    return AgentStats(
        records_read=minute * 1000,
        lost={"ring_full": minute},
        sampled_out=minute * 10,
        remote_joins={"asked": minute},
        evidence={"retransmits": {"joined": minute}},
        failures={"spans": minute},
        plan_age_s=1.5,
        drain_lag_s=0.3,
    )


def _stall(owner: int, minute: int) -> Stall:
    some = {"cpu": minute * 60_000, "io": minute * 30_000}
    quota = Quota(minute * 600, minute * 30, minute * 90_000, 100_000)
    return Stall(f"/{owner}", 60 * 10**6, {}, Reading(0, (quota,), some, some))


def sources(minute: int) -> Sources:
    """What the operator's metrics are read from in this minute."""
    return Sources(
        informers=list,
        node_states=lambda: [NodeState.READY, NodeState.MISSING],
        probes=lambda: 2,
        without_room=lambda: 0,
        suspended=lambda: False,
        left_out=Counter,
        streams=lambda: 1,
        requests=Counter({("/v1/identities", 200): minute}),
        connections=lambda: 1,
        connections_cut=lambda: 0,
        rows_accepted=lambda: minute * 6,
        rows_dropped=Counter(not_asked=minute),
        lookups=Counter(found=minute),
        commits=lambda: minute,
        upload_s=lambda: 20.0,
        remote_joins=Counter(answered=minute),
        writes=Counter({("label", "ok"): minute}),
        evaluations=Counter(ok=minute * 6, failed=minute),
        loop_failures=Counter({("evaluation", "StoreError"): minute}),
        store_works=lambda: True,
        store_failures=Counter(StoreFull=minute),
        damaged_files=lambda: 0,
        expected_forgotten=lambda: 0,
        may_write=lambda: True,
        unconfirmed_s=lambda: 0,
    )
