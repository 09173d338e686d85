"""Requests on their way to a collector: a queue bounded in bytes and one sending thread per OTLP signal.

`put()` never waits. A collector that is away costs nothing but memory up to the bound; then the oldest requests are
dropped and counted, of the namespace that most bytes wait of. An outage is one warning and its end one line, however
long it takes.
"""

import logging
import random
import threading
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from latencyprobe_agent.telemetry.endpoints import OtlpSignal
from latencyprobe_agent.telemetry.otlp import Answer, FakeTransport, Transport
from latencyprobe_agent.telemetry.outage import Outage

_log = logging.getLogger(__name__)
_FIRST_RETRY_S = 1.0
_LONGEST_RETRY_S = 30.0


class _Request(NamedTuple):
    body: bytes
    items: int  # spans, or data points
    whose: Sequence[str]  # namespaces, which have a part each


class _Backlog:
    """Requests that wait, bounded in bytes. `dropped_items`: of those that found no room."""

    def __init__(self, capacity_bytes: int) -> None:
        self.size_bytes = 0
        self.dropped_items = 0
        self.requests: deque[_Request] = deque()
        self._capacity_bytes = capacity_bytes

    def put(self, request: _Request) -> int:
        """Append a request; drop others above the capacity. Return how many items that were."""
        self.requests.append(request)
        self.size_bytes += len(request.body)
        dropped = 0
        while self.size_bytes > self._capacity_bytes and len(self.requests) > 1:
            dropped += self._drop().items
        self.dropped_items += dropped
        return dropped

    def take(self) -> _Request:
        """Remove the oldest request."""
        request = self.requests.popleft()
        self.size_bytes -= len(request.body)
        return request

    def _drop(self) -> _Request:
        """Remove the oldest request of the namespace of which most bytes wait: nobody pushes out who has less."""
        held = Counter[str]()
        for request in self.requests:
            for name in request.whose:
                held[name] += len(request.body) // len(request.whose)
        most = max(held, key=lambda name: held[name])
        request = next(request for request in self.requests if most in request.whose)
        self.requests.remove(request)
        self.size_bytes -= len(request.body)
        return request

    def drop_all(self) -> int:
        """Drop everything. Return how many items that were."""
        dropped = 0
        while self.requests:
            dropped += self.take().items
        self.dropped_items += dropped
        return dropped


class Outbox:
    """Counters are cumulative. `items`: spans or data points; `errors`: failed attempts by `error.type`."""

    def __init__(self, transport: Transport, *, signal: OtlpSignal, collector: str, capacity_bytes: int) -> None:
        self.sent_items = 0
        self.errors: Counter[str] = Counter()
        self._refused_items = 0
        self._transport = transport
        self._backlog = _Backlog(capacity_bytes)
        self._outage = Outage(signal, collector, capacity_bytes)
        self._change = threading.Condition()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name=f"otlp-{signal}", daemon=True)

    @property
    def size_bytes(self) -> int:
        """Bytes that wait."""
        return self._backlog.size_bytes

    @property
    def dropped_items(self) -> int:
        """Items that nobody got: for want of room, or because the collector does not take them."""
        return self._backlog.dropped_items + self._refused_items

    def start(self) -> None:
        """Start sending."""
        self._thread.start()

    def put(self, body: bytes, items: int, whose: Sequence[str] = ("",)) -> None:
        """Queue one encoded request; above the capacity others go. `whose`: the namespaces that it tells of."""
        with self._change:
            self._outage.lost(self._backlog.put(_Request(body, items, whose)))
            self._change.notify()

    def stop(self, timeout_s: float) -> None:
        """Send what is left, without waiting between attempts, for at most `timeout_s` or until one fails that could be
        tried again; what then remains is counted as dropped."""
        with self._change:
            self._stopping = True
            self._change.notify()
        self._thread.join(timeout_s)
        with self._change:
            left = self._backlog.drop_all()
        if left:
            _log.warning("%s: %d %s could not be delivered before the end", *self._outage.of(left))

    def _run(self) -> None:
        retry_s = _FIRST_RETRY_S
        while True:
            with self._change:
                self._change.wait_for(lambda: self._backlog.requests or self._stopping)
                if not self._backlog.requests:
                    return
                request = self._backlog.requests[0]
                stopping = self._stopping
            answer = self._attempt(request)
            if answer.error:
                self.errors[answer.error] += 1
                self._outage.failed(answer)
            if answer.error and answer.retryable:
                wait_s = max(retry_s * random.uniform(0.8, 1.2), answer.retry_after_s)  # noqa: S311 - jitter
                retry_s = min(retry_s * 2, _LONGEST_RETRY_S)
                if stopping:
                    return
                with self._change:
                    self._change.wait_for(lambda: self._stopping, timeout=wait_s)
                continue
            retry_s = _FIRST_RETRY_S
            rejected = min(max(answer.rejected, 0), request.items)  # whatever a collector says, counters only grow
            with self._change:
                if self._backlog.requests and self._backlog.requests[0] is request:  # else dropped, and counted there
                    self._backlog.take()
                    refused = request.items if answer.error else rejected
                    self.sent_items += request.items - refused
                    self._refused_items += refused
                    self._outage.lost(refused if answer.error else 0)
            if not answer.error:
                self.errors.update(["partial_success"] if rejected else ())
                self._outage.succeeded(rejected, answer.detail)

    def _attempt(self, request: _Request) -> Answer:
        try:
            return self._transport.send(request.body)
        except Exception as error:  # without its text: that of a header that cannot be sent has the header's value
            kind = type(error).__name__
            return Answer(kind, f"{kind}: the request could not be made")


class FakeOutbox(Outbox):
    """`Outbox` for tests: keeps `bodies` and sends nothing."""

    def __init__(self) -> None:
        super().__init__(FakeTransport(), signal="traces", collector="nobody", capacity_bytes=0)
        self.bodies: list[bytes] = []

    def start(self) -> None:
        """Start nothing."""

    def put(self, body: bytes, items: int, whose: Sequence[str] = ("",)) -> None:
        """Keep the body."""
        self.bodies.append(body)

    def stop(self, timeout_s: float) -> None:
        """Nothing is left."""
