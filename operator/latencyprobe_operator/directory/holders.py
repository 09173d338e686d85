"""Which agents know whose an address is, so that they can be told to forget it (docs/design/directory.md,
"Identities")."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable

VALID_S = 15.0  # of whose an address is, where the agent cannot be told to forget it
ROOM = 20_000  # addresses; beyond that those that nobody has are not remembered: whose they become is known late


class Holders:
    """Nodes by address, for at least as long as what they were answered is valid.

    Remembered are two spans, whole, each as long as any answer in either of them is valid: no time for each address.
    `valid_s`: of an answer now.
    """

    def __init__(self, valid_s: Callable[[], float], clock: Callable[[], float] = time.monotonic) -> None:
        self._valid_s = valid_s
        self._clock = clock
        self._since_s = clock()
        self._longest_s = (0.0, 0.0)  # of the answers now, and before
        self._now: defaultdict[str, set[str]] = defaultdict(set)
        self._before: defaultdict[str, set[str]] = defaultdict(set)

    def answered(self, node: str, owned: Iterable[str], others: Iterable[str] = ()) -> bool:
        """Take note that a node's agent was told whose these addresses are, and that nobody has the others; returns
        whether there was room for all."""
        self._turn()
        now_s, before_s = self._longest_s
        self._longest_s = max(now_s, self._valid_s()), before_s
        for address in owned:
            self._now[address].add(node)
        room = True
        for address in others:
            if address in self._now or len(self._now) < ROOM:
                self._now[address].add(node)
            else:
                room = False
        return room

    def take(self, addresses: Iterable[str]) -> dict[str, set[str]]:
        """Return the addresses that each node may know of these, and forget that it does."""
        self._turn()
        found: defaultdict[str, set[str]] = defaultdict(set)
        for address in addresses:
            for known in (self._now, self._before):
                for node in known.pop(address, ()):
                    found[node].add(address)
        return found

    def _turn(self) -> None:
        passed_s = self._clock() - self._since_s
        span_s = max(self._longest_s)
        if passed_s >= span_s:
            self._before = self._now if passed_s < 2 * span_s else defaultdict(set)
            self._now = defaultdict(set)
            self._longest_s = 0.0, self._longest_s[0]
            self._since_s += passed_s
