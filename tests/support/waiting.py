"""Wait for a condition, with a deadline. What fails says what was waited for and how it stood last."""

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")
Errors = type[Exception] | tuple[type[Exception], ...]
_POLL_S = 0.005
_SHOWN = 2000  # characters of what was last seen


def wait_until(
    condition: Callable[[], T],
    what: str = "",
    timeout_s: float = 60,
    *,
    seen: Callable[[], object] | None = None,
    unready: Errors = (),
    poll_s: float = _POLL_S,
) -> T:
    """Return the first truthy value of `condition`, which is asked again while it raises `unready`.

    After the deadline AssertionError tells `what` was waited for (if it is "", the condition's source) and what was
    last seen: the condition's value, or what `seen` returns.
    """
    deadline = _Deadline(condition, what, timeout_s, seen)
    while True:
        last: object
        try:
            last = value = condition()
            if value:
                return value
        except unready as error:
            last = error
        deadline.check(last)
        time.sleep(poll_s)


async def until(
    condition: Callable[[], Any],
    what: str = "",
    timeout_s: float = 60,
    *,
    seen: Callable[[], object] | None = None,
    poll_s: float = _POLL_S,
) -> Any:
    """`wait_until` while the event loop goes on; the condition may be a coroutine function."""
    deadline = _Deadline(condition, what, timeout_s, seen)
    while True:
        value = condition()
        if inspect.isawaitable(value):
            value = await value
        if value:
            return value
        deadline.check(value)
        await asyncio.sleep(poll_s)


class _Deadline:
    def __init__(
        self, condition: Callable[[], object], what: str, timeout_s: float, seen: Callable[[], object] | None
    ) -> None:
        self._what = what or _source(condition)
        self._timeout_s = timeout_s
        self._seen = seen
        self._end_s = time.monotonic() + timeout_s

    def check(self, last: object) -> None:
        if time.monotonic() > self._end_s:
            shown = str(self._seen() if self._seen else last)[:_SHOWN]
            raise AssertionError(f"not within {self._timeout_s:g} s: {self._what}; last seen: {shown}")


def _source(condition: Callable[[], object]) -> str:
    try:
        return inspect.getsource(condition).strip()
    except (OSError, TypeError):  # such as a method of an extension's class
        return repr(condition)
