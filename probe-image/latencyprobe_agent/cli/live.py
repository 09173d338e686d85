"""The status line of `latencyprobe run`: rate, RPCs, pairs, losses, quantiles, how each objective stands, and what
counts as no RPC.

`figures()` is pure; `LiveLine` shows them: one line that renews itself on a terminal, a plain line now and then on a
pipe, when there is news. Figures come from the kernel's counts, as the report's do.
"""

import logging
import time
from collections import deque
from collections.abc import Mapping
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.live import Live
from rich.text import Text

from latencyprobe import spec
from latencyprobe.output import can_redraw
from latencyprobe.report import turns, units
from latencyprobe.slo.histogram import quantile_ns
from latencyprobe_agent.measure import histogram
from latencyprobe_agent.measure.counts import Counts
from latencyprobe_agent.measure.objectives import tracked
from latencyprobe_agent.measure.turn import InForce, Turn
from latencyprobe_agent.vocabulary.records import Role
from latencyprobe_agent.vocabulary.values import EXCLUSIONS

_RATE_OVER_S = 2  # ticks of a second
_RECENT_S = 10  # the quantiles' seconds
_PLAIN_EVERY_S = 10.0


class Slo(NamedTuple):
    """One objective so far in this run. `sli`: None before its first event."""

    name: str
    goal: str
    sli: Fraction | None


class Figures(NamedTuple):
    """Since the start. RPCs are those seen at the servers of this host, or at its clients where it has no server.
    `sampled_out`: records that the limit left out, of both ends; `evidence_lost`: what never arrived of each signal;
    `exclusions`: turns that are no RPC, by reason."""

    rpcs: int
    pairs: int
    lost: int
    sampled_out: int
    evidence_lost: Mapping[str, int]
    histogram: NDArray[np.int64]
    slos: tuple[Slo, ...]
    exclusions: Mapping[str, int]


def figures(turn: Turn, pairs: int) -> Figures:
    """Return the figures of a turn with counts. `pairs`: joined so far."""
    assert turn.counts is not None
    (keys, values), lost = turn.counts.counts, turn.counts.lost
    sides = [values[keys["role"] == role] for role in (Role.SERVER, Role.CLIENT)]
    # a side of which every turn is excluded is better than none
    seen = next((side for side in sides if side["outcomes"].sum()), max(sides, key=lambda side: side["excluded"].sum()))
    excluded = seen["excluded"].sum(axis=0)
    return Figures(
        rpcs=int(seen["outcomes"].sum()),
        pairs=pairs,
        lost=sum(lost.values()),
        sampled_out=int(values["sampled_out_records"].sum()),
        evidence_lost={name: sum(of.values()) for name, of in turn.stats.evidence_lost.items()} if turn.stats else {},
        histogram=seen["histogram"].sum(axis=0).astype(np.int64),
        slos=tuple(_slos(turn.in_force, turn.counts.counts)),
        exclusions={one.name: int(excluded[at]) for at, one in EXCLUSIONS.items() if excluded[at]},
    )


def _slos(in_force: InForce, counted: Counts) -> list[Slo]:
    objectives = in_force.plan.objectives
    counts: dict[str, tuple[int, int]] = {objective.id: (0, 0) for objective in objectives}
    by_set = tracked(in_force.plan, in_force.rules.sets)
    for key, value in zip(*counted, strict=True):
        for one in by_set.get((int(key["target_set"]), int(key["role"])), ()):
            good, bad = one.good_and_bad(value)
            good_before, bad_before = counts[one.planned.id]
            counts[one.planned.id] = (good_before + good, bad_before + bad)
    return [
        Slo(objective.name, objective.goal, Fraction(good, good + bad) if good + bad else None)
        for objective in objectives
        for good, bad in [counts[objective.id]]
    ]


