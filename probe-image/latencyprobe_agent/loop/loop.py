"""The one loop while the programs are attached: makes turns, hands them to listeners, does what is due each second."""

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from contextlib import AbstractContextManager, ExitStack
from functools import partial

from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.loop.attach import Attachment
from latencyprobe_agent.loop.background import background
from latencyprobe_agent.loop.canary import Canary
from latencyprobe_agent.loop.control import Control
from latencyprobe_agent.loop.counting import Counting
from latencyprobe_agent.loop.evidence import EvidenceSignals, NoEvidence
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.loop.pressure import PressureReader
from latencyprobe_agent.loop.remote_join import RemoteJoiner
from latencyprobe_agent.loop.turn import Parts, Turns
from latencyprobe_agent.measure.sampling import Sampler
from latencyprobe_agent.measure.turn import Listener, Turn

_log = logging.getLogger(__name__)
_TURNS_AT_ONCE = 256  # then the clock is looked at again


class Loop(AbstractContextManager["Loop"]):
    """Attached programs and the turns that they make. `last`: the last turn with counts.

    `sampling`: somebody makes spans of sampled halves; `evidence`: attach what the plan asks for to explain them;
    `loads`: what loads that and HTTP/2's programs beside the loop (default: a thread). Leaving it detaches.
    """

    def __init__(
        self,
        programs: Programs,
        config: Config,
        control: Control,
        *,
        sampling: bool,
        evidence: bool = True,
        guard: Guard,
        loads: Executor | None = None,
    ) -> None:
        loads = loads or background()
        clock = Clock()
        signals = EvidenceSignals if evidence else NoEvidence
        self.parts = Parts(
            programs=programs,
            clock=clock,
            counting=Counting(programs, config.metric_interval_s, clock.now()),
            http2=Http2(partial(Http2Programs.beside, programs, config.bpf_dir), loads),
            evidence=signals(partial(EvidencePrograms.beside, programs, config.bpf_dir), loads),
            sampler=Sampler(config.spans_per_second) if sampling else None,
            joiner=RemoteJoiner(control.remote_join, config) if control.remote_join else None,
            pressure=PressureReader(config.cgroup_root),
            canary=Canary(programs) if config.pod_uid else None,
        )
        self.attachment = Attachment(programs, self.parts.http2, config, control, named=sampling)
        self._attached = ExitStack()  # its last one leaves first
        for leaves in (
            *(programs.close, loads.shutdown, self.parts.http2.__exit__, self.parts.pressure.close),
            self.parts.evidence.__exit__,
            *((self.parts.canary.close,) if self.parts.canary else ()),
        ):
            self._attached.callback(leaves)
        self.last: Turn | None = None
        self._guard = guard
        self.listeners: Sequence[Listener] = ()
        self._turns = Turns(self.parts, guard)

    def __exit__(self, *_: object) -> None:
        self.detach()

    def detach(self) -> None:
        """Take everything out of the kernel. A second call does nothing."""
        self._attached.close()

    @property
    def variants(self) -> Mapping[str, str]:
        """Attach variant in use by event, those of evidence under their signal's name; and what tells of pressure."""
        of_evidence = {**self.parts.evidence.variants, **self.attachment.variants}
        return {**self.parts.programs.variants, **of_evidence, **self.parts.pressure.variants}

    def turn(
        self, listeners: Sequence[Listener], config: Config, running: Callable[[], bool], each_tick: Callable[[], None]
    ) -> None:
        """Turn as long as `running`, then end what is open, detach, and close the listeners."""
        self.listeners = listeners
        tick_s = time.monotonic()
        try:
            while running():
                self.parts.programs.wait(max(0.0, min(config.drain_interval_s, tick_s - time.monotonic())))
                if (now_s := time.monotonic()) < tick_s:
                    self.drain()
                    continue
                tick_s = max(tick_s + config.tick_s, now_s)  # a host that slept does not make up for missed ticks
                self.tick()
                each_tick()
            self.end()
            self.detach()  # listeners may wait for a collector that does not answer
        finally:
            for listener in listeners:
                self._guard.run(listener.name, listener.close)
            self.listeners = ()

    def drain(self, *, counted: bool = False, last: bool = False) -> None:
        """Turn until the ring is empty. `counted`: the last of these turns has counts, too; `last`: as of `make`."""
        if self.attachment.in_force is None:
            self._turns.discard()
            return
        plan_age_s = self.attachment.plan_age_s if counted else None
        for i in range(1, _TURNS_AT_ONCE + 1):
            settle = i == _TURNS_AT_ONCE
            turn, settled = self._turns.make(self.attachment.in_force, settle=settle, plan_age_s=plan_age_s, last=last)
            if counted and settled:
                self.last = turn
            self._hand(turn)
            if settled:
                return

    def tick(self) -> None:
        """Do what is due once a second: end idle exchanges, follow wall clock, plan and cgroups, drain, read the
        counts: all in one turn, for a turn costs the same of few records as of many."""
        self._guard.run("flush", self.parts.programs.flush)
        if step_ns := self.parts.clock.resample():
            _log.warning("the wall clock stepped by %.3f s; durations are not affected", step_ns / 1e9)
        self._guard.run("plan", lambda: self.attachment.follow(before=partial(self.drain, counted=True)))
        if self.attachment.in_force is not None:
            rules = self.attachment.in_force.rules  # first these: measuring begins before its evidence
            self._guard.run("evidence", lambda: self.parts.evidence.follow(rules, time.monotonic()))
        self._guard.run("evidence", self.parts.evidence.tick)
        if self.parts.canary:
            self._guard.run("canary", self.parts.canary.sing)
        self.drain(counted=True)

    def end(self) -> None:
        """Take everything in that is complete."""
        self._guard.run("plan", self.attachment.end_open_exchanges)
        self._guard.run("flush", self.parts.programs.flush)
        self.drain()
        self._guard.run("evidence", self.parts.evidence.give_up)
        self.drain(counted=True, last=True)

    def _hand(self, turn: Turn) -> None:
        for listener in self.listeners:
            self._turns.give_way()
            self._guard.run(listener.name, partial(listener.take, turn))
