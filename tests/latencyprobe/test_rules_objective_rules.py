"""rules/objective_rules.py: a rule for each row of the table that can fire, and what these need recorded."""

from fractions import Fraction

import pytest

from latencyprobe.plan import Role
from latencyprobe.rules import promql
from latencyprobe.rules.objective_rules import BUDGET, BURN_RATE, Alerting, ObjectiveRules, Recording, objective_rules
from latencyprobe.slo.evaluate import windows_needed
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import WINDOW_S, alerts
from latencyprobe.spec import goal_fraction


def objective(goal: str = "99.9", window: str = "28d", role: Role = Role.SERVER, min_events: int = 250) -> Objective:
    key = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", role)
    return Objective(key, "cart", 25_000_000, goal, window, min_events, errors_count_as_bad=True)


def alerting(rules: ObjectiveRules) -> list[Alerting]:
    return [rule for group in rules.groups for rule in group.rules if isinstance(rule, Alerting)]


def recorded(rules: ObjectiveRules) -> list[str]:
    return [rule.record for group in rules.groups for rule in group.rules if isinstance(rule, Recording)]


@pytest.mark.parametrize("goal", ["90", "99", "99.9", "99.99"])
@pytest.mark.parametrize("window", WINDOW_S)
def test_every_row_of_our_table_has_an_alert_with_its_factor_or_a_reason_why_not(goal: str, window: str) -> None:
    rows = alerts(window, goal_fraction(goal))
    rules = objective_rules(objective(goal, window))
    burning = [rule for rule in alerting(rules) if rule.alert == BURN_RATE]
    expected = [(str(row.severity), promql.duration(row.long_s)) for row in rows if not row.unreachable]
    assert expected == [(rule.labels["severity"], rule.labels["window"]) for rule in burning]
    assert sum(row.unreachable for row in rows) == len(rules.left_out)
    for row, rule in zip((row for row in rows if not row.unreachable), burning, strict=True):
        long, short, enough = rule.expr.split("\nand ")
        for line, window_s in ((long, row.long_s), (short, row.short_s)):
            assert f":increase{promql.duration(window_s)}{{" in line
            assert row.factor == Fraction(line.rpartition(" > ")[2])
        assert enough.endswith(" >= 250")


def test_each_window_that_is_needed_is_recorded_once() -> None:
    windows = [*sorted(windows_needed(objective())), WINDOW_S["28d"]]
    names = [
        f"objective:latencyprobe_slo_{what}:increase{promql.duration(window_s)}"
        for window_s in windows
        for what in ("events", "burn_rate")
    ]
    assert names == recorded(objective_rules(objective()))


def test_windows_of_rows_that_cannot_fire_are_not_recorded() -> None:
    assert not [name for name in recorded(objective_rules(objective("90", "28d"))) if name.endswith("increase5m")]


def test_an_objective_of_a_day_has_its_budget_alone() -> None:
    rules = objective_rules(objective(window="1d"))
    assert ["latencyprobe.shop.checkout.fast.budget"] == [group.name for group in rules.groups]
    assert [BUDGET] == [rule.alert for rule in alerting(rules)]


def test_the_budget_needs_as_many_events_as_a_state_does() -> None:
    (budget,) = (rule for rule in alerting(objective_rules(objective("99.9"))) if rule.alert == BUDGET)
    assert budget.expr.endswith(" >= 1000")
    assert "< 0.25\n" in budget.expr
    assert "ticket" == budget.labels["severity"]


def test_labels_say_whose_alert_it_is() -> None:
    labels = alerting(objective_rules(objective(role=Role.CLIENT)))[0].labels
    identity = {
        "namespace": "shop",
        "probe": "checkout",
        "target": "cart",
        "objective": "fast",
        "perspective": "client",
    }
    assert {"severity": "page", "window": "1h"} | identity == labels


def test_a_row_that_can_never_fire_says_why_in_words() -> None:
    (why,) = objective_rules(objective("90", "28d")).left_out
    assert (
        "shop/checkout/fast: no rule for page, 1h and 5m: it needs a burn rate above 14.4, and with a goal of 90 % "
        "there is none above 10" == why
    )


def test_annotations_are_plain_words_with_the_command_that_shows_more() -> None:
    page = alerting(objective_rules(objective()))[0].annotations
    assert page["summary"].startswith(
        "shop/checkout/fast: bad RPCs spend the error budget more than 14.4 times as fast"
    )
    assert "latencyprobe report -n shop;" in page["description"]
    assert page["description"].endswith("latencyprobe slow -n shop --target cart")
