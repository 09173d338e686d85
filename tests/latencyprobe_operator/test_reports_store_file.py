"""What is tried to make a store work again, and in which order."""

from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.store import SqliteStore
from latencyprobe_operator.reports.store_file import StoreFile


class Opening:
    """Opens the store at a path; keeps how it was asked to. `error`: raised instead."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.asked: list[dict[str, Any]] = []
        self.error: StoreError | None = None

    def __call__(self, **how: Any) -> SqliteStore:
        self.asked.append(how)
        if self.error is not None:
            raise self.error
        return SqliteStore(self.path, **how)


@pytest.fixture
def opening(tmp_path: Path) -> Opening:
    return Opening(tmp_path / "sli.db")


def test_full_store_stays_open_and_is_tried_and_a_suspected_one_is_looked_at_closely(opening: Opening) -> None:
    file = StoreFile(opening)
    assert file.mend("") is None
    first = file.opened
    assert file.mend("StoreFull") is None
    assert (file.opened, opening.asked) == (first, [{}])
    assert file.mend("StoreFailed") is None
    assert file.mend("StoreDamaged") is None
    assert opening.asked == [{}, {}, {"thorough": True}]
    file.close()
    SqliteStore(opening.path).close()


def test_one_that_cannot_be_written_is_read_and_one_that_cannot_be_read_is_not_there(opening: Opening) -> None:
    SqliteStore(opening.path).close()
    to_read = Opening(opening.path)
    file = StoreFile(opening, lambda: to_read(readonly=True))
    opening.error = StoreError("the volume is read-only", "StoreFailed")
    assert file.mend("") is opening.error
    assert file.opened is not None
    to_read.error = StoreError("so it cannot be read either", "StoreFailed")
    assert file.mend("StoreFull") is opening.error, "one that was opened to read cannot tell whether there is room"
    assert file.opened is None
    opening.error = None
    assert file.mend("StoreFailed") is None
    assert file.opened is not None
    file.close()
