"""C5 and C7: the agent's own work on synthetic records and spans, without a kernel; each has rounds of its own."""

from collections.abc import Callable, Mapping

import numpy as np
from rich.progress import track

from benchmarks import agent, spans
from benchmarks.compare import median, paired
from benchmarks.report import Found, Report

_RECORDS, _SPANS, _ROUNDS = 16_000, 5_000, 3

Told = Mapping[str, float]  # `ratio`, and CPU ns by what was compared


def cost_of_records(report: Report, count: int, _turns: int) -> None:
    """C5: a record read, joined and measured ÷ read from the ring."""

    def once() -> Told:
        found = agent.cost_of_agent(_RECORDS, _ROUNDS)
        return {"ratio": found["ratio"], "turn": found["turn_ns"], "ring alone": found["ring_ns"]}

    _found(report, "C5", once, count)


def cost_of_spans(report: Report, count: int, _turns: int) -> None:
    """C7: bytes of spans per second of CPU ÷ the stock SDK's."""

    def once() -> Told:
        found = spans.cost_of_spans(_SPANS, _ROUNDS)
        ours, sdk = (found[name]["ns_per_span"] for name in ("ours", "sdk"))
        return {"ratio": found["ratio"][0], "ours": ours, "SDK": sdk}

    _found(report, "C7", once, count)


def _found(report: Report, goal: str, once: Callable[[], Told], count: int) -> None:
    """Take the ratio twice a round: the second ÷ the first is the A/A control."""
    told = [once() for _ in track(range(2 * count), goal)]
    ratios = np.array([one["ratio"] for one in told]).reshape(count, 2)
    others = [name for name in told[0] if name != "ratio"]
    note = ", ".join(f"{name} {np.median([one[name] for one in told]):,.0f} ns" for name in others)
    report.finds(Found(goal, median(ratios.mean(axis=1)), paired(ratios[:, 1], ratios[:, 0]), note))
