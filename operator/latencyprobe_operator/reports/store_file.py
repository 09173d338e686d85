"""The store as it is opened, and what is tried to make it work again. All in the store's thread."""

import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from latencyprobe.errors import StoreError
from latencyprobe.store import DAMAGED, FULL, SqliteStore
from latencyprobe.store.damage import Moved, moved


def volume_bytes(path: Path) -> int | None:
    """Return the size of the volume that the store is on, None where it is not known."""
    try:
        return shutil.disk_usage(path.parent).total
    except OSError:
        return None


class StoreFile:
    """`opened`: the store, None where it cannot even be read; `moved`: the damaged files that it replaced, the last one
    first. `open_store`: to write, with `thorough=True` where it is suspected to be damaged; `open_to_read`: when that
    fails."""

    def __init__(
        self, open_store: Callable[..., SqliteStore], open_to_read: Callable[[], SqliteStore] | None = None
    ) -> None:
        self.opened: SqliteStore | None = None
        self.moved: list[Moved] = []
        self._open_store = open_store
        self._open_to_read = open_to_read
        self._writes = False

    def mend(self, reason: str) -> StoreError | None:
        """Open it, or try whether it takes counts again, after it failed for a `reason` of StoreError. Returns what is
        wrong still."""
        try:
            if reason == FULL and self._writes and self.opened is not None:
                self.opened.try_write()
            else:
                self.close()
                self.opened = self._open_store(thorough=True) if reason == DAMAGED else self._open_store()
                self._writes, self.moved = True, moved(self.opened.path)
        except StoreError as error:
            if self.opened is None and self._open_to_read is not None:
                with suppress(StoreError):
                    self.opened = self._open_to_read()
            return error
        return None

    def close(self) -> None:
        """Let another writer in."""
        store, self.opened, self._writes = self.opened, None, False
        if store is not None:
            with suppress(StoreError):
                store.close()
