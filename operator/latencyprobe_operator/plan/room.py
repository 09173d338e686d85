"""Which LatencyProbes there is no room for, so that no namespace takes the room of the others. Pure.

Room is counted in entries: of a plan's lists, each pod, port, caller and endpoint. There is so much in each node's
plan, and so much in the operator's memory for all together. A LatencyProbe is measured whole or not at all. Who is left
out follows from what all ask for, and not from who asked first. docs/design/directory.md, "Room in plans".
"""

from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import accumulate
from typing import NamedTuple

from latencyprobe import plan
from latencyprobe.shares import shares
from latencyprobe_operator.cluster.objects import Key

WHOLE = ""  # in place of a node's name: the operator's memory
TARGET = 8  # entries: a target, or an objective, without its lists; some 50 bytes of a plan are an entry
KEPT_TARGET = 4  # the same in memory, where an entry has some 80 bytes
REMEDY = "select fewer pods and callers, name fewer ports, or make fewer of them in this namespace"


class Most(NamedTuple):
    """Entries. `plan`: of one node, some 8 MB, a quarter of the longest line that agents take; `whole`: some 130 MB,
    twice what 1,000 LatencyProbes of 5,000 nodes ask for."""

    plan: int = 160_000
    whole: int = 1_600_000

    @property
    def one(self) -> int:
        """How many there may be in one LatencyProbe, all nodes together: what is looked at before it is refused."""
        return self.whole // 4

    def at(self, place: str) -> int:
        """Return how many there may be on a node, or in WHOLE."""
        return self.whole if place == WHOLE else self.plan


MOST = Most()


class Room:
    """Who asks for how much. `out`: who has no room, and at how many places; `back`: who had none and has some now,
    until somebody takes it off."""

    def __init__(self, most: Most) -> None:
        self.most = most
        self.out: Counter[Key] = Counter()
        self.back: set[Key] = set()
        self._asked: defaultdict[str, dict[Key, int]] = defaultdict(dict)  # by place
        self._sums: Counter[str] = Counter()
        self._out_at: dict[str, frozenset[Key]] = {}

    def ask(self, key: Key, needs: Mapping[str, int], *, anew: bool = False) -> set[Key]:
        """Take what a LatencyProbe needs now, by place. `anew`: nothing where it is not said, else as much as before.
        Returns those that have room no more."""
        places = [place for place, asked in self._asked.items() if key in asked] if anew else []
        had_room: dict[Key, bool] = {}
        for place, entries in {**dict.fromkeys(places, 0), **needs}.items():
            asked = self._asked[place]
            self._sums[place] += entries - asked.pop(key, 0)
            if entries:
                asked[key] = entries
            self._judge(place, had_room)
            if not asked:
                del self._asked[place], self._sums[place]
        self.back |= {one for one, had in had_room.items() if not had and one not in self.out}
        self.back -= self.out.keys()
        return {one for one, had in had_room.items() if had and one in self.out}

    def forget(self, key: Key) -> None:
        """Take off all that a LatencyProbe needs."""
        self.ask(key, {}, anew=True)
        self.back.discard(key)

    def why(self, key: Key) -> str:
        """Return why there is no room for one of `out`, and what to do."""
        place = min(place for place, keys in self._out_at.items() if key in keys)
        asked, where = self._asked[place], f"in the plan of node {place}" if place else "in the operator"
        most, _ = max(sorted(_by_namespace(asked).items()), key=lambda one: one[1])
        return (
            f"there is room for {self.most.at(place):,} pods, ports, callers and endpoints of targets {where}, and "
            f"{self._sums[place]:,} are asked for, most of them by namespace {most}, {asked[key]:,} by this "
            f"LatencyProbe: {REMEDY}"
        )

    def _judge(self, place: str, had_room: dict[Key, bool]) -> None:
        """Find who is out at a place now. `had_room`: takes up those of whom that changes, as they were."""
        before, most = self._out_at.pop(place, frozenset()), self.most.at(place)
        now = left_out(self._asked[place], most) if self._sums[place] > most else frozenset()
        if now:
            self._out_at[place] = now
        for key in before ^ now:
            had_room.setdefault(key, key not in self.out)
            self.out[key] += 1 if key in now else -1
            if not self.out[key]:
                del self.out[key]


def left_out(asked: Mapping[Key, int], room: int) -> frozenset[Key]:
    """Return who is left out where there is less room than is asked for: of each namespace the largest of what is more
    than its share."""
    given = shares(_by_namespace(asked), room)
    found: set[Key] = set()
    for namespace, share in given.items():
        of = sorted((entries, key) for key, entries in asked.items() if key[0] == namespace)
        sums = accumulate(entries for entries, _ in of)
        found.update(key for (_, key), total in zip(of, sums, strict=True) if total > share)
    return frozenset(found)


def entries_of(targets: tuple[plan.Target, ...], objectives: int) -> int:
    """Return how much of a node's plan targets and so many objectives are."""
    return TARGET * objectives + sum(
        TARGET
        + sum(1 + len(pod.ports) for pod in target.pods)
        + len(target.callers)
        + len(target.endpoints)
        + sum(len(group.pods) + len(group.endpoints or ()) for group in target.replicas)
        for target in targets
    )


def _by_namespace(asked: Mapping[Key, int]) -> Counter[str]:
    found: Counter[str] = Counter()
    for (namespace, _), entries in asked.items():
        found[namespace] += entries
    return found
