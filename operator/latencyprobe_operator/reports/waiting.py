"""Expected time that waits for the store: bounded, and shared out by namespace, so that who edits without end has none
of the others' gaps forgotten. Pure.
"""

from collections import defaultdict, deque
from collections.abc import Mapping

from latencyprobe.shares import shares
from latencyprobe.slo.objective import ObjectiveKey

Keys = tuple[ObjectiveKey, ...]
Wanted = tuple[Keys, int, int]  # objectives of a namespace, minute, expected ms of each

MAX_WAITING = 300_000  # groups and keys, some 200 B each at most: 60 MB; a day of minutes of 200 namespaces
AT_ONCE = 1_000  # keys of a group, and of groups that are stored together: 0.1 s of the store's thread


class _Namespace:
    """`groups`: the oldest first; those with the same objectives share them. `size`: groups, and keys once."""

    def __init__(self) -> None:
        self.groups: deque[Wanted] = deque()
        self.size = 0
        self._shared: dict[Keys, tuple[Keys, int]] = {}  # and by how many groups

    def put(self, keys: Keys, minute: int, ms: int) -> None:
        keys, users = self._shared.get(keys, (keys, 0))
        self._shared[keys] = keys, users + 1
        self.groups.append((keys, minute, ms))
        self.size += 1 if users else 1 + len(keys)

    def drop(self) -> None:
        """Take off the oldest."""
        keys, _, _ = self.groups.popleft()
        keys, users = self._shared[keys]
        self.size -= 1 if users > 1 else 1 + len(keys)
        if users > 1:
            self._shared[keys] = keys, users - 1
        else:
            del self._shared[keys]


class Waiting:
    """Groups of objectives that should have been measured for equally long in a minute. `forgotten`: how many of those
    found no room."""

    def __init__(self, most: int = MAX_WAITING) -> None:
        self.forgotten = 0
        self._most = most
        self._of: defaultdict[str, _Namespace] = defaultdict(_Namespace)
        self._size = 0

    def __len__(self) -> int:
        return sum(len(of.groups) for of in self._of.values())

    def put(self, minute: int, expected_ms: Mapping[ObjectiveKey, float]) -> None:
        """Let a minute wait. Where there is too much, who has more than a share of the room loses its oldest."""
        alike: defaultdict[tuple[str, int], list[ObjectiveKey]] = defaultdict(list)
        for key, ms in expected_ms.items():
            alike[key.namespace, round(ms)].append(key)
        for (namespace, ms), keys in alike.items():
            for first in range(0, len(keys), AT_ONCE):
                of = self._of[namespace]
                self._size -= of.size
                of.put(tuple(keys[first : first + AT_ONCE]), minute, ms)
                self._size += of.size
        if self._size > self._most:
            for namespace, share in shares({name: of.size for name, of in self._of.items()}, self._most).items():
                self._forget(namespace, share)

    def some(self) -> list[Wanted]:
        """Return what is to be stored next, together."""
        found: list[Wanted] = []
        keys = 0
        for of in self._of.values():
            for group in of.groups:
                keys += len(group[0])
                if found and keys > AT_ONCE:
                    return found
                found.append(group)
        return found

    def stored(self, some: list[Wanted]) -> None:
        """Take off what `some` has returned."""
        for keys, _, _ in some:
            self._drop(keys[0].namespace)

    def _forget(self, namespace: str, share: int) -> None:
        while namespace in self._of and self._of[namespace].size > share:
            self._drop(namespace)
            self.forgotten += 1

    def _drop(self, namespace: str) -> None:
        of = self._of[namespace]
        self._size -= of.size
        of.drop()
        self._size += of.size
        if not of.groups:
            del self._of[namespace]
