"""Writes to the API server that may fail: logged and counted, and repeated while desired and actual differ.

None begins, and none is waited for, when another process may have the Lease.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.state import ClusterState

log = logging.getLogger(__name__)


class Writes:
    """`counts`: by kind of what was written and result (ok, error, held_back). `left_s`: for how long it is certain
    that nobody else writes; asked right before each write."""

    def __init__(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._left_s = left_s

    async def attempt(self, kind: str, call: Coroutine[Any, Any, None]) -> bool:
        """Return whether a write worked."""
        left_s = self._left_s()
        if left_s <= 0:
            call.close()
            self.counts[kind, "held_back"] += 1
            return False
        try:
            async with asyncio.timeout(left_s):
                await call
        except (ClusterError, TimeoutError) as error:
            self.counts[kind, "error"] += 1
            log.warning("%s", str(error) or f"{kind}: no answer while the Lease was certainly ours")
            return False
        self.counts[kind, "ok"] += 1
        return True


def alive(state: ClusterState, namespace: str) -> bool:
    """Return whether a namespace still takes new objects."""
    known = state.namespace(namespace)
    return known is not None and not known.terminating
