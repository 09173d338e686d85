"""The agent: load, turn the one loop, and when measuring is impossible say why and try again.

The same standalone and in a cluster. `commands.py` builds an `Agent` and calls `run()`; `measuring.py` does the work
of each turn, `control.py` says what to measure and takes the counts, `telemetry/pipeline.py` is what leaves over OTLP.
"""

import logging
import math
import time
from collections.abc import Callable, Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from latencyprobe.errors import Unsupported
from latencyprobe.plan import AgentStatus, TargetStatus
from latencyprobe_agent.config import Config
from latencyprobe_agent.control import Control
from latencyprobe_agent.health import Health
from latencyprobe_agent.kernel.records import ExchangeClass
from latencyprobe_agent.measuring import Measuring, Moment
from latencyprobe_agent.telemetry.endpoints import Settings

if TYPE_CHECKING:
    from latencyprobe_agent.telemetry.pipeline import Pipeline

_log = logging.getLogger(__name__)
_GOODBYE_S = 2.0  # twice, for collector and directory: SIGTERM to exit stays below 5 s


class Export(NamedTuple):
    """Where to export, nowhere by default. `shared_key`: another host was given the same pairing key."""

    endpoints: tuple[Settings, ...] = ()
    delta: bool = False
    shared_key: bool = False


class Agent:
    """One agent. `watch` is called with every tick's Moment, in the loop; `attached` once measuring has begun."""

    def __init__(
        self,
        config: Config,
        control: Control,
        export: Export,
        *,
        watch: Callable[[Moment], None] = lambda _: None,
        attached: Callable[[], None] = lambda: None,
    ) -> None:
        self.health = Health()
        self._config = config
        self._control = control
        self._export = export
        self._watch = watch
        self._attached = attached
        self._stopped = False

    def stop(self) -> None:
        """End the loop at its next turn. Safe in a signal handler: it takes no lock."""
        self._stopped = True

    def run(self, duration_s: float | None = None) -> None:
        """Measure until `stop()`, or for `duration_s` once attached.

        Raises Unsupported where the control is not patient; else says why and tries again every minute.
        """
        self._control.start()
        said = ""
        try:
            while not self._stopped:
                try:
                    with Measuring(self._config, self._control) as measuring:
                        said = ""
                        self._turn(measuring, duration_s)
                except Unsupported as error:
                    if not self._control.patient:
                        raise
                    if str(error) != said:
                        _log.error("%s; next try in %.0f s", error, self._config.retry_load_s)
                    said = str(error)
                    self._tell(None, {}, error)
                    self._idle()
        finally:
            self.health.measuring = False
            self._control.stop(_GOODBYE_S)

    def _turn(self, measuring: Measuring, duration_s: float | None) -> None:
        config, started_unix_ns = self._config, time.time_ns()
        measuring.follow()
        self.health.measuring = True
        self._attached()
        _log.info("attached", extra={"variants": dict(measuring.variants)})
        pipeline = self._pipeline(started_unix_ns)
        measuring.export_to(pipeline)
        now = time.monotonic()
        until = math.inf if duration_s is None else now + duration_s
        tick, upload, export = now, now + config.upload_interval_s, now + config.metric_interval_s
        try:
            while now < until and not self._stopped:
                measuring.programs.wait(max(0.0, min(config.drain_interval_s, tick - now, until - now)))
                measuring.drain()
                if (now := time.monotonic()) < tick:
                    continue
                tick = max(tick + config.tick_s, now)  # a host that slept does not make up for the ticks it missed
                moment = measuring.tick()
                self.health.turned()
                self._tell(moment, measuring.variants, measuring.problem)
                if moment:
                    self._watch(moment)
                if now >= upload:
                    upload = now + config.upload_interval_s
                    measuring.upload()
                if now >= export and moment:
                    export = now + config.metric_interval_s
                    measuring.export(moment)
            self.stop()
            if moment := measuring.end():
                self._watch(moment)
        finally:
            self.health.measuring = False
            if pipeline:
                pipeline.stop(_GOODBYE_S)

    def _pipeline(self, started_unix_ns: int) -> "Pipeline | None":
        if not self._export.endpoints:
            return None
        # Here and not above: protobuf and HTTP are loaded while the programs already count.
        from latencyprobe_agent.telemetry.pipeline import Origin, Pipeline  # noqa: PLC0415

        origin = Origin(
            config=self._config,
            peers=self._control.peers,
            shared_key=self._export.shared_key,
            start_unix_ns=started_unix_ns,
        )
        return Pipeline.open(origin, self._export.endpoints, delta=self._export.delta)

    def _tell(self, moment: Moment | None, variants: Mapping[str, str], problem: Unsupported | None) -> None:
        self._control.tell(
            AgentStatus(
                instance=self._config.instance,
                boot_id=_boot_id(),
                version=_version(),
                generation=moment.plan.generation if moment else 0,
                variants=dict(variants),
                error=str(problem or ""),
                reason=problem.reason if problem else "",
                targets=target_statuses(moment) if moment else (),
                lost=dict(moment.lost) if moment else {},
            )
        )

    def _idle(self) -> None:
        until = time.monotonic() + self._config.retry_load_s
        while time.monotonic() < until and not self._stopped:
            time.sleep(self._config.tick_s)
            self.health.turned()


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _version() -> str:
    return version("latencyprobe")


def target_statuses(moment: Moment) -> tuple[TargetStatus, ...]:
    """Return what was seen of each target of the plan, on both sides together."""
    keys, totals = moment.keys, moment.totals
    return tuple(
        TargetStatus(
            id=target.id,
            seen=int(classes.sum()),
            classes={kind.name.lower(): int(classes[kind]) for kind in ExchangeClass if classes[kind]},
            lost={"ring_full": lost} if (lost := int(totals["lost_records"][rows].sum())) else {},
        )
        for target in moment.plan.targets
        for rows in [
            np.isin(keys["target_set"], [i for i, one in moment.rules.sets.items() if target.id in one.targets])
        ]
        for classes in [totals["classes"][rows].sum(axis=0)]
    )
