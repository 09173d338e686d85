"""How long each objective should have been measured, per minute: the other half of the coverage.

Pure. A node counts from when its agent was first ready, or should have been (`Agents.counts_since`): starting is no
gap, dying is one.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping

from latencyprobe.plan import NodePlan
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe_operator.plan.agents import Agents, NodeState

LAG_S = 10.0  # beside the pause between two uploads: by then a minute's counts are here, and their absence is a gap
_MAX_STEP_S = 30.0  # a longer pause of our own loop (suspend, a stepped clock) is not held against the agents


Wanted = tuple[tuple[ObjectiveKey, ...], int, int]  # objectives, minute, expected ms of each


MAX_WAITING = 20_000  # groups of equal minutes: a day of minutes in which 14 groups differ; 20 MB


class ExpectedTime:
    """Expected ms by minute and objective, summed over nodes. `waiting`: of minutes that are over, until it is stored;
    `forgotten`: how many groups of those found no room, or came when their minute was not kept any more."""

    def __init__(self) -> None:
        self.waiting: list[Wanted] = []
        self.forgotten = 0
        self._last_s: float | None = None
        self._minutes: defaultdict[int, defaultdict[ObjectiveKey, float]] = defaultdict(lambda: defaultdict(float))

    def observe(self, plans: Mapping[str, NodePlan], agents: Agents, now_s: float, unix_s: float) -> None:
        """Add the time since the last call. `now_s`: monotonic clock; `unix_s`: wall clock, for the minute."""
        step_s = min(_MAX_STEP_S, now_s - self._last_s) if self._last_s is not None else 0.0
        self._last_s = now_s
        for node, plan in plans.items():
            counted_s = min(step_s, now_s - agents.counts_since(node))
            if plan.objectives and counted_s > 0:
                parts = _minutes(unix_s - counted_s, unix_s)
                for key in objective_keys(plan):
                    for minute, part_s in parts:
                        self._minutes[minute][key] += part_s * 1000

    def finish(self, unix_s: float, upload_s: float) -> None:
        """Let the minutes that are over wait to be stored, the oldest first. `upload_s`: the pause between two uploads
        of an agent."""
        for minute in sorted(self._minutes):
            if minute + MINUTE_S + upload_s + LAG_S <= unix_s:
                alike = defaultdict(list)
                for key, ms in self._minutes.pop(minute).items():
                    alike[round(ms)].append(key)
                self.waiting += [(tuple(keys), minute, ms) for ms, keys in sorted(alike.items())]
        if (too_many := len(self.waiting) - MAX_WAITING) > 0:
            self.forgotten += too_many
            del self.waiting[:too_many]


def objective_keys(plan: NodePlan) -> list[ObjectiveKey]:
    """Return the store's keys of a plan's objectives."""
    targets = {t.id: t for t in plan.targets}
    return [ObjectiveKey.of(targets[o.target], o) for o in plan.objectives]


def missing_nodes(plans: Mapping[str, NodePlan], states: Mapping[str, NodeState]) -> Counter[ObjectiveKey]:
    """Return how many nodes should measure each objective now and do not."""
    silent = (NodeState.MISSING, NodeState.FAILED)
    return Counter(key for node, state in states.items() if state in silent for key in objective_keys(plans[node]))


def _minutes(start_s: float, end_s: float) -> list[tuple[int, float]]:
    """Split a span of wall time into (minute, seconds of it)."""
    parts = []
    while start_s < end_s:
        minute = int(start_s) // MINUTE_S * MINUTE_S
        until = min(end_s, minute + MINUTE_S)
        parts.append((minute, until - start_s))
        start_s = until
    return parts
