"""Which LatencyProbes there is no room for, so that no namespace takes the room of the others. Pure.

Room is counted in entries: of a plan's lists, each pod, port, caller and endpoint. There is so much in each node's
plan, and so much in the operator's memory for all together. A LatencyProbe is measured whole or not at all. Who is left
out follows from what all ask for, and not from who asked first. docs/design/directory.md, "Room in plans".
"""

from collections import Counter, defaultdict
from collections.abc import Generator, Mapping
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


class _Place:
    """What is asked for at one place: `asked` by whom, `sums` by namespace. `out`: who was left out when it was judged
    last."""

    def __init__(self) -> None:
        self.asked: dict[Key, int] = {}
        self.sums: Counter[str] = Counter()
        self.out: frozenset[Key] = frozenset()

    def ask(self, key: Key, entries: int) -> int:
        """Take what a LatencyProbe needs now; returns how much more that is than before."""
        more = entries - self.asked.pop(key, 0)
        if entries:
            self.asked[key] = entries
        self.sums[key[0]] += more
        if not self.sums[key[0]]:
            del self.sums[key[0]]
        return more


class Room:
    """Who asks for how much. Asking is quick: who is left out is found by `judge`, of all together.

    `out`: who has no room, and at how many places; `crowded`: whether so much more is asked for since that was found
    that nobody else should be looked at before. Until somebody takes them off, `lost`: who has none and is to be told
    why; `back`: who had none and has some now.
    """

    def __init__(self, most: Most) -> None:
        self.most = most
        self.out: Counter[Key] = Counter()
        self.lost: set[Key] = set()
        self.back: set[Key] = set()
        self._places: defaultdict[str, _Place] = defaultdict(_Place)
        self._unjudged: set[str] = set()
        self._more = 0  # in the operator's memory

    @property
    def crowded(self) -> bool:
        """Whether what has come since the last `judge` is as much as one LatencyProbe may be."""
        return self._more > self.most.one

    def ask(self, key: Key, needs: Mapping[str, int], *, anew: bool = False) -> None:
        """Take what a LatencyProbe needs now, by place. `anew`: nothing where it is not said, else as much as
        before."""
        before = [name for name, place in self._places.items() if key in place.asked] if anew else []
        for name, entries in {**dict.fromkeys(before, 0), **needs}.items():
            more = self._places[name].ask(key, entries)
            self._more += max(more, 0) if name == WHOLE else 0
            self._unjudged.add(name)
        if key in self.out:
            self.lost.add(key)

    def forget(self, key: Key) -> None:
        """Take off all that a LatencyProbe needs."""
        self.ask(key, {}, anew=True)
        for place in self._places.values():
            place.out -= {key}
        del self.out[key]
        self.lost.discard(key)
        self.back.discard(key)

    def judge(self) -> Generator[None, None, None]:
        """Find who is out now, at the places where something else is asked for. A `yield` is where others may run."""
        while self._unjudged:
            self._judge(self._unjudged.pop())
            yield
        self._more = 0

    def why(self, key: Key) -> str:
        """Return why there is no room for one of `out`, and what to do."""
        name, place = min((name, place) for name, place in self._places.items() if key in place.out)
        where = f"in the plan of node {name}" if name else "in the operator"
        most = min(place.sums, key=lambda namespace: (-place.sums[namespace], namespace))
        return (
            f"there is room for {self.most.at(name):,} pods, ports, callers and endpoints of targets {where}, and "
            f"{place.sums.total():,} are asked for, most of them by namespace {most}, {place.asked[key]:,} by this "
            f"LatencyProbe: {REMEDY}"
        )

    def _judge(self, name: str) -> None:
        place, most = self._places[name], self.most.at(name)
        before, place.out = place.out, left_out(place.asked, most) if place.sums.total() > most else frozenset()
        for key in before ^ place.out:
            had_room = key not in self.out
            self.out[key] += 1 if key in place.out else -1
            if not self.out[key]:
                del self.out[key]
                self.lost.discard(key)
                self.back.add(key)
            elif had_room:
                self.back.discard(key)
                self.lost.add(key)
        if not place.asked:
            del self._places[name]


def left_out(asked: Mapping[Key, int], room: int) -> frozenset[Key]:
    """Return who is left out where there is less room than is asked for: of each namespace the largest of what is more
    than its share."""
    by_namespace: defaultdict[str, list[tuple[int, Key]]] = defaultdict(list)
    for key, entries in asked.items():
        by_namespace[key[0]].append((entries, key))
    sums = {namespace: sum(entries for entries, _ in of) for namespace, of in by_namespace.items()}
    found: set[Key] = set()
    for namespace, share in shares(sums, room).items():
        if sums[namespace] > share:
            of = sorted(by_namespace[namespace])
            totals = accumulate(entries for entries, _ in of)
            found.update(key for (_, key), total in zip(of, totals, strict=True) if total > share)
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
