"""Turns become metric requests, once per interval; series of owners that have ended end with their last counts."""

import resource
from collections import Counter
from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import Identity, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import FakePeers, Peers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, Counts, Snapshot
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS, Outcome, Role
from latencyprobe_agent.vocabulary.undelivered import Undelivered
from tests.support.otlp import metrics, points

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
PLAN = NodePlan("host", 1, "", (ECHO,), (), host=True)
RULES = Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")})
AGENT = "latencyprobe-agent"
SENT_AGAIN = "latencyprobe.tcp.retransmits"


@pytest.fixture
def outbox() -> FakeOutbox:
    return FakeOutbox()


def make_listener(outbox: FakeOutbox, *, delta: bool = False, peers: Peers | None = None, **bounds: int) -> Metrics:
    config = Config(metric_interval_s=1.0, **bounds)
    own = SelfMetrics({"metrics": outbox}, None, config, standalone=True)
    return Metrics(outbox, own, config, peers, start=Now(0, 0), delta=delta)


@pytest.fixture
def listener(outbox: FakeOutbox) -> Metrics:
    return make_listener(outbox)


def services(outbox: FakeOutbox) -> list[set[str]]:
    """Return the service names in each request."""
    return [{whose["service.name"] for whose, _ in metrics([body])} for body in outbox.bodies]


def snapshot(**events: int) -> Snapshot:
    """Events by owner: `_7=3`."""
    keys, values = np.zeros(len(events), COUNTS_KEY), np.zeros(len(events), COUNTS)
    keys["target_set"], keys["role"] = 1, Role.SERVER
    keys["owner"] = [int(owner[1:]) for owner in events]
    values["outcomes"][:, Outcome.OK] = values["classes"][:, 0] = list(events.values())
    return Snapshot(Counts(keys, values), Counts(keys, values), keys[:0], {})


def test_an_owner_that_has_ended_is_exported_until_its_last_counts_are_out(
    listener: Metrics, outbox: FakeOutbox, make_turn: Any
) -> None:
    owners = FakeResources(by_process=True)
    in_force = InForce(PLAN, RULES, owners)
    for second, counts in enumerate([snapshot(_7=3, _8=1), snapshot(_7=5, _8=1), snapshot(_7=5, _8=1)], start=1):
        listener.take(make_turn(in_force, at_s=second, counts=counts, stats=AgentStats()))
        owners.gone = {7}
    assert services(outbox) == [{"service-7", "service-8", AGENT}] * 2 + [{"service-8", AGENT}]


def resent(owner: int, segments: int, target_set: int = 1) -> Gained:
    """What the kernel counted of an owner that has no exchange."""
    values = np.zeros(1, EVIDENCE_COUNTS)
    values["segs_unrecorded"] = segments
    return Gained(RETRANSMITS, np.array([(owner, target_set, Role.SERVER)], COUNTS_KEY), values)


def segments(outbox: FakeOutbox) -> list[dict[str, int]]:
    """Return what was sent again by service, of each request."""
    found = []
    for body in outbox.bodies:
        of_resource = {series.resource: point.value for series, point in points([body]).items() if SENT_AGAIN in series}
        found.append({dict(resource)["service.name"]: value for resource, value in of_resource.items()})
    return found


@pytest.mark.parametrize("delta", [False, True])
def test_an_owner_without_exchanges_ends_likewise_and_its_number_begins_anew(
    outbox: FakeOutbox, make_turn: Any, delta: bool
) -> None:
    owners = FakeResources(by_process=True)
    listener, in_force = make_listener(outbox, delta=delta), InForce(PLAN, RULES, owners)
    for second, gained in enumerate([(resent(9, 4),), (), (), (resent(9, 5),)], start=1):
        turn = make_turn(in_force, at_s=second, counts=snapshot(_7=1), stats=AgentStats(), gained=gained)
        listener.take(turn)
        owners.gone = {9} if second >= 2 else set()
    still = 0 if delta else 4
    assert [{"service-9": 4}, {"service-9": still}, {}, {"service-9": 5}] == segments(outbox)


@pytest.mark.parametrize("delta", [False, True])
def test_what_is_known_late_of_an_owner_that_has_ended_is_exported_once_more(
    outbox: FakeOutbox, make_turn: Any, delta: bool
) -> None:
    owners = FakeResources(by_process=True)
    listener, in_force = make_listener(outbox, delta=delta), InForce(PLAN, RULES, owners)
    owners.gone = {7}
    for second, gained in enumerate([(resent(7, 4),), (), (resent(7, 5),), ()], start=1):
        turn = make_turn(in_force, at_s=second, counts=snapshot(_7=1), stats=AgentStats(), gained=gained)
        listener.take(turn)
    assert [{"service-7": 4}, {}, {"service-7": 5 if delta else 9}, {}] == segments(outbox)


