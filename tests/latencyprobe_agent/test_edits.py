"""Every field of a LatencyProbe is edited while its exchanges are counted, all the way from the operator's planner to
report, live line and collector: nothing raises, and each objective counts what was its own, while it was in force."""

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
import pytest

from latencyprobe import parsing, spec
from latencyprobe.plan import NodePlan, PlannedObjective, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.cli.live import figures
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.loop.guard import Guard
from latencyprobe_agent.loop.loop import Loop
from latencyprobe_agent.loop.status import target_statuses
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.rules import ANY_ADDRESS, ANY_PORT, NO_RULES, Rules, packed
from latencyprobe_agent.measure.turn import Turn
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EXCHANGE, ExchangeClass, Excluded, Outcome, Role, RuleSide
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.planner import Planner
from tests.support.otlp import Point, Series, points

MS = 1_000_000
GOLD = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
SPEC: dict[str, Any] = {
    "targets": [
        {"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}, **GOLD}, "ports": [8080]},
        {"name": "calls", "podSelector": {"matchLabels": {"app": "web"}}, "ports": [9000], "role": "Client"},
    ],
    "clients": {"podSelector": {"matchLabels": {"app": "web"}, **GOLD}},
    "objectives": [
        {"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99"},
        {"name": "callers", "target": "cart", "threshold": "50ms", "goal": "99", "perspective": "Client"},
        {"name": "outside", "target": "calls", "threshold": "25ms", "goal": "99"},
    ],
    "spans": {"slowerThan": "20ms", "ratio": "0.5"},
}
NEIGHBOUR: dict[str, Any] = {  # on the same sockets, never edited
    "targets": [{"name": "shared", "podSelector": {"matchLabels": {"app": "cart"}}, "peers": True}],
    "clients": {"scope": "Cluster"},
    "objectives": [
        {"name": "near", "target": "shared", "threshold": "10ms", "goal": "99", "errorsCountAsBad": False},
        {"name": "far", "target": "shared", "threshold": "25ms", "goal": "99", "perspective": "Client"},
    ],
}
Edit = Callable[[dict[str, Any]], object]


def of(*path: str | int, **fields: Any) -> Edit:
    """Set fields of what is at `path` in a spec."""

    def edit(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path:
            at = at[step] if isinstance(step, int) else at.setdefault(step, {})
        at.update(fields)

    return edit


def rename_the_target(document: dict[str, Any]) -> None:
    document["targets"][0]["name"] = "basket"
    for objective in document["objectives"][:2]:
        objective["target"] = "basket"


FLIPPED = {signal: not wanted for signal, wanted in msgspec.structs.asdict(spec.EvidenceSpec()).items()}
SERVER, REQUIREMENT = ("targets", 0), ("podSelector", "matchExpressions", 0)
FAST, CALLERS = ("objectives", 0), ("objectives", 1)
EDITS: dict[str, Edit] = {
    "targets": of(targets=[SPEC["targets"][0]], objectives=SPEC["objectives"][:2]),
    "targets.name": rename_the_target,
    "targets.podSelector": of(*SERVER, podSelector={}),
    "targets.podSelector.matchLabels": of(*SERVER, "podSelector", matchLabels={}),
    "targets.podSelector.matchExpressions": of(*SERVER, "podSelector", matchExpressions=[]),
    "targets.podSelector.matchExpressions.key": of(*SERVER, *REQUIREMENT, key="app"),
    "targets.podSelector.matchExpressions.operator": of(*SERVER, *REQUIREMENT, operator="NotIn"),
    "targets.podSelector.matchExpressions.values": of(*SERVER, *REQUIREMENT, values=["silver"]),
    "targets.ports": of(*SERVER, ports=[8081]),
    "targets.role": of("targets", 1, role="Server"),
    "targets.setupTurns": of(*SERVER, setupTurns=2),
    "targets.pause": of(*SERVER, pause="5s"),
    "targets.tls": of(*SERVER, tls=True),
    "targets.peers": of(*SERVER, peers=True),
    "clients": of(clients={}),
    "clients.scope": of("clients", scope="Cluster"),
    "clients.podSelector": of("clients", podSelector={}),
    "clients.podSelector.matchLabels": of("clients", "podSelector", matchLabels={"app": "cart"}),
    "clients.podSelector.matchExpressions": of("clients", "podSelector", matchExpressions=[]),
    "clients.podSelector.matchExpressions.key": of("clients", *REQUIREMENT, key="app"),
    "clients.podSelector.matchExpressions.operator": of("clients", *REQUIREMENT, operator="NotIn"),
    "clients.podSelector.matchExpressions.values": of("clients", *REQUIREMENT, values=["silver"]),
    "objectives": of(objectives=[{"name": "new", "target": "cart", "threshold": "50ms", "goal": "90"}]),
    "objectives.name": of(*FAST, name="quick"),
    "objectives.target": of(*FAST, target="calls"),
    "objectives.threshold": of(*FAST, threshold="40ms"),
    "objectives.goal": of(*FAST, goal="99.9"),
    "objectives.window": of(*FAST, window="7d"),
    "objectives.perspective": of(*FAST, perspective="Client"),
    "objectives.minEvents": of(*FAST, minEvents=1),
    "objectives.errorsCountAsBad": of(*CALLERS, errorsCountAsBad=False),
    "spans": of(spans={}),
    "spans.slowerThan": of("spans", slowerThan="1ms"),
    "spans.ratio": of("spans", ratio="1"),
    "spans.maxPerSecond": of("spans", maxPerSecond=1),
    "evidence": of(evidence=FLIPPED),
    **{f"evidence.{signal}": of("evidence", **{signal: flipped}) for signal, flipped in FLIPPED.items()},
    "suspend": of(suspend=True),
}


def fields(kind: Any, at: str = "") -> Iterator[str]:
    """Every field of the spec, by its path."""
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield at + field.encode_name
            yield from fields(field.type, f"{at}{field.encode_name}.")
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from fields(kind.item_type, at)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from fields(one, at)


def probe(name: str, document: dict[str, Any]) -> spec.LatencyProbe:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    kind = {"apiVersion": "latencyprobe.dev/v1alpha1", "kind": "LatencyProbe"}
    return parsing.parse({**kind, "metadata": metadata, "spec": document})


# -- a node, its pods and what they send


class Half(NamedTuple):
    """One end of a connection, in `pod`. `port`: the local one of a server, of a client what it dialled."""

    pod: Pod
    side: RuleSide
    address: str
    port: int


def pod(number: int, app: str, tier: str, namespace: str = "shop") -> Pod:
    uid = f"00000000-0000-4000-8000-00000000000{number}"
    labels = {"app": app, "tier": tier}
    containers = (Container("main", f"{number:x}" * 64),)
    run_by = ("StatefulSet", f"{app}-{tier}")
    addresses = (f"10.0.0.{number}",)
    return Pod(uid, namespace, f"{app}-{number}", "n1", labels, addresses, containers, (), (), (), *run_by)


GOLDEN_CART, SILVER_CART, REPLICA = pod(1, "cart", "gold"), pod(2, "cart", "silver"), pod(6, "cart", "gold")
GOLDEN_WEB, SILVER_WEB = pod(3, "web", "gold"), pod(4, "web", "silver")
TELLER = pod(5, "web", "gold", "bank")
PODS = (GOLDEN_CART, SILVER_CART, REPLICA, GOLDEN_WEB, SILVER_WEB, TELLER)
SERVICE = Service("shop", "cart", ("10.96.0.7",), (("web", 80),))
CONNECTIONS = [  # (client, dialled address, dialled port, server, its port)
    (GOLDEN_WEB, "10.96.0.7", 80, GOLDEN_CART, 8080),
    (SILVER_WEB, "10.0.0.1", 8080, GOLDEN_CART, 8080),
    (GOLDEN_WEB, "10.0.0.2", 8081, SILVER_CART, 8081),
    (GOLDEN_WEB, "203.0.113.9", 9000, None, 0),
    (TELLER, "10.0.0.1", 8080, GOLDEN_CART, 8080),
    (GOLDEN_CART, "10.0.0.2", 9000, SILVER_CART, 9000),
    (REPLICA, "10.0.0.1", 8080, GOLDEN_CART, 8080),
]
EXCHANGES = [(1 * MS, Outcome.OK), (15 * MS, Outcome.RESET), (30 * MS, Outcome.OK), (60 * MS, Outcome.OK)]


def ends() -> Iterator[list[Half]]:
    """Both halves of each connection, of which a pod of this node is an end."""
    for client, address, port, server, local_port in CONNECTIONS:
        dialling = Half(client, RuleSide.PEER, address, port)
        yield [dialling, Half(server, RuleSide.LOCAL, client.addresses[0], local_port)] if server else [dialling]


def cluster() -> ClusterState:
    state = ClusterState()
    state.put("nodes", Node("uid-n1", "n1"))
    state.put("namespaces", Namespace("shop", cluster_scope=True))
    state.put("services", SERVICE)
    endpoints = (SliceEndpoint(GOLDEN_CART.uid, GOLDEN_CART.addresses),)
    state.put("endpointslices", Slice("shop", "cart-abc", "cart", (("web", 8080),), endpoints))
    for one in PODS:
        state.put("pods", one)
    return state


class Kernel(FakePrograms):
    """A set in force counts what its sockets do; the counts of others stay as they are."""

    def __init__(self, cgroups: dict[str, int], make_halves: Any) -> None:
        super().__init__()
        self.rows = defaultdict(lambda: np.zeros(1, COUNTS))
        self._cgroups = cgroups
        self._make_halves = make_halves
        self._records: list[dict[str, Any]] = []
        self._sequence = 0
        self.rules = NO_RULES
        self.when_told: Callable[[], object] = lambda: None

    def apply(self, rules: Rules, **_: object) -> None:
        self.when_told()  # sockets do not wait for the agent
        self.rules = rules

    def load(self) -> None:
        """Let each connection do its exchanges once."""
        for both in ends():
            for duration_ns, outcome in EXCHANGES:
                self._sequence += 1
                for half in both:
                    self._end(half, duration_ns, outcome)

    def _end(self, half: Half, duration_ns: int, outcome: Outcome) -> None:
        index, cgroup = self._set_of(half), self._cgroups[half.pod.uid]
        if not index:
            return
        role = Role.SERVER if half.side is RuleSide.LOCAL else Role.CLIENT
        total = self.rows[np.array((cgroup, index, role), COUNTS_KEY).tobytes()]
        if self._is_peer_traffic(half):
            total["classes"][0, ExchangeClass.PEER] += 1
            total["excluded"][0, Excluded.PEER] += 1
            return
        total["outcomes"][0, outcome] += 1
        total["classes"][0, ExchangeClass.PINGPONG] += 1
        total["histogram"][0, 300] += 1
        for place, threshold_ns in enumerate(self.rules.sets[index].thresholds_ns):
            total["within"][0, place] += duration_ns <= threshold_ns
            total["failed_within"][0, place] += duration_ns <= threshold_ns and outcome is not Outcome.OK
        stages = (0, 0, duration_ns, 0) if role is Role.SERVER else (0, duration_ns, 0, 0)
        fields = {"start_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "peer": half.address}
        fields |= {"target_set": index, "cgroup_id": cgroup, "outcome": outcome, "request_seq": self._sequence}
        self._records.append({"role": role, "stages": stages, **fields})

    def _set_of(self, half: Half) -> int:
        server_group, client_group = self.rules.scopes.get(self._cgroups[half.pod.uid], (0, 0))
        group = server_group if half.side is RuleSide.LOCAL else client_group
        addresses = [packed(half.address), ANY_ADDRESS] if half.side is RuleSide.PEER else [ANY_ADDRESS]
        keys = [(address, group, port, half.side) for address in addresses for port in (half.port, ANY_PORT)]
        return next((self.rules.rules[key] for key in keys if group and key in self.rules.rules), 0)

    def _is_peer_traffic(self, half: Half) -> bool:
        server_group, _ = self.rules.scopes[self._cgroups[half.pod.uid]]
        keys = [(packed(half.address), server_group, port, RuleSide.MEMBER) for port in (half.port, ANY_PORT)]
        return any(key in self.rules.rules for key in keys)

    def drain(self, limit: int) -> np.ndarray:
        some, self._records = self._records[:limit], self._records[limit:]
        return self._make_halves(*some).rec if some else np.zeros(0, EXCHANGE)


class Operator(FakeControl):
    """The plan that the planner makes."""

    def __init__(self) -> None:
        super().__init__(peers=Peers(None), remote_join=RemoteJoinPost(FakeDirectory().remote_join))
        self._planner, self._state = Planner(1000, b"k" * 32), cluster()

    def edit(self, document: dict[str, Any]) -> None:
        probes = {("shop", name): probe(name, one) for name, one in (("mine", document), ("neighbour", NEIGHBOUR))}
        self._planner.update(probes, self._state, self._state.take_changes())
        self.current = self._planner.plan_of("n1")


# -- the witness: what each objective has to count, by its plan alone


def belongs(half: Half, target: Target) -> bool:
    ports = next((one.ports for one in target.pods if one.uid == half.pod.uid), None)
    own = ports is not None and (half.port in ports or not ports)
    if (target.role is Perspective.SERVER) == (half.side is RuleSide.LOCAL):
        return own
    dialled = any(one.address == half.address and one.port in (0, half.port) for one in target.endpoints)
    return half.side is RuleSide.PEER and half.pod.uid in target.callers and dialled


def left_out(half: Half, plan: NodePlan) -> bool:
    """Whether both ends are replicas, and some target does not want what they say."""
    return any(
        (end.address, end.port) == (half.address, half.port)
        for target in plan.targets
        for one in target.replicas
        if half.pod.uid in one.pods
        for end in (target.endpoints if one.endpoints is None else one.endpoints)
    )


def judged(plan: NodePlan, objective: PlannedObjective) -> Counter[str]:
    """Good and bad of one `Kernel.load()`."""
    target = next(one for one in plan.targets if one.id == objective.target)
    side = RuleSide.LOCAL if objective.perspective is Perspective.SERVER else RuleSide.PEER
    halves = [
        half
        for both in ends()
        for half in both
        if half.side is side and belongs(half, target) and not left_out(half, plan)
    ]
    threshold_ns = target.thresholds_ns[objective.threshold_index]
    good = sum(
        duration_ns <= threshold_ns and (outcome is Outcome.OK or not objective.errors_count_as_bad)
        for duration_ns, outcome in EXCHANGES
    )
    return Counter(good=good * len(halves), bad=(len(EXCHANGES) - good) * len(halves))


class Witness:
    """Good and bad by (objective's id, hash): ever, and since it came into force the last time."""

    def __init__(self) -> None:
        self.ever: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        self.since: dict[tuple[str, str], Counter[str]] = {}

    def follow(self, plan: NodePlan) -> None:
        self.since = {at: self.since.get(at, Counter()) for at in definitions(plan)}

    def load(self, plan: NodePlan, after: NodePlan) -> None:
        """See one `Kernel.load()`, which counts for what is in force both before and after."""
        for at in definitions(plan).keys() & definitions(after).keys():
            events = judged(plan, definitions(plan)[at])
            self.ever[at] += events
            self.since[at] = self.since[at] + events


def definitions(plan: NodePlan) -> dict[tuple[str, str], PlannedObjective]:
    return {(one.id, one.hash): one for one in plan.objectives}


# -- the agent


class Watcher:
    """Listener: what the live line and the status make of a turn with counts."""

    name = "watcher"

    def take(self, turn: Turn) -> None:
        if turn.counts is not None:
            target_statuses(turn)
            figures(turn, 0)

    def close(self) -> None:
        pass


class Agent:
    """The loop with all that listens to it, turn by turn."""

    def __init__(self, loop: Loop, guard: Guard, operator: Operator, kernel: Kernel) -> None:
        self.operator, self.witness = operator, Witness()
        self._loop, self._guard, self._kernel = loop, guard, kernel
        self._sent = {"metrics": FakeOutbox(), "traces": FakeOutbox()}
        self._exported: dict[Series, Point] = {}
        self._last: dict[Series, Point] = {}
        loop.attachment.follow()
        self.plan = operator.plan()
        self.witness.follow(self.plan)
        config, start = Config(metric_interval_s=0.0), loop.clock.now()
        room = WaitingRoom(identity_wait_s=0.0, join_wait_s=0.0, capacity=1000)
        own = SelfMetrics(self._sent, room, config, standalone=False)
        loop.listeners = (
            SliRows(operator.take, 0.0, operator.peers, start),
            Spans(self._sent["traces"], room, operator.peers, shared_key=False),
            Metrics(self._sent["metrics"], own, config, operator.peers, start=start._replace(unix_ns=1), delta=False),
            Watcher(),
        )

    def turn(self) -> None:
        """Some load, and what the loop does then."""
        self._kernel.load()
        self.witness.load(self.plan, self.plan)
        self._loop.drain()
        self._loop.tick()
        assert not self._guard.failures, self._guard.problems
        self._take_metrics()

    def edit(self, document: dict[str, Any], load_between: bool) -> None:
        """A new plan comes into force; also while the agent is at it, its sockets go on."""
        self.operator.edit(document)
        before, after = self.plan, self.operator.plan()

        def go_on() -> None:
            self._kernel.load()
            self.witness.load(before, after)

        self._kernel.when_told = go_on if load_between else lambda: None
        self.turn()
        self._kernel.when_told = lambda: None
        self.plan = after
        self.witness.follow(after)

    def end(self) -> None:
        self._loop.end()
        for listener in self._loop.listeners:
            listener.close()
        assert not self._guard.failures, self._guard.problems
        self._take_metrics()

    def counted(self) -> dict[tuple[str, str], Counter[str]]:
        """Good and bad by (objective's id, hash), as the report gets them."""
        found: dict[tuple[str, str], Counter[str]] = defaultdict(Counter)
        for row in self.operator.rows:
            found[f"{row.namespace}/{row.probe}/{row.objective}", row.hash] += Counter(good=row.good, bad=row.bad)
        return found

    def exported(self) -> dict[str, Counter[str]]:
        """Good and bad by objective's id, as the collector gets them."""
        found: dict[str, Counter[str]] = defaultdict(Counter)
        for series, point in self._last.items():
            if series.metric == "latencyprobe.slo.events":
                of = {key.removeprefix("latencyprobe."): value for key, value in series.labels}
                found[f"shop/{of['probe']}/{of['objective']}"][of["outcome"]] += point.value
        return found

    def _take_metrics(self) -> None:
        """Look at every export: one may follow the other within a turn, before an edit and after it."""
        for body in self._sent["metrics"].bodies:
            now = points([body])
            for series in now.keys() & self._exported.keys():
                before, after = self._exported[series], now[series]
                assert after.value >= before.value or after.start_unix_ns > before.start_unix_ns, (
                    series,
                    before,
                    after,
                )
            self._exported |= now
            self._last = now
        self._sent["metrics"].bodies.clear()


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_halves: Any) -> Iterator[Agent]:
    """An agent of node n1 that measures both LatencyProbes."""
    (tmp_path / "cgroup.controllers").touch()
    cgroups = {}
    for one in PODS:
        folder = tmp_path / "kubepods" / f"pod{one.uid}" / one.containers[0].id
        folder.mkdir(parents=True)
        cgroups[one.uid] = folder.stat().st_ino
    kernel, operator = Kernel(cgroups, make_halves), Operator()
    operator.edit(SPEC)
    monkeypatch.setattr(EvidencePrograms, "beside", lambda *_: FakePrograms())
    guard = Guard()
    with Loop(kernel, Config(cgroup_root=tmp_path), operator, sampling=True, guard=guard) as loop:
        yield Agent(loop, guard, operator, kernel)


def test_every_field_of_the_spec_has_an_edit() -> None:
    assert set(fields(msgspec.inspect.type_info(spec.LatencyProbeSpec))) == EDITS.keys()


@pytest.mark.parametrize("load_between", [False, True], ids=["between turns", "under load"])
@pytest.mark.parametrize("field", EDITS)
def test_an_edit_under_load_lets_every_objective_count_what_is_its_own(
    agent: Agent, field: str, load_between: bool
) -> None:
    edited = deepcopy(SPEC)
    EDITS[field](edited)
    before, redefined = agent.plan, set()
    agent.turn()
    for document in (edited, SPEC, edited):
        earlier = definitions(agent.plan).keys()
        agent.edit(document, load_between)
        assert (agent.plan.digest == before.digest) == (document is SPEC), "it changes the plan"
        redefined |= earlier ^ definitions(agent.plan).keys() if load_between else set()
        for _ in range(2):
            agent.turn()
            counted, exported = agent.counted(), agent.exported()
            certain = agent.witness.since.keys() - redefined  # of others a moment is neither before nor after
            assert {at: counted[at] for at in certain} == {at: agent.witness.ever[at] for at in certain}
            assert {at: exported[at[0]] for at in certain} == {at: agent.witness.since[at] for at in certain}
            assert exported.keys() <= {objective.id for objective in agent.plan.objectives}
            assert {f"shop/neighbour/{name}" for name in ("near", "far")} <= {name for name, _ in certain}
    agent.end()
    assert all(agent.witness.ever[at] == agent.counted()[at] for at in agent.witness.ever.keys() - redefined)
