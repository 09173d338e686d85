"""How long each objective should have been measured, per minute: the other half of the coverage.

Pure. A node counts from when its agent was first ready, or should have been (`Agents.counts_since`): starting is no
gap, dying is one.
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
from functools import lru_cache

from latencyprobe.plan import NodePlan
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.slo.windows import MINUTE_S
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.derived import Derived
from latencyprobe_operator.reports.waiting import Keys, Waiting

LAG_S = 10.0  # beside the pause between two uploads: by then a minute's counts are here, and their absence is a gap
_MAX_STEP_S = 30.0  # a longer pause of our own loop (suspend, a stepped clock) is not held against the agents


class _Time:
    """For how long the objectives of a plan should have been measured."""

    def __init__(self, keys: Keys) -> None:
        self.keys = keys
        self.ms = 0.0


class ExpectedTime:
    """Expected ms by minute and objective, summed over nodes. `waiting`: of minutes that are over, until it is stored.

    A `yield` is where others may run.
    """

    def __init__(self) -> None:
        self.waiting = Waiting()
        self._last_s: float | None = None
        self._keys = Derived(objective_keys, lambda plan: plan.objectives)  # which are the LatencyProbe's, of its uid
        self._minutes: defaultdict[int, dict[int, _Time]] = defaultdict(dict)  # by the identity of a plan's keys

    def observe(
        self, plans: Mapping[str, NodePlan], agents: Agents, now_s: float, unix_s: float
    ) -> Generator[None, None, None]:
        """Add the time since the last call: a few additions for each node. `now_s`: monotonic clock; `unix_s`: wall
        clock, for the minute."""
        step_s = min(_MAX_STEP_S, now_s - self._last_s) if self._last_s is not None else 0.0
        self._last_s = now_s
        for node, plan in list(plans.items()):
            counted_s = min(step_s, now_s - agents.counts_since(node))
            if plan.objectives and counted_s > 0:
                keys = self._keys.of(plan)
                for minute, part_s in _minutes(unix_s - counted_s, unix_s):
                    self._minutes[minute].setdefault(id(keys), _Time(keys)).ms += part_s * 1000
            yield
        self._keys.keep(plans.keys())

    def finish(self, unix_s: float, upload_s: float) -> Generator[None, None, None]:
        """Let the minutes that are over wait to be stored, the oldest first. `upload_s`: the pause between two uploads
        of an agent."""
        for minute in sorted(self._minutes):
            if minute + MINUTE_S + upload_s + LAG_S <= unix_s:
                expected_ms: defaultdict[ObjectiveKey, float] = defaultdict(float)
                for time in self._minutes.pop(minute).values():
                    for key in time.keys:
                        expected_ms[key] += time.ms
                    yield
                self.waiting.put(minute, expected_ms)


@lru_cache(maxsize=1 << 15)
def _shared(key: ObjectiveKey) -> ObjectiveKey:
    """Return the key that the plans of all nodes share: nodes times objectives of them are kept."""
    return key


def objective_keys(plan: NodePlan) -> Keys:
    """Return the store's keys of a plan's objectives."""
    targets = {t.id: t for t in plan.targets}
    return tuple(_shared(ObjectiveKey.of(targets[o.target], o)) for o in plan.objectives)


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
