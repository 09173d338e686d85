from typing import Any

import msgspec
import numpy as np
import pytest

from latencyprobe import exclusions
from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.measure.counts import COUNTS, NO_COUNTS, Counts
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.telemetry.metric_points import count_points, objective_points, record_points
from latencyprobe_agent.telemetry.owner_cap import OwnerCap
from latencyprobe_agent.telemetry.points import Histogram, Point
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER, RecordHistograms
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.telemetry.slo_events import SloEvents
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, ExchangeClass, Excluded, Outcome, Role

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (5, 25), 0, POLICY)
ALL = Target("shop/q/all", "shop", "q", "uid2", "all", Perspective.SERVER, (10,), 0, POLICY)
STRICT = PlannedObjective("shop/p/strict", CART.id, "strict", Perspective.SERVER, 1, True, "h1", "99", "28d", 100)
LENIENT = PlannedObjective("shop/q/lenient", ALL.id, "lenient", Perspective.SERVER, 0, False, "h2", "99", "28d", 100)
PLAN = NodePlan("n1", 1, "", (CART, ALL), (STRICT, LENIENT))
SETS = {
    1: TargetSet((CART.id, ALL.id), (5, 10, 25), 0, POLICY, "shop/p"),
    2: TargetSet((CART.id,), (5, 25), 0, POLICY, "shop/p"),
}


def counts(*rows: dict[str, Any]) -> Counts:
    keys, values = np.zeros(len(rows), COUNTS_KEY), np.zeros(len(rows), COUNTS)
    for key, value, row in zip(keys, values, rows, strict=True):
        key["owner"], key["target_set"], key["role"] = row.get("owner", 7), row.get("set", 1), Role.SERVER
        for name in ("within", "failed_within"):
            value[name][: len(row.get(name, ()))] = row.get(name, ())
        for name in ("outcomes", "classes", "excluded"):
            for index, count in row.get(name, {}).items():
                value[name][index] = count
        value["histogram"][3] = sum(row.get("outcomes", {}).values())
        value["duration_sum_ns"] = row.get("sum", 0)
    return Counts(keys, values)


def points_of(read: Counts, plan: NodePlan = PLAN, sets: dict[int, TargetSet] = SETS) -> list[Point]:
    slo = SloEvents()
    slo.follow(plan, Rules(sets=sets), NO_COUNTS, 0)
    return list(count_points(read, plan, sets, slo, {}))


def by_series(points: list[Point]) -> dict[tuple[str, ...], Any]:
    """Values by metric and labels; of one namespace, so without it."""
    kept = [(point, [str(v) for name, v in point.labels if name is not names.PROBE_NAMESPACE]) for point in points]
    return {(point.metric.name, *labels): point.value for point, labels in kept}


EVENTS = counts(
    {
        "within": (60, 70, 90),
        "failed_within": (1, 2, 3),
        "outcomes": {Outcome.OK: 95, Outcome.RESET: 5},
        "classes": {ExchangeClass.PINGPONG: 100, ExchangeClass.SETUP: 4},
        "excluded": {Excluded.SETUP: 4},
        "sum": 2_000_000_000,
    }
)


def test_an_objective_tells_what_it_asks_for() -> None:
    found = by_series(list(objective_points("agent", PLAN)))
    of_strict = {name: value for (name, *labels), value in found.items() if labels == ["p", "cart", "strict", "server"]}
    assert of_strict == {
        "latencyprobe.slo.goal": 0.99,
        "latencyprobe.slo.threshold": 25e-9,
        "latencyprobe.slo.window": 28 * 86400,
    }
    assert found["latencyprobe.slo.threshold", "q", "all", "lenient", "server"] == 10e-9
    later = msgspec.structs.replace(PLAN, objectives=(msgspec.structs.replace(STRICT, window="14d"),))
    assert {names.SLO_GOAL, names.SLO_THRESHOLD} == {point.metric for point in objective_points("agent", later)}
    assert {"agent"} == {point.observed for point in objective_points("agent", PLAN)}


def test_every_target_of_a_set_gets_its_points() -> None:
    found = by_series(points_of(EVENTS))
    for probe, target in (("p", "cart"), ("q", "all")):
        duration = found["latencyprobe.server.duration", probe, target]
        assert isinstance(duration, Histogram)
        assert (int(duration.counts.sum()), duration.sum_s) == (100, 2.0)
        assert found["latencyprobe.exchanges", probe, target, "server", "pingpong"] == 100
        assert found["latencyprobe.exchanges", probe, target, "server", "setup"] == 4
        assert found["latencyprobe.exchange.excluded", probe, target, "server", "setup"] == 4
        assert found["latencyprobe.exchange.failures", probe, target, "server", "ECONNRESET"] == 5


