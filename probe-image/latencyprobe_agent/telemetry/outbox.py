"""Between the loop and a collector: a queue bounded in bytes and one sending thread per signal.

`put()` never waits. A collector that is away costs nothing but memory up to the bound; then the oldest requests are
dropped and counted. An outage is one warning and its end one line, however long it takes.
"""

import logging
import random
import threading
import time
from collections import Counter, deque
from typing import NamedTuple

from latencyprobe_agent.telemetry.endpoints import OtlpSignal
from latencyprobe_agent.telemetry.otlp import Answer, Transport

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class _Request(NamedTuple):
    body: bytes
    items: int  # spans, or data points


class Outbox:
    """Counters are cumulative. `items`: spans or data points; `errors`: failed attempts by `error.type`."""

    def __init__(self, transport: Transport, *, signal: OtlpSignal, collector: str, capacity_bytes: int) -> None:
        self.sent_items = 0
        self.dropped_items = 0
        self.size_bytes = 0
        self.errors: Counter[str] = Counter()
        self._transport = transport
        self._signal = signal
        self._name = "spans" if signal == "traces" else "data points"
        self._collector = collector
        self._capacity = capacity_bytes
        self._queue: deque[_Request] = deque()
        self._change = threading.Condition()
        self._stop_at: float | None = None
        self._down_since: float | None = None
        self._lost_in_outage = 0
        self._thread = threading.Thread(target=self._run, name=f"otlp-{signal}", daemon=True)

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def put(self, body: bytes, items: int) -> None:
        """Queue one encoded request; above the capacity the oldest ones go."""
        with self._change:
            self._queue.append(_Request(body, items))
            self.size_bytes += len(body)
            while self.size_bytes > self._capacity and len(self._queue) > 1:
                self._drop(self._queue.popleft())
            self._change.notify()

    def stop(self, timeout_s: float) -> None:
        """Send what is left, for at most `timeout_s`; what then remains is counted as dropped."""
        with self._change:
            self._stop_at = time.monotonic() + timeout_s
            self._change.notify()
        self._thread.join(timeout_s)
        with self._change:
            left = sum(request.items for request in self._queue)
            while self._queue:
                self._drop(self._queue.popleft())
        if left:
            _log.warning("%s: %d %s could not be delivered before the end", self._collector, left, self._name)

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            with self._change:
                self._change.wait_for(lambda: self._queue or self._stop_at is not None)
                if not self._queue:
                    return
                request = self._queue[0]
            answer = self._transport.send(request.body)
            if answer.error:
                self.errors[answer.error] += 1
                self._report_failure(answer)
            if answer.error and answer.retryable:
                wait_s = max(retry_s * random.uniform(0.8, 1.2), answer.retry_after_s)  # noqa: S311 - jitter
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
                if self._wait(wait_s):
                    return
                continue
            retry_s = _FIRST_RETRY_S
            with self._change:
                if self._queue and self._queue[0] is request:  # else dropped meanwhile, and counted there
                    self._queue.popleft()
                    self.size_bytes -= len(request.body)
                    self.sent_items += 0 if answer.error else request.items - answer.rejected
                    self.dropped_items += request.items if answer.error else answer.rejected
                    self._lost_in_outage += request.items if answer.error else 0
            if not answer.error:
                self._report_success(answer.rejected)

    def _wait(self, seconds: float) -> bool:
        """Wait before the next attempt. Return whether there shall be none."""
        with self._change:
            self._change.wait_for(lambda: self._stop_at is not None, timeout=seconds)
            return self._stop_at is not None

    def _drop(self, request: _Request) -> None:
        self.size_bytes -= len(request.body)
        self.dropped_items += request.items
        self._lost_in_outage += request.items

    def _report_failure(self, answer: Answer) -> None:
        if self._down_since is not None:
            return
        self._down_since = time.monotonic()
        self._lost_in_outage = 0
        fate = f"up to {self._capacity >> 20} MiB wait, then the oldest are dropped"
        if not answer.retryable:
            variable = f"OTEL_{self._signal.upper()}_EXPORTER"
            fate = f"they are dropped and counted; if it takes no {self._signal}, set {variable}=none"
        _log.warning("collector %s: %s: no %s delivered; %s", self._collector, answer.detail, self._name, fate)

    def _report_success(self, rejected: int) -> None:
        if rejected:
            self.errors["partial_success"] += 1
            _log.warning("collector %s refused %d %s of a request", self._collector, rejected, self._name)
        if self._down_since is not None:
            away_s = time.monotonic() - self._down_since
            self._down_since = None
            _log.info(
                "collector %s is back after %.0f s: %d %s were dropped",
                *(self._collector, away_s, self._lost_in_outage, self._name),
            )
