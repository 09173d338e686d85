"""The shared store that reports are judged by, where the administrator names one: asked in a thread of its own.

A server that is slow or away holds up the evaluation for `BUDGET_S` at most, and nothing else: counts go on being
stored here, and the report of such a minute is of these.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TypeVar

from latencyprobe.errors import StoreError
from latencyprobe.shared_store.beside import Beside
from latencyprobe.shared_store.client import Client
from latencyprobe.shared_store.counts import PrometheusCounts
from latencyprobe.shared_store.settings import Settings
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster.own_thread import OwnThread

R = TypeVar("R")

log = logging.getLogger(__name__)


class SharedStore:
    """`problem`: why it has not judged the last reports, empty while it does. `open_own`: our own store, to read what
    metrics do not carry; `failures`: by reason."""

    def __init__(self, settings: Settings, open_own: Callable[[], SqliteStore], failures: Counter[str]) -> None:
        self.problem = ""
        self._failures = failures
        self._client = Client(settings)
        self._open_own = open_own
        self._since: dict[ObjectiveKey, int] = {}

    async def run(self, judge: Callable[[Beside], R]) -> R:
        """Return what a call makes of the counts of one evaluation. Raises StoreError as the shared store does."""
        thread = OwnThread("shared-store")
        try:
            found = await asyncio.wrap_future(thread.submit(partial(self._judged, judge)))
        except StoreError as error:
            if str(error) != self.problem:
                log.error("%s; reports are of the operator's own counts", error)
            self.problem = str(error)
            self._failures[error.reason] += 1
            raise
        finally:
            thread.end()
        if self.problem:
            log.info("the shared store answers again")
        self.problem = ""
        return found

    def _judged(self, judge: Callable[[Beside], R]) -> R:
        if self._since:  # one of them is asked for anew in each evaluation: the server's retention moves on
            del self._since[next(iter(self._since))]
        with self._own() as own:
            return judge(Beside(PrometheusCounts(self._client, self._since), own))

    @contextmanager
    def _own(self) -> Iterator[SqliteStore | None]:
        """Our own store, `None` while it cannot be read."""
        try:
            own = self._open_own()
        except StoreError:
            yield None
            return
        with own:
            yield own
