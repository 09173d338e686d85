"""What measuring may cost: the one table of goals, and whether what was found meets them.

Ratios mean the same on every machine; why these, and what was tried to meet them: docs/design/cost.md.
"""

from dataclasses import dataclass

from benchmarks.compare import Interval


@dataclass(frozen=True)
class Goal:
    """One measure. `goal`: None for what is only stated. `upper`: the interval's upper end may lie here, else at the
    goal. `neutral`: what is found where nothing is added; from there to the goal is the margin that the control, the
    same measure of nothing (A/A), must be narrower than. `at_least`: more is better."""

    id: str
    measure: str
    goal: float | None
    unit: str = ""
    upper: float | None = None
    neutral: float = 1.0
    at_least: bool = False

    @property
    def text(self) -> str:
        """`≤ 1.03, upper end ≤ 1.06`."""
        if self.goal is None:
            return "–"
        sign = "≥" if self.at_least else "≤"
        more = "" if self.upper is None else f", upper end ≤ {self.upper:g}{self.unit}"
        return f"{sign} {self.goal:g}{self.unit}{more}"

    def verdict(self, found: Interval, control: Interval | None) -> str:
        """`met`, `not met`, or `not resolved`: the goal lies inside the interval, or the control is wider than the
        goal's margin; `stated` without a goal."""
        if self.goal is None:
            return "stated"
        margin = abs((self.goal if self.upper is None else self.upper) - self.neutral)
        if control is not None and control.high - control.low > margin:
            return "not resolved"
        if self.at_least:
            return "met" if found.low >= self.goal else "not met" if found.high < self.goal else "not resolved"
        if found.median <= self.goal and found.high <= (self.goal if self.upper is None else self.upper):
            return "met"
        return "not met" if found.low > self.goal else "not resolved"


_ALL = (
    Goal("C1", "kernel time of a targeted RPC ÷ that of empty hooks, added", 2.5),
    Goal("C2", "kernel time of an untargeted RPC ÷ that of empty hooks, added", 1.15),
    Goal("C3", "Redis CPU per GET, kernel programs alone ÷ none", 1.12),
    Goal("C4", "CPU of all that takes part per GET at saturation, whole agent ÷ none", 1.15),
    Goal("C5", "agent CPU per record ÷ that of reading the ring alone", 4),
    Goal("C6", "agent CPU at 50,000 RPC/s offered, share of a core", 2, unit=" %", neutral=0),
    Goal("C7", "bytes of spans per second of CPU to a sink of bytes ÷ the stock SDK's way", 50, at_least=True),
    Goal("C8a", "agent RSS at 50,000 RPC/s, with its defaults", 45, unit=" MB", neutral=0),
    Goal("C8b", "agent RSS at 50,000 RPC/s, every record read", 55, unit=" MB", neutral=0),
    Goal("C9a", "p99 of GETs at 50 % of saturation, whole agent ÷ none", 1.03, upper=1.06),
    Goal("C9b", "p99 of GETs at 80 % of saturation, whole agent ÷ none", 1.03, upper=1.06),
    Goal("C10", "added per RPC with all processors loaded ÷ with one", None),
)
GOALS = {goal.id: goal for goal in _ALL}
