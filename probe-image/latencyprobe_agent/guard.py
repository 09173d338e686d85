"""Keeps the parts of the agent from taking each other down: what one raises is logged, counted, and skipped."""

import logging
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TypeVar

from latencyprobe.errors import Unsupported

_log = logging.getLogger(__name__)
_TEXT = 200  # characters of an error that travel in a status
_TOLD_S = 60.0  # a part may fail at what it does now and then, and work in between

T = TypeVar("T")


class Guard:
    """`failures`: how often each part raised. Times are s of `clock`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.failures: Counter[str] = Counter()
        self._raised: dict[str, tuple[str, float]] = {}
        self._clock = clock

    @property
    def problems(self) -> Mapping[str, str]:
        """What each part raised last, until it has worked for a minute, or to the end. Safe in another thread."""
        since_s = self._clock() - _TOLD_S
        return {part: text for part, (text, at_s) in self._raised.copy().items() if at_s > since_s}

    def run(self, part: str, work: Callable[[], T], *, once: bool = False) -> T | None:
        """Return what `work` returns, None if it raised. Raises Unsupported alone: only the kernel ends measuring.
        `once`: nobody will try again, so that a failure is told to the end."""
        try:
            return work()
        except Unsupported:
            raise
        except Exception as error:  # whatever it is, the other parts go on
            self.failures[part] += 1
            text = f"{type(error).__name__}: {error}"[:_TEXT]
            if self.problems.get(part) != text:
                _log.exception("%s failed and is skipped; measuring continues", part)
            self._raised[part] = text, math.inf if once else self._clock()
            return None