class LiveLine:
    """Listener: shows each turn with counts until it is closed; then the last figures stay as a plain line."""

    name = "live"

    def __init__(self, console: Console) -> None:
        self._console = console
        self._recent: deque[tuple[float, Figures]] = deque(maxlen=_RECENT_S + 1)
        self._live = Live(console=console, auto_refresh=False, transient=True) if can_redraw(console) else None
        self._next_plain = time.monotonic() + _PLAIN_EVERY_S
        self._printed = self._pairs = 0
        self._began = time.monotonic()
        if self._live:
            self._live.start()

    def take(self, turn: Turn) -> None:
        """Show a turn that has counts."""
        self._pairs += len(turn.pairs.events) + len(turn.remote.pairs.events)
        if turn.counts is None:
            return
        now, last = time.monotonic(), figures(turn, self._pairs)
        self._recent.append((now, last))
        if self._live:
            self._live.update(line(self._recent), refresh=True)
        elif now >= self._next_plain and last.rpcs > self._printed:
            self._next_plain, self._printed = now + _PLAIN_EVERY_S, last.rpcs
            self._console.print(line(self._recent), highlight=False, soft_wrap=True)

    def close(self) -> None:
        """Leave the last figures as a plain line."""
        if self._live:
            self._live.stop()
        if self._recent:
            last = self._recent[-1][1]
            self._console.print(_sum(last, time.monotonic() - self._began), highlight=False, soft_wrap=True)


class LogAbove(logging.Handler):
    """Prints log records above the line, in the form of every other complaint of the command line."""

    def __init__(self, console: Console) -> None:
        super().__init__()
        self._console = console

    def emit(self, record: logging.LogRecord) -> None:
        """Print one record. A console that takes no more ends nothing else."""
        try:
            self._console.print(f"latencyprobe: {record.getMessage()}", highlight=False, markup=False, soft_wrap=True)
        except OSError:
            self.handleError(record)


def line(recent: "deque[tuple[float, Figures]]") -> Text:
    """Return the newest figures in one line, with quantiles of the time that `recent` (ticks) spans."""
    first, (now_s, last) = recent[0][1], recent[-1]
    before_s, before = recent[max(0, len(recent) - 1 - _RATE_OVER_S)]
    rate = (last.rpcs - before.rpcs) / (now_s - before_s) if now_s > before_s else 0.0
    lately = last.histogram - first.histogram if last.rpcs > first.rpcs else last.histogram
    parts = [
        Text(f"{rate:,.0f} RPC/s", style="bold"),
        Text(units.number(last.rpcs, "RPC")),
        Text(units.number(last.pairs, "pair")),
        *_missing(last),
        *_quantiles(lately),
        *map(_objective, last.slos),
        *_no_rpc(last),
    ]
    return Text("  ").join(parts)


def _sum(last: Figures, seconds: float) -> Text:
    parts = [
        Text(f"{units.number(last.rpcs, 'RPC')} in {seconds:.1f} s"),
        Text(units.number(last.pairs, "pair")),
        *_missing(last),
        *_quantiles(last.histogram),
    ]
    text, excluded = Text(", ").join(parts), sum(last.exclusions.values())
    no_rpc = turns.no_rpc(last.exclusions, excluded, last.rpcs + excluded)
    return text.append(f"\n{no_rpc}" if no_rpc else "")


def _missing(last: Figures) -> list[Text]:
    missing = [Text(f"{last.lost:,} lost", style="bold red" if last.lost else "")]
    missing += [Text(f"{n:,} lost of {signal}", style="bold red") for signal, n in last.evidence_lost.items() if n]
    return [*missing, Text(f"{last.sampled_out:,} records sampled out")] if last.sampled_out else missing


def _no_rpc(last: Figures) -> list[Text]:
    """Return how many turns count as no RPC and most of them why: a line has no room for all reasons."""
    reasons = turns.worded(last.exclusions)
    if not reasons:
        return []
    excluded = sum(last.exclusions.values())
    why = f": {reasons[0][0]}" if len(reasons) == 1 else f", mostly {reasons[0][0]}"
    return [Text(f"{excluded:,} no RPC{why}", style="yellow" if excluded > last.rpcs else "dim")]


def _quantiles(counts: NDArray[np.int64]) -> list[Text]:
    filled: Mapping[int, int] = histogram.sparse(counts)
    found = [(name, quantile_ns(filled, Fraction(q))) for name, q in (("p50", "0.5"), ("p99", "0.99"))]
    return [Text(f"{name} {units.duration(value_ns)}") for name, value_ns in found if value_ns is not None]


def _objective(slo: Slo) -> Text:
    if slo.sli is None:
        return Text(f"{slo.name} no events yet", style="dim")
    holds = slo.sli >= spec.goal_fraction(slo.goal)
    sign, style = ("≥", "green") if holds else ("<", "bold red")
    decimals = min(len(slo.goal.partition(".")[2]) + 2, 5)
    return Text(f"{slo.name} {units.percent(slo.sli, decimals)}% {sign} {slo.goal}%", style=style)
