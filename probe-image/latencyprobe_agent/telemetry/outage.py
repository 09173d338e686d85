"""The log of a collector's outages: one warning when one begins, one line when it ends."""

import logging
import time

from latencyprobe.text import printable
from latencyprobe_agent.telemetry.endpoints import OtlpSignal
from latencyprobe_agent.telemetry.otlp import Answer

_log = logging.getLogger(__name__)
_MESSAGE = 300  # characters of what a collector says


class Outage:
    """The outages of one collector for one OTLP signal."""

    def __init__(self, signal: OtlpSignal, collector: str, capacity_bytes: int) -> None:
        self._signal = signal
        self._items = "spans" if signal == "traces" else "data points"
        self._collector = collector
        self._capacity_bytes = capacity_bytes
        self._down_since: float | None = None
        self._lost = 0

    def of(self, items: int) -> tuple[str, int, str]:
        """Return collector, number and name of items, for a message."""
        return self._collector, items, self._items

    def lost(self, items: int) -> None:
        """Count items that nobody got."""
        self._lost += items

    def failed(self, answer: Answer) -> None:
        """Note a failed attempt; the first one is worth a warning."""
        if self._down_since is not None:
            return
        self._down_since = time.monotonic()
        self._lost = 0
        fate = f"up to {self._capacity_bytes >> 20} MiB wait, then the oldest are dropped"
        if not answer.retryable:
            variable = f"OTEL_{self._signal.upper()}_EXPORTER"
            fate = f"they are dropped and counted; if it takes no {self._signal}, set {variable}=none"
        _log.warning("collector %s: %s: no %s delivered; %s", self._collector, _shown(answer.detail), self._items, fate)

    def succeeded(self, rejected: int, why: str) -> None:
        """Note a delivery, of which the collector rejected some items, as it says why."""
        if rejected:
            _log.warning(
                "collector %s refused %d %s of a request: %s", *self.of(rejected), _shown(why) or "no reason given"
            )
        if self._down_since is not None:
            away_s = time.monotonic() - self._down_since
            self._down_since = None
            _log.info(
                "collector %s is back after %.0f s: %d %s were dropped",
                self._collector,
                away_s,
                self._lost,
                self._items,
            )


def _shown(detail: str) -> str:
    """Return what a collector says as text that steers no terminal."""
    return printable(detail[:_MESSAGE])
