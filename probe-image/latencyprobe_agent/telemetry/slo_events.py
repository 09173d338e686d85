"""Good and bad events of the objectives in force, by the kernel's counts; each counts from when it came into force.

An edited objective is another one under the same name (`Objective.hash`). What was counted before is not good or bad by
its definition, or would make its counters fall: they start again from 0, with a start time of their own.
"""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

import numpy as np

from latencyprobe.plan import NodePlan, PlannedObjective
from latencyprobe_agent.measure.counts import Counts
from latencyprobe_agent.measure.objectives import TrackedObjective, tracked
from latencyprobe_agent.measure.rules import Rules


class Events(NamedTuple):
    """Events of one objective since `start_unix_ns`; 0: since the agent measures."""

    objective: PlannedObjective
    start_unix_ns: int
    good: int
    bad: int


class _Since(NamedTuple):
    unix_ns: int
    before: dict[bytes, tuple[int, int]]  # good and bad events until then, by COUNTS_KEY


class SloEvents:
    """The objectives of the plan in force, and what each finds counted already."""

    def __init__(self) -> None:
        self._tracked: dict[tuple[int, int], list[TrackedObjective]] = {}
        self._since: dict[tuple[str, str], _Since] = {}

    def follow(self, plan: NodePlan, rules: Rules, counts: Counts, now_unix_ns: int) -> None:
        """Take the objectives of a plan. Those that were not in force before start from `counts`, read just now."""
        self._tracked, known = tracked(plan, rules.sets), self._since
        self._since = {at: known.get(at, _Since(now_unix_ns, {})) for at in map(_definition, plan.objectives)}
        for key, value in zip(*counts, strict=True):
            for objective in self._tracking(key):
                if (at := _definition(objective.planned)) not in known:
                    self._since[at].before[key.tobytes()] = objective.good_and_bad(value)

    def stepped_back(self, unix_ns: int) -> None:
        """Let no objective count from later than this moment, which the wall clock has stepped back to."""
        self._since = {at: one._replace(unix_ns=min(one.unix_ns, unix_ns)) for at, one in self._since.items()}

    def forget(self, keys: Iterable[np.void]) -> None:
        """Forget COUNTS_KEYs that start from 0 when they come again."""
        for key in keys:
            for since in self._since.values():
                since.before.pop(key.tobytes(), None)

    def of(self, target: str, counts: Counts) -> Iterator[Events]:
        """Yield the events of each objective of a target (its id), as `counts` have them."""
        found: dict[tuple[str, str], Events] = {}
        for key, value in zip(*counts, strict=True):
            for objective in self._tracking(key):
                if objective.target.id == target:
                    at = _definition(objective.planned)
                    since = self._since[at]
                    good, bad = objective.good_and_bad(value)
                    good_before, bad_before = since.before.get(key.tobytes(), (0, 0))
                    sum_ = found.get(at, Events(objective.planned, since.unix_ns, 0, 0))
                    found[at] = sum_._replace(good=sum_.good + good - good_before, bad=sum_.bad + bad - bad_before)
        yield from found.values()

    def _tracking(self, key: np.void) -> Iterable[TrackedObjective]:
        return self._tracked.get((int(key["target_set"]), int(key["role"])), ())


def _definition(objective: PlannedObjective) -> tuple[str, str]:
    return objective.id, objective.hash
