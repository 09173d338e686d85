"""What nodes are asked to count no more, of which late counts may still come. Pure.

Each edit of an objective makes another one, and so does another name or uid: without a bound, who edits without end
would have all of the memory.
"""

from collections import defaultdict
from itertools import islice
from typing import NamedTuple

from latencyprobe.slo.objective import ObjectiveKey


class Once(NamedTuple):
    """An objective that a node was asked for."""

    node: str
    key: ObjectiveKey


class Former:
    """Since when each was asked for, in Unix s."""

    def __init__(self) -> None:
        self._since: defaultdict[str, dict[Once, int]] = defaultdict(dict)  # by namespace, each in the order of `put`

    def put(self, once: Once, since: int) -> None:
        """Take one that is not asked for any more."""
        self._since[once.key.namespace][once] = since

    def pop(self, once: Once) -> int | None:
        """Give one back that is asked for again; None for one that is not known."""
        return self._since.get(once.key.namespace, {}).pop(once, None)

    def since(self, once: Once) -> int | None:
        """Return since when one was asked for, None for one that is not known."""
        return self._since.get(once.key.namespace, {}).get(once)

    def take_surplus(self, room: int) -> list[Once]:
        """Forget what is more than `room`, and return it: the oldest of the namespace that has most."""
        found: list[Once] = []
        surplus = sum(map(len, self._since.values())) - room
        while len(found) < surplus:
            largest = max(self._since.values(), key=len)
            for once in list(islice(largest, surplus - len(found))):
                del largest[once]
                found.append(once)
        return found
