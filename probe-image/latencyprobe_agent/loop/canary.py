"""The canary: an exchange that the agent has with itself every 10 s, through each hook that an exchange passes.

Silence may mean that nobody called anybody, or that a hook is not called any more; this tells one from the other.
docs/design/measurement.md, "The canary".
"""

import logging
import socket
import time
from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import LatencyProbeError
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.canary import ALL_EVENTS, CANARY_SET, silent_events
from latencyprobe_agent.vocabulary.records import EXCHANGE

_log = logging.getLogger(__name__)
_INTERVAL_S = 10.0
_TIMEOUT_S = 1.0  # of a step that takes microseconds
_MESSAGE = b"canary"


class SilentHookError(LatencyProbeError):
    """The kernel does not call a hook; the message names it and the remedy."""


class Canary:
    """Its listener is on the loopback interface, which nobody outside the agent's network namespace reaches.

    Times are s of `clock`.
    """

    def __init__(self, programs: Programs, clock: Callable[[], float] = time.monotonic) -> None:
        self._programs = programs
        self._clock = clock
        self._listener: socket.socket | None = None
        self._records: list[NDArray[np.void]] | None = None  # of the last one, once there was one
        self._silent = ALL_EVENTS  # the last time
        self._lost = 0  # records that the ring had no room for, until then
        self._due_s = self._clock()

    def close(self) -> None:
        """Close the listener."""
        if self._listener is not None:
            self._listener.close()

    def others(self, batch: NDArray[np.void]) -> NDArray[np.void]:
        """Return the records (EXCHANGE[n]) that are not the canary's, and keep those."""
        own = np.flatnonzero(batch["target_set"] == CANARY_SET)
        if len(own) and self._records is not None:
            self._records.append(batch[own])
        return np.delete(batch, own) if len(own) else batch

    def sing(self) -> None:
        """Look at the last exchange and have the next one, if that is due. To be called once a second.

        Raises SilentHookError when twice in a row an event left no trace: once may be a firing that the kernel skipped,
        which is counted. Raises OSError where the loopback interface does not work.
        """
        if self._clock() < self._due_s:
            return
        self._due_s = self._clock() + _INTERVAL_S
        told, self._records = self._records, None
        if not self._programs.tells_of_canary:
            return
        try:
            if told is not None:
                self._judge(np.concatenate([np.zeros(0, EXCHANGE), *told]))
        finally:
            self._records = []
            self._exchange()

    def _judge(self, told: NDArray[np.void]) -> None:
        lost = self._programs.lost()
        lost_before, self._lost = self._lost, lost["ring_full"] + lost.get("throttled", 0)
        silent = silent_events(told)
        if silent == ALL_EVENTS and self._lost > lost_before:
            return  # of a full ring it says nothing
        before, self._silent = self._silent, silent
        if before and not silent:
            _log.info("canary: the kernel tells of every event")
        if both := silent & before:
            named = ", ".join(f"{event} ({self._programs.variants.get(event, '?')})" for event in sorted(both))
            raise SilentHookError(
                f"the kernel does not tell of {named}: delete this pod; kernel.ftrace_enabled must be 1"
            )

    def _exchange(self) -> None:
        if self._listener is None:
            self._listener = socket.create_server(("127.0.0.1", 0))
            self._listener.settimeout(_TIMEOUT_S)
            self._programs.tell_of_canary(self._listener.getsockname()[1])
        with socket.socket() as client:
            client.settimeout(_TIMEOUT_S)
            client.connect(self._listener.getsockname())
            server, _ = self._listener.accept()
            with server:
                server.settimeout(_TIMEOUT_S)
                for sender, receiver in ((client, server), (server, client)):
                    sender.sendall(_MESSAGE)
                    receiver.recv(len(_MESSAGE))
