"""Which LatencyProbes' objectives there is no room for: each takes time of every evaluation, and disk of the store.

Pure. Who is left out follows from what all ask for, and not from who came first, as of plans (plan/room.py).
"""

from collections import Counter
from collections.abc import Callable

from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.room import left_out

MOST = 20_000  # evaluated in 30 s of each minute: docs/design/objectives.md, "What reports cost"
BYTES = 800_000  # of the store, of one with RPCs in each minute: two days of minutes, 35 of hours, 400 days


def most(volume_bytes: int | None, limit_bytes: int | None = None) -> int:
    """Return how many objectives there may be with a store on such a volume, or on one of which that is not known.
    `limit_bytes`: of the store, if its pod is evicted there; a quarter is left for its log."""
    sizes = (volume_bytes, None if limit_bytes is None else limit_bytes * 3 // 4)
    return min([MOST, *(size // BYTES for size in sizes if size is not None)])


class ObjectiveRoom:
    """Who asks for how many. `room`: how many there may be now; `limited`: by a limit of the store, as of `most`."""

    def __init__(self, room: Callable[[], int] = lambda: MOST, *, limited: bool = False) -> None:
        self._room = room
        self._each_mb = BYTES / 1e6 * (4 / 3 if limited else 1)
        self._asked: dict[Key, int] = {}
        self._changed = False
        self._out: frozenset[Key] = frozenset()

    def ask(self, key: Key, objectives: int) -> None:
        """Take how many objectives a LatencyProbe has now."""
        if self._asked.pop(key, 0) != objectives:
            self._changed = True
        if objectives:
            self._asked[key] = objectives

    def out(self) -> frozenset[Key]:
        """Return who has no room: of each namespace that asks for more than its share the largest."""
        if self._changed:
            self._changed, room = False, self._room()
            self._out = left_out(self._asked, room) if sum(self._asked.values()) > room else frozenset()
        return self._out

    def look(self) -> bool:
        """Look how much room there is, as nobody tells that a volume was enlarged; return whether others are out."""
        before, self._changed = self._out, True
        return self.out() != before

    def why(self, key: Key) -> str:
        """Return why there is no room for one that is out, and what to do."""
        by_namespace: Counter[str] = Counter()
        for (namespace, _), objectives in self._asked.items():
            by_namespace[namespace] += objectives
        largest = min(by_namespace, key=lambda namespace: (-by_namespace[namespace], namespace))
        return (
            f"there is room for {self._room():,} objectives in the cluster, and {by_namespace.total():,} are asked "
            f"for, most of them by namespace {largest}, {by_namespace[key[0]]:,} by this one: ask for fewer here, or "
            f"enlarge the volume of persistence.size, of which each takes {self._each_mb:.3g} MB, up to {MOST:,}"
        )
