"""Brings the programs for HTTP/2 into the kernel while a target in force asks for them."""

import logging
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager

from latencyprobe.errors import Unsupported
from latencyprobe.protocol import Protocol
from latencyprobe.sli import added
from latencyprobe.variants import HTTP2, LACKING
from latencyprobe_agent.kernel.http2 import Http2Programs
from latencyprobe_agent.loop.background import Loading
from latencyprobe_agent.measure.rules import Rules

_log = logging.getLogger(__name__)


class Http2(AbstractContextManager["Http2"]):
    """`attach` brings them in, beside the measuring ones, in `background`. A kernel that refuses them is asked once
    while they are asked for; its connections have turns."""

    def __init__(self, attach: Callable[[], Http2Programs], background: Executor) -> None:
        self._loading = Loading(attach, background)
        self._programs: Http2Programs | None = None
        self._refused = False
        self._lost_before: dict[str, int] = {}  # by programs that have been detached since

    def __exit__(self, *_: object) -> None:
        self._close()

    @property
    def variants(self) -> Mapping[str, str]:
        """Attach variant by event, or LACKING."""
        if self._refused:
            return {HTTP2: LACKING}
        of_events = self._programs.variants.items() if self._programs else ()
        return {f"{HTTP2}.{event}": variant for event, variant in of_events}

    @property
    def lost(self) -> Mapping[str, int]:
        """What never arrived, by reason."""
        return added(self._lost_before, self._programs.lost() if self._programs else {})

    @property
    def attached(self) -> bool:
        """Whether they are there."""
        return self._programs is not None

    def ready(self, rules: Rules, *, wait: bool) -> bool:
        """Attach them if `rules`, which come into force next, ask for them. Return False while they are being loaded;
        with `wait` only once they are, or are refused."""
        if not _asked(rules):
            self._refused = False
        elif self._programs is None and not self._refused:
            self._loading.begin(HTTP2)
            if not wait and not self._loading.is_over(HTTP2):
                return False
            try:
                self._programs = self._loading.take(HTTP2)
            except Unsupported as error:
                self._refused = True
                _log.warning("no HTTP/2: %s; its connections are measured by turns", error)
        return True

    def detach(self, rules: Rules) -> None:
        """Detach them if no target of `rules`, which are in force, asks for them; without any target they wait for the
        next one."""
        if rules.in_force and not _asked(rules):
            self._close()

    def _close(self) -> None:
        self._loading.close()
        if self._programs is not None:
            self._lost_before = added(self._lost_before, self._programs.lost())
            self._programs.close()
            self._programs = None


def _asked(rules: Rules) -> bool:
    return any(one.protocol is Protocol.HTTP2 for one in rules.in_force.values())
