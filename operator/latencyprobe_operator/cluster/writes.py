"""Writes to the API server that may fail: logged and counted, and repeated while desired and actual differ."""

import logging
from collections import Counter
from collections.abc import Awaitable

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.state import ClusterState

log = logging.getLogger(__name__)


class Writes:
    """`counts`: by kind of what was written and result (ok, error)."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()

    async def attempt(self, kind: str, call: Awaitable[None]) -> bool:
        """Return whether a write worked."""
        try:
            await call
        except ClusterError as error:
            self.counts[kind, "error"] += 1
            log.warning("%s", error)
            return False
        self.counts[kind, "ok"] += 1
        return True


def alive(state: ClusterState, namespace: str) -> bool:
    """Return whether a namespace still takes new objects."""
    known = state.namespace(namespace)
    return known is not None and not known.terminating
