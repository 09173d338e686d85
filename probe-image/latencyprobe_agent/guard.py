"""Keeps the parts of the agent from taking each other down: what one raises is logged, counted, and skipped."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import TypeVar

from latencyprobe.errors import Unsupported

_log = logging.getLogger(__name__)
_TEXT = 200  # characters of an error that travel in a status

T = TypeVar("T")


class Guard:
    """`failures`: how often each part raised; `problems`: what it raised last, until it works again."""

    def __init__(self) -> None:
        self.failures: Counter[str] = Counter()
        self.problems: dict[str, str] = {}

    def run(self, part: str, work: Callable[[], T]) -> T | None:
        """Return what `work` returns, None if it raised. Raises Unsupported alone: only the kernel ends measuring."""
        try:
            result = work()
        except Unsupported:
            raise
        except Exception as error:  # whatever it is, the other parts go on
            self.failures[part] += 1
            text = f"{type(error).__name__}: {error}"[:_TEXT]
            if self.problems.get(part) != text:
                _log.exception("%s failed and is skipped; measuring continues", part)
            self.problems[part] = text
            return None
        self.problems.pop(part, None)
        return result
