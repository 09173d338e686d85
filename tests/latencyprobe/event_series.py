"""Synthetic series of SLI events, a pair of counts for each minute, and what our own evaluation says of them."""

from collections.abc import Callable
from functools import cached_property
from itertools import accumulate

from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import RISKY_BELOW, Evaluation, Events, evaluate, windows_needed
from latencyprobe.slo.objective import Objective
from latencyprobe.slo.windows import WINDOW_S

HOUR, DAY = 60, 1440  # positions in a series of minutes


class Series:
    """Events per minute, and the evaluation that a store with minute rows would lead to at the end of a minute."""

    def __init__(self, minutes: int, per_minute: Callable[[int], tuple[int, int]], o: Objective) -> None:
        events = [per_minute(minute) for minute in range(minutes)]
        self.objective = o
        self.good = [0, *accumulate(good for good, _ in events)]
        self.bad = [0, *accumulate(bad for _, bad in events)]

    def last(self, now: int, seconds: int) -> Events:
        since = max(0, now - seconds // 60)
        return Events(self.good[now] - self.good[since], self.bad[now] - self.bad[since])

    def at(self, now: int) -> Evaluation:
        whole = self.last(now, WINDOW_S[self.objective.window])
        burned = {seconds: self.last(now, seconds) for seconds in windows_needed(self.objective)}
        row = SliRow(*self.objective.key, minute=0, good=whole.good, bad=whole.bad)
        return evaluate(self.objective, row, burned)

    @cached_property
    def verdicts(self) -> list[Evaluation]:
        """The evaluation at the end of each minute, from minute 1 on."""
        return [self.at(now) for now in range(1, len(self.good))]

    def firing(self) -> dict[int, list[tuple[int, bool]]]:
        """Return by each alert's long window (minute, fires), at the first minute and at each change."""
        changes: dict[int, list[tuple[int, bool]]] = {}
        for now, verdict in enumerate(self.verdicts, 1):
            for burn in verdict.burns:
                seen = changes.setdefault(burn.alert.long_s, [])
                if not seen or seen[-1][1] != burn.firing:
                    seen.append((now, burn.firing))
        return changes

    def budget_firing(self) -> list[tuple[int, bool]]:
        """Return the same of the budget: (minute, less than a quarter is left)."""
        changes: list[tuple[int, bool]] = []
        for now, verdict in enumerate(self.verdicts, 1):
            enough = self.last(now, WINDOW_S[self.objective.window]).total >= verdict.events_needed
            spent = enough and verdict.remaining is not None and verdict.remaining < RISKY_BELOW
            if not changes or changes[-1][1] != spent:
                changes.append((now, spent))
        return changes
