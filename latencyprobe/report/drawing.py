"""Where the marks of a report's pictures are: the figures of the model as places along an axis. Pure.

Places and widths are in percent of the picture's width; what a mark says is the text beside it.
"""

import itertools
import math
from collections.abc import Container, Iterable, Iterator, Sequence
from decimal import Decimal
from typing import NamedTuple

from latencyprobe import stages
from latencyprobe.report import units, words
from latencyprobe.report.model import Result, Slow
from latencyprobe.report.units import duration_ns
from latencyprobe.slo.evaluate import State

_WHOLE = Decimal(100)
_LABEL = 16.0  # the height of a label beside a burn-down, in percent of it
_HEIGHTS = "▁▂▃▄▅▆▇█"


class Mark(NamedTuple):
    """A piece of a bar, in percent of the picture. `colour`: a class of report.css.j2."""

    label: str
    start: float
    width: float
    colour: str


class Budget(NamedTuple):
    """An error budget as a bar; `limit`: where the whole budget is spent, in percent of the picture."""

    spent: Mark
    over: Mark | None
    limit: float


class BurnDown(NamedTuple):
    """What was left of a budget over the window: corners in percent from the left, and from the top, which is the whole
    budget. `within`, `over`: areas of what was left and of what was overspent; `zero`: how far down nothing is left;
    `labels`: what stands beside the picture, and how far down."""

    line: tuple[tuple[float, float], ...]
    within: tuple[tuple[float, float], ...]
    over: tuple[tuple[float, float], ...]
    zero: float
    labels: tuple[tuple[str, float], ...]


class Quantile(NamedTuple):
    """A duration on the logarithmic axis; `late`: it is above the threshold."""

    name: str
    duration: str
    at: float
    late: bool


class Latency(NamedTuple):
    """The quantiles of an objective and its threshold on one logarithmic axis, and the axis's powers of ten."""

    quantiles: tuple[Quantile, ...]
    threshold: float
    ticks: tuple[tuple[str, float], ...]


def colour(stage: str) -> str:
    """Return the class of a stage's colour; those of other versions share one."""
    return f"k-{stages.BY_NAME[stage].colour}" if stage in stages.BY_NAME else "k-white"


def state(of: State) -> str:
    """Return the class of a state's colour."""
    return f"s-{of.colour.split()[-1]}"


def budget(result: Result) -> Budget | None:
    """Return how much of the budget is spent; `None` where it is not known, or too few events say nothing of it."""
    if result.error_budget_remaining is None or result.state is State.NO_DATA:
        return None
    spent = _WHOLE - Decimal(result.error_budget_remaining)
    scale = _WHOLE / max(spent, _WHOLE)
    within, over = min(spent, _WHOLE) * scale, max(spent - _WHOLE, Decimal(0)) * scale
    overspent = Mark("beyond the budget", float(within), float(over), "k-over") if over else None
    return Budget(Mark("spent", 0.0, float(within), "k-spent"), overspent, float(_WHOLE * scale))


def burn_down(result: Result) -> BurnDown | None:
    """Return how the budget went; `None` where it is not known, or of one step alone."""
    found = result.burn_down
    if found is None or len(found.left) < 2 or result.state is State.NO_DATA:
        return None
    left = [float(one) for one in found.left]
    since_s, updated_s = units.unix_ns(found.since) / 1e9, units.unix_ns(result.updated) / 1e9
    window_s, step_s = units.span_s(result.window), units.span_s(found.step)
    low = min(*left, 0.0)

    def across(at_s: float) -> float:
        return 100 * max(0.0, min(1.0, 1 - (updated_s - at_s) / window_s))

    def down(percent: float) -> float:
        return 100 * (100 - percent) / (100 - low)

    line = [(across(since_s), 0.0)]
    line += [(across(since_s + (i + 1) * step_s), down(percent)) for i, percent in enumerate(left)]
    zero, ends = down(0.0), ((line[-1][0], down(0.0)), (line[0][0], down(0.0)))
    within, over = (tuple((x, limit(y, zero)) for x, y in line) + ends for limit in (min, max))
    overspent = [("0 %", zero), (f"{low:,.0f} %", 100.0)] if low < 0 else [("0 %", 100.0)]
    labels = tuple(_apart([("100 %", 0.0), *overspent]))
    return BurnDown(tuple(line), within, over if low < 0 else (), zero, labels)


