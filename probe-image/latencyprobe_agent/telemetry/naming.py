"""Spans with stacks of programs are encoded in a thread of their own: naming may take long.

Whoever measures never waits for a name. Where too many spans wait, or the end has come, they go out without these.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable, Sequence

from latencyprobe_agent.signals.evidence import Stack
from latencyprobe_agent.telemetry import span_encoder
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.span_encoder import Context
from latencyprobe_agent.telemetry.span_rows import Ready

_log = logging.getLogger(__name__)
_BATCHES = 16  # of a second each
_END_S = 1.0


class Naming:
    """Sends to `outbox`. `user`: what names a stack; called in one thread only, started with the first batch.

    `unnamed`: spans that went out without names of their programs' functions.
    """

    def __init__(self, outbox: Outbox, user: Callable[[Stack], Sequence[str]], *, end_s: float = _END_S) -> None:
        self.unnamed = 0
        self._outbox = outbox
        self._user = user
        self._end_s = end_s
        self._change = threading.Condition()
        self._waiting: deque[tuple[Ready, Context]] = deque()
        self._ended = False
        self._thread: threading.Thread | None = None

    def put(self, ready: Ready, context: Context) -> None:
        """Let spans be named and sent."""
        with self._change:
            room = len(self._waiting) < _BATCHES
            if room:
                self._waiting.append((ready, context))
                self._change.notify()
        if not room:
            self._send_unnamed(ready, context)
        elif self._thread is None:
            self._thread = threading.Thread(target=self._run, name="naming", daemon=True)
            self._thread.start()

    def close(self) -> None:
        """Send all that still wait: those that have no names within a second, without."""
        with self._change:
            self._ended = True
            self._change.notify()
        self.ended(self._end_s)
        with self._change:
            left = list(self._waiting)
            self._waiting.clear()
        for one in left:
            self._send_unnamed(*one)

    def ended(self, timeout_s: float) -> bool:
        """Wait for the thread. Return whether it has ended, or never began."""
        if self._thread is not None:
            self._thread.join(timeout_s)
        return self._thread is None or not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            with self._change:
                self._change.wait_for(lambda: self._waiting or self._ended)
                if not self._waiting:
                    return
                first = ready, context = self._waiting[0]
            try:
                named = context._replace(naming=context.naming._replace(user=self._user))
                requests = list(span_encoder.requests(ready, named))
            except Exception:
                _log.exception("stacks of programs have no names")
                requests = None
            with self._change:
                if not self._waiting or self._waiting[0] is not first:
                    return  # the end has come: they went out without
                self._waiting.popleft()
                for body, count in requests or ():
                    self._outbox.put(body, count)
            if requests is None:
                self._send_unnamed(ready, context)

    def _send_unnamed(self, ready: Ready, context: Context) -> None:
        self.unnamed += len(ready)
        for body, count in span_encoder.requests(ready, context):
            self._outbox.put(body, count)
