"""C5 and C7: the agent's own work on synthetic records and spans, without a kernel; each has rounds of its own."""

from collections.abc import Callable, Mapping
from importlib.util import find_spec

import numpy as np
from rich.progress import track

from benchmarks.compare import median, paired
from benchmarks.report import Found, Report

_RECORDS, _SPANS, _ROUNDS = 16_000, 8_000, 3

Cost = Callable[[int, int], Mapping[str, float]]


def cost_of_records(report: Report, count: int, _turns: int) -> None:
    """C5: a record read, joined and measured ÷ read from the ring."""
    if find_spec("benchmarks.agent") is None:
        return report.lacks("C5", "benchmarks/agent.py is not here")
    from benchmarks.agent import cost_of_agent  # noqa: PLC0415 - it loads all of the agent

    return _found(report, "C5", cost_of_agent, _RECORDS, count)


def cost_of_spans(report: Report, count: int, _turns: int) -> None:
    """C7: spans encoded and sent ÷ the stock SDK's way."""
    if find_spec("benchmarks.spans") is None:
        return report.lacks("C7", "benchmarks/spans.py is not here")
    from benchmarks.spans import cost_of_spans as cost  # noqa: PLC0415

    return _found(report, "C7", cost, _SPANS, count)


def _found(report: Report, goal: str, cost: Cost, size: int, count: int) -> None:
    """Take `ratio` twice a round: the second ÷ the first is the A/A control."""
    told = [cost(size, _ROUNDS) for _ in track(range(2 * count), goal)]
    ratios = np.array([one["ratio"] for one in told]).reshape(count, 2)
    others = [name for name in told[0] if name != "ratio"]
    note = ", ".join(f"{name} {np.median([one[name] for one in told]):,.0f}" for name in others)
    report.finds(Found(goal, median(ratios.mean(axis=1)), paired(ratios[:, 1], ratios[:, 0]), note))
