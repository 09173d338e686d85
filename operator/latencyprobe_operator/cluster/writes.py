"""Writes to the API server that may fail: logged and counted, and repeated while desired and actual differ.

None begins, and none is waited for, when another process may have the Lease.
"""

import asyncio
import logging
import math
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Iterable
from typing import Any, TypeVar

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.state import ClusterState

log = logging.getLogger(__name__)

AT_ONCE = 8  # of all kinds: 480 a minute where the API server takes a second for each

T = TypeVar("T")


class Writes:
    """`counts`: by kind of what was written and result (ok, error, held_back). `left_s`: for how long it is certain
    that nobody else writes; asked right before each write."""

    def __init__(self, left_s: Callable[[], float] = lambda: math.inf) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._left_s = left_s
        self._at_once = asyncio.Semaphore(AT_ONCE)

    async def attempt(self, kind: str, call: Coroutine[Any, Any, None]) -> bool:
        """Return whether a write worked."""
        try:
            async with self._at_once:
                result = await self._result(kind, call)
        finally:
            call.close()  # of one that never began
        self.counts[kind, result] += 1
        return result == "ok"

    async def each(self, items: Iterable[T], write: Callable[[T], Awaitable[None]]) -> None:
        """Write something for each of these, begun in their order, AT_ONCE of them under way. Raises what one of them
        raised, once the others are done."""
        waiting, raised = iter(items), list[Exception]()

        async def some() -> None:
            for item in waiting:
                try:
                    await write(item)
                except Exception as error:  # whatever it is, the others are written
                    raised.append(error)

        async with asyncio.TaskGroup() as group:
            for _ in range(AT_ONCE):
                group.create_task(some())
        if raised:
            raise raised[0]

    async def _result(self, kind: str, call: Coroutine[Any, Any, None]) -> str:
        left_s = self._left_s()
        if left_s <= 0:
            return "held_back"
        try:
            async with asyncio.timeout(left_s):
                await call
        except (ClusterError, TimeoutError) as error:
            log.warning("%s", str(error) or f"{kind}: no answer while the Lease was certainly ours")
            return "error"
        return "ok"


def alive(state: ClusterState, namespace: str) -> bool:
    """Return whether a namespace still takes new objects."""
    known = state.namespace(namespace)
    return known is not None and not known.terminating