def test_who_has_ended_makes_room_though_it_never_had_an_exchange(outbox: FakeOutbox, make_turn: Any) -> None:
    owners = FakeResources(by_process=True)
    listener, in_force = make_listener(outbox, series=1), InForce(PLAN, RULES, owners)
    for second, owner in enumerate([9, None, 10, 11, None, None, 10], start=1):
        gained = (resent(owner, 1),) if owner else ()
        turn = make_turn(in_force, at_s=second, counts=snapshot(_7=1), stats=AgentStats(), gained=gained)
        owners.gone = {9} if second >= 2 else set()
        listener.take(turn)
    assert {"service-9": 1} == segments(outbox)[0]
    assert {"service-10": 2, "other": 1} == segments(outbox)[-1], "`other` stays"


CART = Target("e/p/cart", "e", "p", "", "cart", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)


@pytest.mark.parametrize("delta", [False, True])
@pytest.mark.parametrize("last", [3, 20])
def test_a_number_that_is_used_again_tells_its_new_target_nothing_of_the_old_one(
    outbox: FakeOutbox, make_turn: Any, delta: bool, last: int
) -> None:
    """The former target goes on under another number: its totals begin anew, and say so, once they have been told."""
    owners, again = FakeResources(by_process=True), TargetSet((CART.id,), (), 0, POLICY, "e/p")
    kept = TargetSet((ECHO.id,), (5,), 0, POLICY, "d/p")
    before = InForce(PLAN, Rules(sets={**RULES.sets, 2: kept}), owners)
    plan = NodePlan("host", 2, "", (ECHO, CART), (), host=True)
    after = InForce(plan, Rules(sets={1: again, 2: kept}), owners)
    listener = make_listener(outbox, delta=delta)
    for at_s, in_force, events, gained in [
        (1.0, before, 3, (resent(7, 4), resent(7, 1, target_set=2))),
        (1.5, before, 4, (resent(7, 2),)),
        (2.0, after, 4, ()),
        (3.0, after, 9, (resent(7, 8), resent(7, last, target_set=2))),
    ]:
        counts = {"counts": snapshot(_7=events), "stats": AgentStats()}
        listener.take(make_turn(in_force, at_s=at_s, gained=gained, **counts))
    told = [
        {(dict(at.labels)["latencyprobe.target"], point.value) for at, point in points([body]).items() if metric in at}
        for metric in (SENT_AGAIN, "latencyprobe.exchanges")
        for body in outbox.bodies
    ]
    assert [{("echo", 5)}, {("echo", 2 if delta else 7)}, {("echo", last), ("cart", 8)}] == told[:3]
    assert [{("echo", 3)}, {("echo", 1 if delta else 4)}, {("cart", 5)}] == told[3:]
    newest = points(outbox.bodies[-1:]).items()
    starts = {dict(at.labels)["latencyprobe.target"]: point.start_unix_ns for at, point in newest if SENT_AGAIN in at}
    assert starts["echo"] == 10**18 + 2 * 10**9


