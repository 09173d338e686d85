"""Work in an event loop and a thread of its own, which goes on whatever blocks the event loop of the others."""

import asyncio
import logging
import threading
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Self

log = logging.getLogger(__name__)

END_S = 5.0


class OwnLoop:
    """Runs a coroutine in a thread of that name: `async with` begins it, and cancels it at the end. One that does not
    end within `END_S` is left alone, and goes with the process."""

    def __init__(self, name: str, main: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._main = main
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._began = threading.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(self, *_: object) -> None:
        await asyncio.to_thread(self._end)

    def _run(self) -> None:
        try:
            asyncio.run(self._work())
        except asyncio.CancelledError:
            pass
        except Exception:
            log.exception("the thread %s has ended", self._thread.name)

    async def _work(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.ensure_future(self._main())
        self._began.set()
        await self._task

    def _end(self) -> None:
        self._began.wait(END_S)
        if self._loop is not None and self._task is not None:
            with suppress(RuntimeError):  # it has ended by itself, maybe just now
                self._loop.call_soon_threadsafe(self._task.cancel)
        self._thread.join(END_S)
        if self._thread.is_alive():
            log.warning("the thread %s does not end", self._thread.name)
