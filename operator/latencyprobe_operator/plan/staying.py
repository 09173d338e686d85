"""Nodes that keep their agent for a while after the last caller has left: pods of a CronJob come again and again, and
an agent that comes with each of them is ready when it has ended.

Where pods of a target were, whose LatencyProbe means nothing any more, or which it does not ask for since an edit, the
agent goes at once.
"""

from collections.abc import Mapping, Set
from typing import NamedTuple

from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.targets import Part, Resolved

STAYS_S = 1200.0


class _Asked(NamedTuple):
    """Whose caller was the last."""

    key: Key
    probe: LatencyProbe


class Staying:
    """Which nodes those are. All times are s of the monotonic clock."""

    def __init__(self) -> None:
        self._left: dict[str, _Asked] = {}
        self._until: dict[str, tuple[float, _Asked]] = {}

    def ended(self, node: str, key: Key, part: Part, before: Resolved) -> None:
        """Take note that a LatencyProbe means nothing on a node any more. `part`, `before`: what it was there, and in
        all."""
        if not any(target.pods for target in part.targets):
            self._left[node] = _Asked(key, before.probe)

    def nodes(self, busy: Set[str], resolved: Mapping[Key, Resolved], now_s: float) -> Set[str]:
        """Return those that keep their agent. `busy`: nodes that something is planned for."""
        self._until |= {node: (now_s + STAYS_S, asked) for node, asked in self._left.items()}
        self._left.clear()
        for node, (until_s, asked) in list(self._until.items()):
            asks = resolved.get(asked.key)
            if node in busy or until_s <= now_s or asks is None or not asks.parts or asks.probe != asked.probe:
                del self._until[node]
        return self._until.keys()

    @property
    def next_s(self) -> float | None:
        """When the next one's time is over."""
        return min((until_s for until_s, _ in self._until.values()), default=None)
