"""The rules of one objective: what Prometheus records of its windows, and when it alerts. Read by prometheus.py. Pure.

The same table, factors and bounds as our own evaluation (`slo.windows`, `slo.evaluate`). Two series are recorded for
each window: events by outcome, and the burn rate. Events are `increase()` over the counters of all containers: it bears
counters that start from 0 again, as they do when a container or an agent restarts or the definition is edited.
"""

from collections.abc import Iterator
from typing import NamedTuple

from latencyprobe import slo_events
from latencyprobe.rules import counters, promql, wording
from latencyprobe.slo.evaluate import RISKY_BELOW, events_needed
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import WINDOW_S, Alert, Severity, alerts
from latencyprobe.spec import goal_fraction

BURN_RATE = "LatencyProbeBurnRate"
BUDGET = "LatencyProbeBudget"
INTERVAL_S = 60
BUDGET_INTERVAL_S = 120  # its window holds weeks of samples, and a budget does not change within a minute


class Recording(NamedTuple):
    """A recording rule: `record` is the name of its series."""

    record: str
    expr: str
    labels: dict[str, str]


class Alerting(NamedTuple):
    """An alerting rule."""

    alert: str
    expr: str
    labels: dict[str, str]
    annotations: dict[str, str]


class Group(NamedTuple):
    """Rules that Prometheus evaluates in this order, each `interval_s`."""

    name: str
    interval_s: int
    rules: tuple[Recording | Alerting, ...]


class ObjectiveRules(NamedTuple):
    """All rules of an objective. `left_out`: why rows of the table have none, in words."""

    groups: tuple[Group, ...]
    left_out: tuple[str, ...]


def objective_rules(objective: Objective) -> ObjectiveRules:
    """Return the rules of an objective. A row that can never fire has none; rows that its window skips neither."""
    rows = alerts(objective.window, goal_fraction(objective.goal))
    kept = [row for row in rows if not row.unreachable]
    name = ".".join(("latencyprobe", *objective.key[:2], objective.key.objective))
    groups = [Group(f"{name}.budget", BUDGET_INTERVAL_S, tuple(_budget(objective)))]
    if kept:
        groups.insert(0, Group(name, INTERVAL_S, tuple(_burning(objective, kept))))
    return ObjectiveRules(tuple(groups), tuple(wording.unreachable(objective, row) for row in rows if row.unreachable))


def _burning(objective: Objective, rows: list[Alert]) -> Iterator[Recording | Alerting]:
    for window_s in sorted({window_s for row in rows for window_s in (row.long_s, row.short_s)}):
        yield from _recorded(objective, window_s)
    for row in rows:
        factor = promql.decimal(row.factor)
        expr = (
            f"{_burn_rate(objective, row.long_s)} > {factor}\n"
            f"and {_burn_rate(objective, row.short_s)} > {factor}\n"
            f"and {_enough(objective, row.long_s, objective.min_events)}"
        )
        labels = _labels(objective, row.severity, row.long_s)
        yield Alerting(BURN_RATE, expr, labels, wording.burning(objective, row))


def _budget(objective: Objective) -> Iterator[Recording | Alerting]:
    window_s = WINDOW_S[objective.window]
    needed = events_needed(goal_fraction(objective.goal), objective.min_events)
    yield from _recorded(objective, window_s)
    expr = (
        f"1 - {_burn_rate(objective, window_s)} < {promql.decimal(RISKY_BELOW)}\n"
        f"and {_enough(objective, window_s, needed)}"
    )
    yield Alerting(BUDGET, expr, _labels(objective, Severity.TICKET, window_s), wording.nearly_spent(objective))


def _recorded(objective: Objective, window_s: int) -> Iterator[Recording]:
    """Yield what is recorded of a window: the events by outcome, and the burn rate; nothing where there are none."""
    labels = counters.identity(objective)
    window = promql.duration(window_s)
    by_outcome = f"sum by ({counters.OUTCOME}) (increase({counters.total(objective)}[{window}]))"
    yield Recording(_events_name(window_s), by_outcome, labels)
    bad = promql.selector(_events_name(window_s), labels | {counters.OUTCOME: slo_events.BAD})
    ratio = f"{_sum(bad)}\n/ ({_sum(_events(objective, window_s))} > 0)"
    budget = promql.decimal(1 - goal_fraction(objective.goal))
    yield Recording(_burn_rate_name(window_s), f"{ratio}\n/ {budget}", labels)


def _enough(objective: Objective, window_s: int, needed: int) -> str:
    return f"{_sum(_events(objective, window_s))} >= {needed}"


def _sum(events: str) -> str:
    return f"sum without ({counters.OUTCOME}) ({events})"


def _events(objective: Objective, window_s: int) -> str:
    return promql.selector(_events_name(window_s), counters.identity(objective))


def _burn_rate(objective: Objective, window_s: int) -> str:
    return promql.selector(_burn_rate_name(window_s), counters.identity(objective))


def _events_name(window_s: int) -> str:
    return f"objective:latencyprobe_slo_events:increase{promql.duration(window_s)}"


def _burn_rate_name(window_s: int) -> str:
    return f"objective:latencyprobe_slo_burn_rate:increase{promql.duration(window_s)}"


def _labels(objective: Objective, severity: Severity, window_s: int) -> dict[str, str]:
    return {"severity": str(severity), "window": promql.duration(window_s), **counters.identity(objective)}
