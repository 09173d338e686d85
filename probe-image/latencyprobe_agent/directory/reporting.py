"""Hands the agent's status to the directory, in a thread of its own: no upload and no disk keeps it back."""

import logging
import threading
import time
from collections import Counter
from functools import partial

import msgspec

from latencyprobe.plan import AgentStatus
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.directory.client import Directory, DocumentError
from latencyprobe_agent.guard import Guard

_log = logging.getLogger(__name__)
_RETRY_S = 2.0
_BYTES = 900 << 10  # the directory takes 1 MiB


class Reporting:
    """Sends the newest status at once when something other than counts has changed, or the plan stream is a new one, as
    its directory may know nothing; else after `interval_s`, or what the directory says if that is longer.

    Where one change of a large cluster is a new plan for every node, that one has a new plan is said less often, by
    how long the directory wants all agents to take (`Returning.spread_s`).
    """

    def __init__(self, directory: Directory, interval_s: float, guard: Guard | None = None) -> None:
        self._directory = directory
        self._interval_s = interval_s
        self._newest: AgentStatus | None = None
        self._sent: AgentStatus | None = None
        self._sent_s = 0.0
        self._sent_on = 0  # which stream
        self._posts = Attempts("status_post", guard=guard)  # where nobody is, the uplink and the plan tell of it
        self._stopped = False
        self._lock = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="status", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def report(self, status: AgentStatus) -> None:
        """Replace the status to be sent."""
        with self._lock:
            self._newest = status
            self._lock.notify()

    def stop(self, timeout_s: float) -> None:
        """Send what has changed, for at most `timeout_s`."""
        with self._lock:
            self._stopped = True
            self._lock.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while status := self._next():
            if not self._posts.run(partial(self._post, status)):
                with self._lock:
                    if self._stopped or self._lock.wait_for(lambda: self._stopped, timeout=_RETRY_S):
                        return

    def _post(self, status: AgentStatus) -> bool:
        stream = self._directory.returning.streams
        try:
            self._directory.status(fitting(status))
        except DocumentError as error:  # says it again at the next interval
            _log.error("status refused: %s", error)
        self._sent, self._sent_s, self._sent_on = status, time.monotonic(), stream
        return True

    def _next(self) -> AgentStatus | None:
        """Wait until a status is due; None at the end."""
        with self._lock:
            while not self._due():
                if self._stopped:
                    return None
                self._lock.wait(1.0)
            return self._newest

    def _due(self) -> bool:
        newest, sent = self._newest, self._sent
        if newest is None:
            return False
        if sent is None or _urgent(newest) != _urgent(sent) or self._sent_on != self._directory.returning.streams:
            return True
        pause_s = max(self._interval_s, self._directory.status_s)
        if newest.generation != sent.generation:
            pause_s = min(self._interval_s, self._directory.returning.spread_s / 2)
        return time.monotonic() - self._sent_s >= pause_s


def fitting(status: AgentStatus, room: int = _BYTES) -> AgentStatus:
    """Return a status of at most `room` bytes. Where there are too many targets those of the namespace that needs most
    are left out, the refused ones last, until the rest fits: who needs no more than an equal share is never touched."""
    excess = len(msgspec.json.encode(status)) - room
    if excess <= 0:
        return status
    sizes = {one.id: len(msgspec.json.encode(one)) + 1 for one in status.targets}
    of: dict[str, list[str]] = {}
    # in an order that no count changes: the same ones are left out each time
    for one in sorted(status.targets, key=lambda one: (bool(one.refused), one.id)):
        of.setdefault(one.id.partition("/")[0], []).append(one.id)
    left_out: dict[str, str] = {}  # target -> namespace
    for namespace in sorted(of, key=lambda name: (-sum(sizes[target] for target in of[name]), name)):
        for target in of[namespace]:
            if excess > 0:
                left_out[target] = namespace
                excess -= sizes[target]
    targets = tuple(one for one in status.targets if one.id not in left_out)
    return msgspec.structs.replace(status, targets=targets, untold=dict(Counter(left_out.values())))


def _urgent(status: AgentStatus) -> tuple[object, ...]:
    """Return what cannot wait: counts can, and a plan that is another one for a while."""
    refused = tuple((target.id, target.refused) for target in status.targets if target.refused)
    return status.variants, status.error, tuple(status.failing), refused, status.loading