def test_equal_names_of_two_namespaces_are_series_of_their_own_whoever_the_owner_is() -> None:
    """The resource of one that nobody knows has no namespace."""
    elsewhere = msgspec.structs.replace(CART, id="bank/p/cart", namespace="bank")
    plan = NodePlan("n1", 1, "", (CART, elsewhere), ())
    sets = {number: TargetSet((t.id,), (), 0, POLICY, "") for number, t in enumerate(plan.targets, 1)}
    read = counts(*({"set": number, "outcomes": {Outcome.OK: number}} for number in sets))
    series = [(point.metric.name, point.labels) for point in points_of(read, plan, sets)]
    assert len(series) == len(set(series)) > 0
    assert {dict(labels)[names.PROBE_NAMESPACE] for _, labels in series} == {"shop", "bank"}


def test_each_reason_and_each_error_is_a_point_of_its_own() -> None:
    reasons = [reason for reason in Excluded if reason is not Excluded.NONE]
    errors = [outcome for outcome in Outcome if outcome is not Outcome.OK]
    each = counts({"excluded": dict.fromkeys(reasons, 7), "outcomes": dict.fromkeys(errors, 9)})
    found = by_series(points_of(each))
    told = {labels[-1]: n for (metric, *labels), n in found.items() if metric == names.EXCLUDED.name}
    assert told == dict.fromkeys(exclusions.BY_NAME, 7)
    assert found["latencyprobe.exchange.failures", "p", "cart", "server", "unanswered"] == 9
    failed = {labels[-1] for metric, *labels in found if metric == names.FAILURES.name}
    assert len(failed) == len(errors)


def test_an_objective_finds_its_threshold_in_the_set_and_judges_errors_as_it_says() -> None:
    found = by_series(points_of(EVENTS))
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "good"] == 90 - 3
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "bad"] == 13
    assert found["latencyprobe.slo.events", "q", "all", "lenient", "server", "h2", "good"] == 70
    assert found["latencyprobe.slo.events", "q", "all", "lenient", "server", "h2", "bad"] == 30


def test_a_target_in_two_sets_is_their_sum() -> None:
    both = counts(
        {"set": 1, "within": (1, 1, 2), "outcomes": {Outcome.OK: 3}},
        {"set": 2, "within": (1, 4), "outcomes": {Outcome.OK: 5}},
    )
    found = by_series(points_of(both))
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "good"] == 6
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "bad"] == 2


def test_counts_of_a_set_from_before_an_edit_of_the_threshold_do_not_count_for_the_objective() -> None:
    after = {3: TargetSet((CART.id,), (5, 25), 0, POLICY, "shop/p"), 4: TargetSet((CART.id,), (5, 10), 0, POLICY, "")}
    both = counts(
        {"set": 3, "within": (1, 2), "outcomes": {Outcome.OK: 3}},
        {"set": 4, "within": (4, 10), "outcomes": {Outcome.OK: 50}},
    )
    found = by_series(points_of(both, sets=after))
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "good"] == 2
    assert found["latencyprobe.slo.events", "p", "cart", "strict", "server", "h1", "bad"] == 1
    durations = found["latencyprobe.server.duration", "p", "cart"]
    assert int(durations.counts.sum()) == 53, "the target's exchanges are all of them"


def test_owners_above_the_cap_share_one_series() -> None:
    many = counts(*({"owner": owner, "set": 2, "outcomes": {Outcome.OK: 1}} for owner in range(10)))
    points = [p for p in points_of(OwnerCap(4, 2048).fold(many)) if p.metric is names.SERVER_DURATION]
    assert [point.observed for point in points] == [0, 1, 2, 3, OTHER_OWNER]
    assert sum(int(p.value.counts.sum()) for p in points if isinstance(p.value, Histogram)) == 10


@pytest.mark.parametrize("plan", [NodePlan("n1", 2, "", (), ()), NodePlan("n1", 2, "", (ALL,), ())])
def test_targets_that_have_left_the_plan_have_no_points(plan: NodePlan) -> None:
    points = points_of(EVENTS, plan)
    assert {"cart"}.isdisjoint({value for point in points for _, value in point.labels})


def test_pairs_are_counted_beside_their_network_time(make_halves: Any) -> None:
    histograms = RecordHistograms(SeriesCap(200, 8192), by_process=False, identity_wait_s=2.0)
    halves = make_halves({"role": Role.CLIENT, "stages": (0, 9, 0, 0)}, {"role": Role.SERVER})
    histograms.add_pairs(LocalJoin().join(halves), names.LOCAL)
    histograms.add_pairs(LocalJoin().join(halves), names.REMOTE)
    found = by_series(list(record_points(histograms, PLAN, SETS, {})))
    assert found["latencyprobe.pairs", "p", "cart", "client", "local"] == 1
    assert found["latencyprobe.pairs", "q", "all", "client", "local"] == 1
    assert found["latencyprobe.pairs", "q", "all", "client", "remote"] == 1
