"""When an agent comes back to a directory that it has lost: thousands of agents lose it in one moment.

Each line of the plan stream says over how many seconds agents shall spread that, by the number of nodes: in a small
cluster over none. A node's moment within them is always the same. Until its stream is open again an agent posts at most
once in such a span (docs/design/directory.md, "Coming back").
"""

import hashlib
import random
import time
from collections.abc import Callable

LONGEST_S = 300.0  # whatever the directory says


class Returning:
    """One agent. Safe to use from several threads: each attribute is replaced whole, and a moment more or less of
    waiting is no harm. `spread_s`: what the directory said last; `streams`: how many have been opened."""

    def __init__(self, node: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._share = int.from_bytes(hashlib.sha256(node.encode()).digest()[:8], "big") / 2**64
        self._clock = clock
        self.spread_s = 0.0
        self.streams = 0
        self._just_lost = False
        self._is_open = False
        self._held_until_s = 0.0
        self._why = ""

    def told(self, spread_s: float) -> None:
        """Take over how many seconds agents come back when the stream ends; 0: at once."""
        self.spread_s = min(max(spread_s, 0.0), LONGEST_S)

    def opened(self) -> None:
        """The plan stream is open: posts may go."""
        self.streams += 1
        self._is_open, self._held_until_s, self._why = True, 0.0, ""

    def lost(self) -> None:
        """The plan stream has ended: its turn comes within the span and once in each that follows; posts wait until the
        second time."""
        self._is_open, self._just_lost = False, True
        self._held_until_s = self._clock() + (1 + self._share) * self.spread_s

    def pause_s(self, retry_s: float) -> float:
        """Return for how long to wait before the stream is asked for again, at least half of `retry_s`: first until
        this node's moment, then until it comes round again."""
        spread_s = self._share * self.spread_s if self._just_lost else self.spread_s
        self._just_lost = False
        return max(spread_s, retry_s * random.uniform(0.5, 1.0))  # noqa: S311 - spreads agents, no secret

    def held(self) -> str:
        """Return why nothing may be posted now, empty when it may."""
        if self._is_open or self._clock() >= self._held_until_s:
            return ""
        return self._why or "its plan stream has ended: posts wait until it is open again"

    def failed(self, why: str) -> None:
        """A post found nobody: without a stream the next one waits for as long as the others."""
        if not self._is_open:
            self._held_until_s, self._why = self._clock() + self.spread_s, why
