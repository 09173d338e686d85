"""How long each objective should have been measured, per minute: the other half of the coverage.

Pure. `app.py` calls `observe` every few seconds and stores what `take` returns. A node counts from when its agent was
first ready, or should have been (`Agents.counts_from_now`): starting is no gap, dying is one.
"""

from collections import defaultdict
from collections.abc import Mapping

from latencyprobe.plan import NodePlan
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe_operator.agents import Agents

_MAX_STEP_S = 30.0  # a longer pause of our own loop (suspend, a stepped clock) is not held against the agents
MINUTE_S = 60


class WantedTime:
    """Wanted ms by objective and minute, summed over nodes."""

    def __init__(self) -> None:
        self._last_s: float | None = None
        self._sums: defaultdict[tuple[ObjectiveKey, int], float] = defaultdict(float)

    def observe(self, plans: Mapping[str, NodePlan], agents: Agents, now_s: float, unix_s: float) -> None:
        """Add the time since the last call. `now_s`: monotonic clock; `unix_s`: wall clock, for the minute."""
        step_s = min(_MAX_STEP_S, now_s - self._last_s) if self._last_s is not None else 0.0
        self._last_s = now_s
        parts = list(_minutes(unix_s - step_s, unix_s))
        for node, plan in plans.items():
            if plan.objectives and agents.counts_from_now(node, now_s):
                for key in objective_keys(plan):
                    for minute, part_s in parts:
                        self._sums[key, minute] += part_s * 1000

    def take(self) -> dict[tuple[ObjectiveKey, int], int]:
        """Return and forget what was added since the last call, in whole ms (the rest stays)."""
        whole = {at: int(ms) for at, ms in self._sums.items() if ms >= 1}
        for at, ms in whole.items():
            self._sums[at] -= ms
        self._sums = defaultdict(float, {at: ms for at, ms in self._sums.items() if ms > 1e-6})
        return whole


def objective_keys(plan: NodePlan) -> list[ObjectiveKey]:
    """Return the store's keys of a plan's objectives."""
    targets = {t.id: t for t in plan.targets}
    return [
        ObjectiveKey(t.namespace, t.probe, t.probe_uid, o.name, o.hash, o.perspective)
        for o in plan.objectives
        for t in (targets[o.target],)
    ]


def _minutes(start_s: float, end_s: float) -> list[tuple[int, float]]:
    """Split a span of wall time into (minute, seconds of it)."""
    parts = []
    while start_s < end_s:
        minute = int(start_s) // MINUTE_S * MINUTE_S
        until = min(end_s, minute + MINUTE_S)
        parts.append((minute, until - start_s))
        start_s = until
    return parts
