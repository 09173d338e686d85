"""The agent: load, turn the loop; when the kernel refuses, report why and try again. Alone and in a cluster."""

import logging
import math
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import NamedTuple

from latencyprobe.errors import Unsupported
from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.loop import status
from latencyprobe_agent.loop.control import Control
from latencyprobe_agent.loop.health import Health
from latencyprobe_agent.loop.loop import Loop
from latencyprobe_agent.measure.turn import Listener
from latencyprobe_agent.vocabulary.now import Now

_log = logging.getLogger(__name__)
_STOP_TIMEOUT_S = 2.0  # for the directory, and as long again for a collector: SIGTERM to exit stays below 5 s


class Audience(NamedTuple):
    """Who listens. `open`: from the time when the programs began to count to the listeners, which are closed before it
    is left; `sampling`: one of them makes spans."""

    open: Callable[[Now], AbstractContextManager[Sequence[Listener]]]
    sampling: bool = False


def load_programs(config: Config) -> Programs:
    """Load and attach. Raises Unsupported when this kernel refuses, or this process cannot open what that takes."""
    try:
        return Programs.open(config.bpf_object, ring_bytes=config.ring_size)
    except OSError as error:
        raise Unsupported("KernelUnsupported", f"the programs cannot be loaded: {error}") from error


class Agent:
    """One agent. Its parts fail alone (`guard`, also that of its control's threads): nothing but the kernel's refusal
    ends measuring.

    `safe_mode`: why it counts alone, without evidence; when that has passed the agent ends, to be started anew.
    """

    def __init__(
        self,
        config: Config,
        control: Control,
        audience: Audience,
        load: Callable[[Config], Programs] = load_programs,
        *,
        safe_mode: Callable[[], str] = str,
        guard: Guard | None = None,
    ) -> None:
        self.health = Health()
        self.guard = guard or Guard()
        self._config = config
        self._control = control
        self._audience = audience
        self._load = load
        self._safe_mode = safe_mode
        self._stopped = False

    def stop(self) -> None:
        """End the loop at its next turn. Safe in a signal handler: it takes no lock."""
        self._stopped = True

    def run(self, duration_s: float | None = None) -> None:
        """Measure until `stop()`, or for `duration_s` once attached.

        Raises Unsupported where the control is not patient; else reports why and tries again every minute.
        """
        self._control.start()
        reported = ""
        try:
            while not self._stopped:
                if self._suspended():
                    self._wait_suspended()
                    continue
                try:
                    programs, sampling = self._load(self._config), self._audience.sampling
                    with Loop(
                        *(programs, self._config, self._control),
                        sampling=sampling,
                        evidence=not self._safe_mode(),
                        guard=self.guard,
                    ) as loop:
                        reported = ""
                        self._measure(loop, duration_s)
                except Unsupported as error:
                    if not self._control.patient:
                        raise
                    if str(error) != reported:
                        _log.error("%s; next try in %.0f s", error, self._config.retry_load_s)
                    reported = str(error)
                    self._control.report(status.refused(self._config, error))
                    self._idle()
        finally:
            self.health.measuring = False
            self._control.stop(_STOP_TIMEOUT_S)

    def _measure(self, loop: Loop, duration_s: float | None) -> None:
        self.guard.run("plan", loop.attachment.follow)
        self.health.measuring = True
        _log.info("attached", extra={"variants": dict(loop.variants)})
        until_s = math.inf if duration_s is None else time.monotonic() + duration_s
        if safe_mode := self._safe_mode():
            _log.error("safe mode: counts alone, without spans, metrics and evidence, because %s", safe_mode)

        suspended = False  # also if that has passed when the listeners are closed

        def running() -> bool:
            nonlocal suspended
            suspended = suspended or self._suspended()
            return time.monotonic() < until_s and not self._stopped and not suspended

        seen = status.Seen()

        def each_tick() -> None:
            self.health.turned()
            self.guard.run("status", lambda: self._report(loop, seen, safe_mode))
            if safe_mode and not self._safe_mode():
                self.stop()

        with self._audience.open(loop.parts.clock.now()) as listeners:
            loop.turn(listeners, self._config, running, each_tick)
        if not suspended:
            self.stop()

    def _report(self, loop: Loop, seen: status.Seen, safe_mode: str) -> None:
        problem, failing = loop.attachment.problem, {**self.guard.problems, **self._control.problems()}
        sampling = self._audience.sampling
        self._control.report(
            status.measuring(
                *(self._config, loop.last, loop.variants, problem, failing),
                seen=seen,
                sampling=sampling,
                refused=loop.parts.evidence.refused,
                loading=loop.parts.evidence.loading,
                safe_mode=safe_mode,
            )
        )

    def _suspended(self) -> bool:
        plan = self._control.plan()
        return plan is not None and plan.suspend

    def _wait_suspended(self) -> None:
        """Wait until the plan asks for something. Nothing is attached meanwhile."""
        self.health.measuring = False
        _log.warning("suspended: nothing is attached")
        while not self._stopped and (plan := self._control.plan()) is not None and plan.suspend:
            self._control.report(status.suspended(self._config, plan))
            time.sleep(self._config.tick_s)
            self.health.turned()

    def _idle(self) -> None:
        until = time.monotonic() + self._config.retry_load_s
        while time.monotonic() < until and not self._stopped:
            time.sleep(self._config.tick_s)
            self.health.turned()