def test_who_waits_for_a_peer_s_name_waits_on_when_another_number_is_used_again(
    outbox: FakeOutbox, make_turn: Any
) -> None:
    """Of the number itself nobody waits on: what waits would count for its new target."""
    shop = Target("f/p/shop", "f", "p", "", "shop", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
    kept = TargetSet((shop.id,), (), 0, POLICY, "f/p")
    again = TargetSet((CART.id,), (), 0, POLICY, "e/p")
    plan, owners, peers = NodePlan("n1", 1, "", (ECHO, CART, shop), ()), FakeResources(by_process=False), FakePeers()
    before = InForce(plan, Rules(sets={**RULES.sets, 2: kept}), owners)
    after = InForce(plan, Rules(sets={1: again, 2: kept}), owners)
    listener, counts = make_listener(outbox, peers=peers), {"counts": snapshot(_7=1), "stats": AgentStats()}
    served = [{"role": Role.SERVER, "cgroup_id": 7, "target_set": number} for number in (1, 2)]
    listener.take(make_turn(before, *served, at_s=0.1, **counts))
    listener.take(make_turn(after, at_s=0.2, **counts))
    peers.identities["10.0.0.2"] = Identity("10.0.0.2", service="web")
    listener.take(make_turn(after, at_s=1.2, **counts))
    told = [
        (labels["latencyprobe.target"], labels["service.peer.name"])
        for body in outbox.bodies
        for at in points([body])
        if "latencyprobe.peer.duration" in at
        for labels in [dict(at.labels)]
    ]
    assert [("echo", "unresolved"), ("shop", "web")] == told


def gained(outbox: FakeOutbox, metric: str) -> dict[tuple[str, str], float]:
    """Return what a metric has gained over all requests by namespace and service, as who reads differences adds it
    up."""
    found, last = Counter[tuple[str, str]](), dict[Any, Any]()
    for body in outbox.bodies:
        for at, point in points([body]).items():
            if metric in at:
                before = last.get(at)
                anew = before is None or point.start_unix_ns > before.start_unix_ns
                where = dict(at.labels)["latencyprobe.probe.namespace"], dict(at.resource)["service.name"]
                found[where] += point.value - (0 if anew else before.value)
                last[at] = point
    return found


@pytest.mark.parametrize("delta", [False, True])
def test_who_fills_the_room_for_series_makes_some_for_others_and_loses_no_count(
    outbox: FakeOutbox, make_turn: Any, caplog: pytest.LogCaptureFixture, delta: bool
) -> None:
    evil = [Target(f"evil/p/t{i}", "evil", "p", "", f"t{i}", Perspective.SERVER, (), 0, POLICY) for i in range(12)]
    plan = NodePlan("host", 1, "", (*evil, CART), (), host=True)
    of = {at: TargetSet((one.id,), (), 0, POLICY, f"{one.namespace}/p") for at, one in enumerate(plan.targets, 1)}
    in_force = InForce(plan, Rules(sets=of), FakeResources(by_process=True))
    listener = make_listener(outbox, delta=delta, node_series=40)
    served = {"role": Role.SERVER, "writer_tgid": 7, "stages": (1, 2, 3, 4)}
    for second in range(1, 9):
        numbers = range(1, 14 if second >= 3 else 13)
        rows = [{**served, "target_set": number} for number in numbers]
        listener.take(make_turn(in_force, *rows, at_s=second, counts=snapshot(_7=second), stats=AgentStats()))
    found = gained(outbox, "latencyprobe.stage.duration")
    assert 4 * 6 == found["e", "service-7"], "each stage of each RPC under its own container"
    assert 4 * 12 * 8 == found["evil", "service-7"] + found["evil", "other"]
    assert 4 * 10 * 3 < found["evil", "service-7"] < 4 * 10 * 8
    assert 8 == gained(outbox, "latencyprobe.exchanges")["evil", "service-7"]
    assert 1 == sum("namespaces evil make room" in record.getMessage() for record in caplog.records)


def test_between_two_intervals_nothing_is_exported_and_at_the_end_everything(
    listener: Metrics, outbox: FakeOutbox, make_turn: Any
) -> None:
    in_force = InForce(PLAN, RULES, FakeResources(by_process=True))
    listener.take(make_turn(in_force, {"role": Role.SERVER, "writer_tgid": 7}, at_s=0.1))
    listener.take(make_turn(in_force, at_s=0.5, counts=snapshot(_7=1), stats=AgentStats()))
    assert outbox.bodies == []
    listener.close()
    assert services(outbox) == [{"service-7", AGENT}]


def test_a_part_that_fails_is_counted_by_its_name(listener: Metrics, outbox: FakeOutbox, make_turn: Any) -> None:
    stats = AgentStats(failures={"spans": 3})
    listener.take(
        make_turn(InForce(PLAN, RULES, FakeResources(by_process=True)), at_s=1, counts=snapshot(), stats=stats)
    )
    found = {series[1:]: point.value for series, point in points(outbox.bodies).items()}
    assert found["latencyprobe.agent.failures", (("latencyprobe.part", "spans"),)] == 3


def test_where_no_file_can_be_opened_metrics_come_without_the_agents_memory(
    listener: Metrics, outbox: FakeOutbox, make_turn: Any
) -> None:
    in_force = InForce(PLAN, RULES, FakeResources(by_process=True))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        listener.take(make_turn(in_force, at_s=1, counts=snapshot(_7=1), stats=AgentStats()))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    listener.take(make_turn(in_force, at_s=2, counts=snapshot(_7=2), stats=AgentStats()))
    told = [{metric.name for _, metric in metrics([body])} for body in outbox.bodies]
    assert [{"process.memory.usage"}, set()] == [told[1] - told[0], told[0] - told[1]]


def test_rows_that_wait_or_that_nobody_gets_are_told(outbox: FakeOutbox, make_turn: Any) -> None:
    left = Undelivered(7, {"too_old": 2, "refused": 1})
    config = Config(metric_interval_s=1.0)
    own = SelfMetrics({"metrics": outbox}, None, config, standalone=False, undelivered=lambda: left)
    listener = Metrics(outbox, own, config, None, start=Now(0, 0), delta=False)
    in_force = InForce(PLAN, RULES, FakeResources(by_process=True))
    listener.take(make_turn(in_force, at_s=1, counts=snapshot(), stats=AgentStats()))
    found = {series[1:]: point.value for series, point in points(outbox.bodies).items()}
    waiting = [metric.gauge for _, metric in metrics(outbox.bodies) if metric.name.endswith("sli_rows.waiting")]
    assert [7] == [gauge.data_points[0].as_int for gauge in waiting]
    for reason, count in left.dropped.items():
        assert found["latencyprobe.agent.sli_rows.dropped", (("latencyprobe.reason", reason),)] == count
