"""Hands SLI counts to the directory: one thread keeps them on disk, one sends, so that neither a slow disk nor a slow
operator delays measuring.

One batch is in flight and keeps its sequence number until it is accepted, so an answer that was lost on the way counts
nothing twice (docs/design/directory.md, "Sequence numbers"). The directory says when it wants the next ones.
"""

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Iterable
from functools import partial

from latencyprobe.shares import shares
from latencyprobe.sli import SliRow
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.directory.client import Directory, DocumentError
from latencyprobe_agent.directory.spool import CAPACITY_ROWS
from latencyprobe_agent.directory.waiting import WaitingRows
from latencyprobe_agent.guard import Guard

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 2.0
_LONGEST_RETRY_S = 10.0  # a minute is evaluated 15 s after its end
_LONGEST_PAUSE_S = 300.0
_WHOLE_MINUTES_S = 15.0  # where pauses are as long, each minute goes once it is over: it is complete no later for it
_LOOK_S = 60.0  # what is left on a disk that works again goes without new rows too


class Uplink:
    """Takes rows, and hands them over when the directory wants them."""

    def __init__(self, directory: Directory, waiting: WaitingRows, guard: Guard | None = None) -> None:
        self._directory = directory
        self._waiting = waiting
        self._taken: list[SliRow] = []  # not yet on disk
        self._due_s = 0.0
        self._stopped = False
        self._keeping = Attempts("spool", guard=guard)
        self._sending = Attempts("uplink", "counts wait up to 24 h", guard)
        self._lock = threading.Condition()
        self._keeper = threading.Thread(target=self._keep, name="spool", daemon=True)
        self._sender = threading.Thread(target=self._send, name="uplink", daemon=True)

    @property
    def problem(self) -> str:
        """Why the directory does not take what is sent, empty while it does."""
        return self._sending.problem

    def start(self) -> None:
        """Start with what an earlier process has left."""
        self._keeper.start()
        self._sender.start()

    def add(self, rows: Iterable[SliRow]) -> None:
        """Queue rows; equal objective and minute are added up."""
        with self._lock:
            self._taken += rows
            if (excess := len(self._taken) - CAPACITY_ROWS) > 0:  # the disk does not answer
                self._waiting.dropped["no_room"] += excess
                self._taken = _within_shares(self._taken, CAPACITY_ROWS)
            self._lock.notify_all()

    def stop(self, timeout_s: float) -> None:
        """Keep and send what is left, for at most `timeout_s`."""
        with self._lock:
            self._stopped = True
            self._lock.notify_all()
        until_s = time.monotonic() + timeout_s
        self._keeper.join(timeout_s)
        self._sender.join(max(0.0, until_s - time.monotonic()))
        if not self._sender.is_alive():
            self._waiting.close()

    def _keep(self) -> None:
        rows: list[SliRow] = []
        while True:
            if not self._keeping.run(partial(self._put_away, rows)):
                self._waiting.dropped["failed"] += len(rows)
            with self._lock:
                self._lock.notify_all()
                self._lock.wait_for(lambda: self._taken or self._stopped, timeout=_LOOK_S)
                rows, self._taken = self._taken, []
                if not rows and self._stopped:
                    return

    def _put_away(self, rows: list[SliRow]) -> bool:
        self._waiting.open()
        if rows:
            self._waiting.add(rows)
        return True

    def _send(self) -> None:
        retry_s, told_s = _FIRST_RETRY_S, 0.0
        while self._wait():
            wanted_s = self._sending.run(partial(self._upload, told_s))
            if wanted_s is not None:
                told_s = wanted_s
                pause_s, spread = wanted_s, (0.9, 1.0)  # later, and its minute would be evaluated without
                retry_s = _FIRST_RETRY_S
            elif self._stopped:
                return
            else:
                pause_s, spread = self._sending.retry_after_s or retry_s, (1.0, 1.1)
                retry_s = min(2 * retry_s, _LONGEST_RETRY_S)
            pause_s = min(pause_s, _LONGEST_PAUSE_S) * random.uniform(*spread)  # noqa: S311 - spreads agents, no secret
            self._due_s = time.monotonic() + pause_s

    def _wait(self) -> bool:
        """Wait until there are rows and they may go; return False when none are left at the end."""
        with self._lock:
            while not self._stopped:
                pause_s = self._due_s - time.monotonic()
                if self._waiting and pause_s <= 0:
                    return True
                self._lock.wait(max(pause_s, 0.0) if self._waiting else None)
        self._keeper.join()
        return bool(self._waiting)

    def _upload(self, pause_s: float) -> float:
        """Send what waits, batch by batch. Return for how long the directory wants no more, in seconds; `pause_s`: for
        how long it did before."""
        whole = pause_s >= _WHOLE_MINUTES_S and not self._stopped
        while batch := self._waiting.batch(whole_minutes=whole):
            try:
                answer = self._directory.sli(batch)
            except DocumentError as error:
                _log.error("SLI counts of %d rows dropped: %s", len(batch.rows), error)
                self._waiting.refused()
                continue
            self._waiting.answered(answer.expected)
            pause_s = answer.next_upload_s
        return pause_s


def _within_shares(rows: list[SliRow], most: int) -> list[SliRow]:
    """Return so many rows, without the first of each namespace that has more than its share."""
    held = Counter(row.namespace for row in rows)
    excess, kept = held - Counter(shares(held, most)), []
    for row in rows:
        if excess[row.namespace]:
            excess[row.namespace] -= 1
        else:
            kept.append(row)
    return kept
