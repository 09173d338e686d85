"""What the shared store is asked, as PromQL. Pure.

All of a namespace's objectives are asked for at once, one question for each window; the namespace is in every selector.
`increase()` extrapolates to the edges of its window: up to an export interval on both sides, which is nothing in a day
and a quarter of five minutes. So in short windows a counter that is there at both ends and did not start anew counts by
its difference, which is exact. Long ones are asked by the day: so much, and no more, is in the server's memory at once.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from latencyprobe import slo_events
from latencyprobe.plan import Role
from latencyprobe.rules import promql
from latencyprobe.rules.counters import EVENTS
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import DAY_S, HOUR_S

EXCLUDED = promql.series(slo_events.EXCLUDED, slo_events.EXCLUDED_UNIT, "counter")
DURATION = {
    slo_events.perspective(Role.SERVER): promql.series(slo_events.SERVER_DURATION, "s", "histogram"),
    slo_events.perspective(Role.CLIENT): promql.series(slo_events.CLIENT_DURATION, "s", "histogram"),
}
PROBE, TARGET, OBJECTIVE, DEFINITION, PERSPECTIVE, OUTCOME, ROLE, REASON = map(
    promql.label,
    (
        *(slo_events.PROBE, slo_events.TARGET, slo_events.OBJECTIVE, slo_events.DEFINITION, slo_events.PERSPECTIVE),
        *(slo_events.OUTCOME, slo_events.ROLE, slo_events.REASON),
    ),
)
VMRANGE = "vmrange"  # of the buckets that VictoriaMetrics makes of a native histogram
_NAMESPACE = promql.label(slo_events.PROBE_NAMESPACE)
_OBJECTIVE = (PROBE, TARGET, OBJECTIVE, DEFINITION, PERSPECTIVE)
_SHORT_S = 6 * HOUR_S  # below it the edges are more than 1 %, at exports up to 60 s apart and some
_LOOKBACK_S = 300  # for how long a sample stands, where a Prometheus is not told otherwise


class Question(NamedTuple):
    """An expression, and at which moments (Unix s, the step in s) its values add up to the answer."""

    expression: str
    first: int
    last: int
    step_s: int = DAY_S


def events(namespace: str, since: int, at: int) -> Iterator[Question]:
    """Yield what makes up the events of all objectives in (since, at], by objective and outcome."""
    yield from _sums(_of(EVENTS, namespace), (*_OBJECTIVE, OUTCOME), since, at)


def by_step(namespace: str, since: int, at: int, step_s: int) -> Question:
    """Return what gives the events of each step in (since, at], the last of which may not be over, by its end."""
    steps = -(-(at - since) // step_s)
    increase = f"increase({_of(EVENTS, namespace)}[{promql.duration(step_s)}])"
    return Question(_sum(increase, (*_OBJECTIVE, OUTCOME)), since + step_s, since + steps * step_s, step_s)


def excluded(namespace: str, since: int, at: int) -> Iterator[Question]:
    """Yield what makes up the turns that are no event, by target, role and reason."""
    yield from _sums(_of(EXCLUDED, namespace), (PROBE, TARGET, ROLE, REASON), since, at)


def durations(namespace: str, perspective: str, since: int, at: int) -> Iterator[Question]:
    """Yield what makes up the native histograms, by target."""
    yield from _sums(_of(DURATION[perspective], namespace), (PROBE, TARGET), since, at, exact=False)


def ranges(namespace: str, perspective: str, since: int, at: int) -> Iterator[Question]:
    """Yield what makes up the same as VictoriaMetrics has it: by target and range of durations."""
    selector = _of(f"{DURATION[perspective]}_bucket", namespace)
    yield from _sums(selector, (PROBE, TARGET, VMRANGE), since, at, exact=False)


def present(key: ObjectiveKey, first: int, last: int, step_s: int) -> Question:
    """Return in which steps, each told by its end, an objective has samples, however few and short."""
    of = {
        PROBE: key.probe,
        OBJECTIVE: key.objective,
        DEFINITION: key.hash,
        PERSPECTIVE: slo_events.perspective(key.perspective),
    }
    selector = f"{_of(EVENTS, key.namespace, of)}[{promql.duration(step_s)}]"
    return Question(f"count(present_over_time({selector}))", first, last, step_s)


def _of(series: str, namespace: str, more: Mapping[str, str] | None = None) -> str:
    return promql.selector(series, {_NAMESPACE: namespace, **(more or {})})


def _sums(selector: str, by: tuple[str, ...], since: int, at: int, *, exact: bool = True) -> Iterator[Question]:
    days, rest_s = divmod(at - since, DAY_S)
    if days:
        yield Question(_sum(f"increase({selector}[1d])", by), at - (days - 1) * DAY_S, at)
    if rest_s > 0:
        last, window = at - days * DAY_S, promql.duration(rest_s)
        counted = f"increase({selector}[{window}])"
        if exact and rest_s < _SHORT_S and not days:
            known = f"{selector} - {selector} offset {window}"
            whole = f"resets({selector}[{promql.duration(rest_s + _LOOKBACK_S)}]) == 0"
            counted = f"({known}) and ({whole}) or {counted}"
        yield Question(_sum(counted, by), last, last)


def _sum(counted: str, by: tuple[str, ...]) -> str:
    return f"sum by ({', '.join(by)}) ({counted})"
