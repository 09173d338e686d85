"""Opens what sends telemetry: an outbox per OTLP signal, and the listeners that fill it.

Import it only where OTLP is asked for, and after the programs are attached: protobuf and HTTP cost time and memory that
measuring does not need.
"""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.calls import HELD_NS
from latencyprobe_agent.measure.turn import Listener
from latencyprobe_agent.telemetry import otlp
from latencyprobe_agent.telemetry.endpoints import OtlpSignal, Settings
from latencyprobe_agent.telemetry.exemplar_series import ExemplarSeries
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.telemetry.span_evidence import Names
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.undelivered import Undelivered


class Exporters(AbstractContextManager["Exporters"]):
    """`listeners`: Spans, Metrics, as `endpoints` ask for them. Leaving it delivers what is queued.

    `peers`: None standalone. `shared_key`: another host was given the same pairing key. `stop_timeout_s`: for that
    delivery. `naming`: of stacks; `undelivered`: what became of SLI rows. Raises ConfigError where gRPC is asked for
    but not installed.
    """

    def __init__(
        self,
        endpoints: Sequence[Settings],
        config: Config,
        peers: Peers | None,
        start: Now,
        *,
        delta: bool,
        shared_key: bool,
        stop_timeout_s: float,
        naming: Names,
        undelivered: Callable[[], Undelivered],
    ) -> None:
        self._stop_timeout_s = stop_timeout_s
        self.outboxes: dict[OtlpSignal, Outbox] = {
            one.signal: Outbox(
                otlp.transport(one),
                signal=one.signal,
                collector=one.url,
                capacity_bytes=config.outbox_bytes // len(endpoints),
            )
            for one in endpoints
        }
        self.listeners: list[Listener] = []
        capacity = _capacity(config)
        exemplars = ExemplarSeries(capacity if {"traces", "metrics"} <= self.outboxes.keys() else 0)
        room = None
        if traces := self.outboxes.get("traces"):
            room = WaitingRoom(
                identity_wait_s=config.identity_wait_s, join_wait_s=config.join_wait_s, capacity=capacity
            )
            self.listeners.append(
                Spans(
                    *(traces, room, peers or Peers(None)),
                    shared_key=shared_key,
                    naming=naming,
                    admitted=exemplars.put,
                )
            )
        if metrics := self.outboxes.get("metrics"):
            own = SelfMetrics(self.outboxes, room, config, standalone=peers is None, undelivered=undelivered)
            self.listeners.append(Metrics(metrics, own, config, peers, start=start, delta=delta, exemplars=exemplars))
        for outbox in self.outboxes.values():
            outbox.start()

    def __exit__(self, *_: object) -> None:
        for outbox in self.outboxes.values():
            outbox.stop(self._stop_timeout_s / len(self.outboxes))


def _capacity(config: Config) -> int:
    """Return how many spans the node's budget can make in the longest wait."""
    return int(config.spans_per_second * max(config.identity_wait_s, config.remote_join_wait_s, HELD_NS / 1e9))