def _apart(labels: Iterable[tuple[str, float]]) -> Iterator[tuple[str, float]]:
    """Yield labels from the top, of two that would touch each other the lower one; its place says where it belongs."""
    found = list(labels)
    for one, following in itertools.zip_longest(found, found[1:]):
        if following is None or following[1] - one[1] > _LABEL:
            yield one


def sparkline(left: Sequence[str], width: int) -> str:
    """Return what was left of a budget as at most so many characters, the least of each stretch; an overspent one is as
    low as an empty one."""
    wide = min(width, len(left))
    least = [min(map(float, left[i * len(left) // wide : (i + 1) * len(left) // wide])) for i in range(wide)]
    return "".join(_HEIGHTS[max(0, min(len(_HEIGHTS) - 1, int(one * len(_HEIGHTS) / 100)))] for one in least)


def burned_by(result: Result) -> tuple[Mark, ...]:
    """Return the stages that made events bad, by how many each did."""
    one_after_another = ((one.stage, Decimal(one.share)) for one in result.bad_by_stage)
    return tuple(_stacked(one_after_another, _WHOLE))


def waterfall(slow: Slow, start_ns: int = 0, axis_ns: int = 0) -> tuple[Mark, ...]:
    """Return the stages of one exchange one after another. That is how they came, but for `network`: it lies on both
    ways and is drawn as one. `start_ns`: where they begin on an axis of this length at least."""
    lengths = ((one.stage, Decimal(duration_ns(one.duration))) for one in slow.stages)
    return tuple(_stacked(lengths, Decimal(axis_ns), Decimal(start_ns)))


def ticks(axis_ns: int) -> tuple[tuple[str, float], ...]:
    """Return round durations along an axis that begins at 0, at most five: their labels, and where they are."""
    if axis_ns <= 0:
        return ()
    power = 10 ** (len(str(axis_ns)) - 1)
    steps_ns = (power * factor // 10 for factor in (2, 5, 10, 20, 50) if power * factor >= 10)
    step_ns = next(step for step in steps_ns if axis_ns // step <= 4)
    return tuple((units.duration(at), 100 * at / axis_ns) for at in range(0, axis_ns + 1, step_ns))


def latency(result: Result) -> Latency | None:
    """Return the quantiles beside the threshold; `None` without any."""
    found = result.quantiles
    if found is None:
        return None
    named = (("p50", found.p50), ("p90", found.p90), ("p99", found.p99), ("p99.9", found.p999))
    threshold_ns = duration_ns(result.threshold)
    every_ns = [max(1, duration_ns(text)) for _, text in named] + [max(1, threshold_ns)]
    low = math.floor(math.log10(min(every_ns)))
    high = max(math.ceil(math.log10(max(every_ns))), low + 1)

    def at(value_ns: int) -> float:
        return 100 * (math.log10(max(1, value_ns)) - low) / (high - low)

    step = math.ceil((high - low) / 3)  # more labels would touch each other
    return Latency(
        tuple(Quantile(n, text, at(duration_ns(text)), duration_ns(text) > threshold_ns) for n, text in named),
        at(threshold_ns),
        tuple((units.duration(10**power), at(10**power)) for power in range(low, high + 1, step)),
    )


def drawn(results: Sequence[Result]) -> list[stages.Stage]:
    """Return the stages that the pictures of these results show, each once, in the order of their table."""
    found = {one.stage for result in results for one in result.bad_by_stage}
    return legend(found | {stage.stage for one in words.slowest(results) for stage in one.slow.stages})


def legend(found: Container[str]) -> list[stages.Stage]:
    """Return the stages of these names, in the order of their table."""
    return [stage for name, stage in stages.BY_NAME.items() if name in found]


def _stacked(lengths: Iterable[tuple[str, Decimal]], whole: Decimal, reached: Decimal = Decimal(0)) -> Iterator[Mark]:
    """Yield lengths one after another, from `reached` on. `whole`: what the picture's width stands for, at least."""
    listed = list(lengths)
    scale = _WHOLE / (max(whole, sum((length for _, length in listed), reached)) or 1)
    for stage, length in listed:
        yield Mark(stage, float(reached * scale), float(length * scale), colour(stage))
        reached += length
