"""Room that is shared out among namespaces, of what comes one by one and goes as it likes. Pure.

As long as there is room, anybody takes it. A namespace that has less than an equal part gets more even when there is
none left: for a while there may be twice as much as there is room for. `share_out()` says who has to give it back.
"""

from collections import Counter
from collections.abc import Mapping

from latencyprobe.shares import shares
from latencyprobe_agent.measure.rules import TargetSet


def payer(sets: Mapping[int, TargetSet], number: int) -> tuple[str, int]:
    """Return the namespace whose room a series of a target set takes, and how much: each of its targets gets points of
    its own."""
    one = sets.get(number)
    return (one.namespace, len(one.targets)) if one else ("", 1)


class SharedRoom:
    """`held`: how much each namespace has of `most`; `namespaces`: among how many an equal part is."""

    def __init__(self, most: int) -> None:
        self.held: Counter[str] = Counter()
        self.namespaces = 1
        self._most = most
        self._share = most
        self._all = 0
        self._refused: set[str] = set()

    def take(self, namespace: str, more: int = 1) -> bool:
        """Return whether there is room for so much more of a namespace, and take it."""
        held = self.held[namespace] + more
        if held > self._equal and (held > self._share or self._all + more > self._most):
            self._refused.add(namespace)
            return False
        self.held[namespace] = held
        self._all += more
        return True

    def give_back(self, namespace: str, less: int = 1) -> None:
        """Give back what was taken."""
        self.held[namespace] -= less
        self._all -= less
        if not self.held[namespace]:
            del self.held[namespace]

    def share_out(self) -> set[str]:
        """Find what each may have from now on, by what all have wanted since the last time. Return who has to give back
        all that he has, for he has more, and somebody else lacks it.

        An eighth stays free for those who grow: else every newcomer would make somebody give back.
        """
        names = self.held.keys() | self._refused
        needs = {name: self.held[name] + (self._most if name in self._refused else 0) for name in names}
        given = shares(needs, self._most * 7 // 8)
        self._share = max((part for name, part in given.items() if part < needs[name]), default=self._most)
        lacking = self._all > self._most or any(self.held[name] < self._share for name in self._refused)
        self._refused.clear()
        return {name for name, held in self.held.items() if lacking and held > max(self._share, self._equal)}

    @property
    def _equal(self) -> int:
        return self._most // max(self.namespaces, len(self.held), 1)
