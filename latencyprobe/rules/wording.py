"""What alerts say to the person who is woken by them: in plain words, with the command that shows more. Pure."""

from fractions import Fraction

from latencyprobe.rules import promql
from latencyprobe.slo.evaluate import RISKY_BELOW
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import WINDOW_S, Alert
from latencyprobe.spec import goal_fraction

_UNITS_NS = (("m", 60_000_000_000), ("s", 1_000_000_000), ("ms", 1_000_000), ("us", 1_000), ("ns", 1))


def goal(objective: Objective) -> str:
    """Return what the objective asks for: `99.9 % of RPCs good over 28d; good: at most 25ms, and no error`."""
    good = f"at most {threshold(objective)}" + (", and no error" if objective.errors_count_as_bad else "")
    side = str(objective.key.perspective).lower()
    return f"{objective.goal} % of RPCs good over {objective.window}, at the {side}; good: {good}"


def threshold(objective: Objective) -> str:
    """Return its threshold as a spec writes it."""
    unit, unit_ns = next(entry for entry in _UNITS_NS if objective.threshold_ns % entry[1] == 0)
    return f"{objective.threshold_ns // unit_ns}{unit}"


def described(objective: Objective) -> str:
    """Return what the objective is, and where to see more: for documents whose alerts are worded elsewhere."""
    return f"{_name(objective)}: {goal(objective)}. {_more(objective)}"


def burning(objective: Objective, alert: Alert) -> dict[str, str]:
    """Return the annotations of a burn-rate alert. Its value is the burn rate of the long window."""
    long, short, factor = promql.duration(alert.long_s), promql.duration(alert.short_s), promql.decimal(alert.factor)
    whole = _days(Fraction(WINDOW_S[objective.window]) / alert.factor)
    return {
        "summary": f"{_name(objective)}: bad RPCs spend the error budget more than {factor} times as fast as the goal "
        "allows",
        "description": f"Over the last {long} {{{{ $value | humanize }}}} times as fast, and over the last {short} "
        f"still too fast. At {factor} times the budget of {objective.window} is spent in {whole}. "
        f"Goal: {goal(objective)}. {_more(objective)}",
    }


def nearly_spent(objective: Objective) -> dict[str, str]:
    """Return the annotations of the budget's alert. Its value is the share of the budget that is left."""
    left = f"less than {promql.decimal(RISKY_BELOW * 100)} % of the error budget of {objective.window} is left"
    return {
        "summary": f"{_name(objective)}: {left}",
        "description": "Left of it: {{ $value | humanizePercentage }}; below 0 the objective is violated. "
        f"Goal: {goal(objective)}. {_more(objective)}",
    }


def unreachable(objective: Objective, alert: Alert) -> str:
    """Return why a row of the table has no rule."""
    row = f"{alert.severity}, {promql.duration(alert.long_s)} and {promql.duration(alert.short_s)}"
    most = f"{float(1 / (1 - goal_fraction(objective.goal))):g}"
    return (
        f"{_name(objective)}: no rule for {row}: it needs a burn rate above {promql.decimal(alert.factor)}, and with a "
        f"goal of {objective.goal} % there is none above {most}"
    )


def _name(objective: Objective) -> str:
    return f"{objective.key.namespace}/{objective.key.probe}/{objective.key.objective}"


def _more(objective: Objective) -> str:
    """Return the commands that show more."""
    namespace = f"-n {objective.key.namespace}"
    return (
        f"Where the time went: latencyprobe report {namespace}; the slowest RPCs: "
        f"latencyprobe slow {namespace} --target {objective.target}"
    )


def _days(seconds: Fraction) -> str:
    """Return a time in days or hours, to one decimal."""
    unit, unit_s = ("days", 86400) if seconds >= 2 * 86400 else ("hours", 3600)
    return f"{float(seconds / unit_s):.1f}".removesuffix(".0") + f" {unit}"
