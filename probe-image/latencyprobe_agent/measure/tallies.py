"""How much of a node's tables targets need, counted so that a target can be taken off again. Pure.

All work together grows with how many (match, target) there are, however many targets are taken off.
"""

from abc import ABC, abstractmethod
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Set

from latencyprobe_agent.measure.matches import ANY_ADDRESS, ANY_PORT, Part, with_wildcards

_PLAIN, _ANY_PORT, _ANY_ADDRESS = range(3)


class Tally(ABC):
    """What all targets that are not taken off need together, of `room`. `what`: the noun; `remedy`: what asks for
    less."""

    what: str
    remedy: str

    def __init__(self, room: int) -> None:
        self.room = room
        self.all = 0

    @property
    @abstractmethod
    def targets(self) -> Collection[str]:
        """Those that are not taken off (ids)."""

    @abstractmethod
    def of(self, targets: Iterable[str]) -> int:
        """Return of how much of it these targets (ids) have a part, together: what several ask for counts once."""

    @abstractmethod
    def take_off(self, target: str) -> None:
        """Count no longer what this target (id) alone needs."""


class Rules(Tally):
    """Rules, with those that wildcards multiply, without making them. Two pods that become alike when a target is taken
    off count as two: what is left is never more than what is counted."""

    what = "rules"
    remedy = "name fewer ports, name them where it has none, or select fewer pods"

    def __init__(self, parts: Set[Part], room: int) -> None:
        super().__init__(room)
        self._counts: list[list[int]] = []  # of each part: matches by kind
        self._rows: dict[str, list[_Row]] = defaultdict(list)
        for part in parts:
            self._counts.append([0, 0, 0])
            alike = Counter((_kind(address, port), ids) for (address, port, _), ids in part.matches)
            alike.update((_PLAIN, ids) for _, ids in part.replicas)
            for (kind, ids), n in alike.items():
                row = _Row(self._counts[-1], kind, n, len(ids))
                row.count[kind] += n
                for target in ids:
                    self._rows[target].append(row)
            self.all += _rules(self._counts[-1])

    @property
    def targets(self) -> Collection[str]:
        """See Tally."""
        return self._rows.keys()

    def of(self, targets: Iterable[str]) -> int:
        """See Tally."""
        asked: dict[int, list[int]] = {}  # matches by kind, of each part
        counts: dict[int, list[int]] = {}
        for row in {row for target in targets for row in self._rows[target]}:
            asked.setdefault(id(row.count), [0, 0, 0])[row.kind] += row.n
            counts[id(row.count)] = row.count
        return sum(_asked(some, counts[part]) for part, some in asked.items())

    def take_off(self, target: str) -> None:
        """See Tally."""
        for row in self._rows.pop(target):
            row.targets -= 1
            if not row.targets:
                self.all -= _rules(row.count)
                row.count[row.kind] -= row.n
                self.all += _rules(row.count)


class _Row:
    """`n` matches of one kind, of one part, that the same targets ask for, so many of them. `count`: the part's."""

    def __init__(self, count: list[int], kind: int, n: int, targets: int) -> None:
        self.count, self.kind, self.n, self.targets = count, kind, n, targets


def _kind(address: bytes, port: int) -> int:
    if (address == ANY_ADDRESS) == (port == ANY_PORT):
        return _PLAIN
    return _ANY_PORT if port == ANY_PORT else _ANY_ADDRESS


def _rules(count: list[int]) -> int:
    return sum(count) + count[_ANY_PORT] * count[_ANY_ADDRESS]


def _asked(some: list[int], count: list[int]) -> int:
    """Return how many rules of a part come of some of its matches, with those that they make with others of it."""
    with_others = some[_ANY_PORT] * count[_ANY_ADDRESS] + some[_ANY_ADDRESS] * count[_ANY_PORT]
    return sum(some) + with_others - some[_ANY_PORT] * some[_ANY_ADDRESS]


class Combinations(Tally):
    """Combinations of targets that a socket may belong to, as bits of a number each."""

    what = "combinations of targets"
    remedy = "let targets share fewer pods and ports with others"

    def __init__(self, parts: Iterable[Part], room: int) -> None:
        super().__init__(room)
        found = {frozenset(ids) for part in parts for ids in with_wildcards(dict(part.matches)).values()}
        self._bits: dict[str, int] = {}
        self._in: dict[str, list[int]] = defaultdict(list)  # places in `_left`
        self._left = []
        for place, ids in enumerate(found):
            for target in ids:
                self._in[target].append(place)
            self._left.append(sum(1 << self._bits.setdefault(target, len(self._bits)) for target in ids))
        self._equal = Counter(self._left)
        self.all = len(self._equal)

    @property
    def targets(self) -> Collection[str]:
        """See Tally."""
        return self._in.keys()

    def of(self, targets: Iterable[str]) -> int:
        """See Tally."""
        return len({self._left[at] for target in targets for at in self._in[target]})

    def take_off(self, target: str) -> None:
        """See Tally."""
        for place in self._in.pop(target):
            before = self._left[place]
            after = self._left[place] = before ^ 1 << self._bits[target]
            self._equal[before] -= 1
            self.all -= not self._equal[before]
            self.all += after > 0 and not self._equal[after]
            self._equal[after] += 1
