"""Batches that are staged: read once they are settled, by whoever opens the file next too, and each counted once."""

import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from latencyprobe.errors import StoreError
from latencyprobe.store import SqliteStore
from latencyprobe.store.staging import MAX_BYTES, MAX_ROWS, STAGED_S
from tests.latencyprobe.store_rows import HOUR_S, KEY, NOW, Clock, batch, good, row


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "sli.db"


def killed(file: Path) -> Path:
    """The file as a writer leaves it that is killed now."""
    left = file.with_name(f"left-{file.name}")
    for end in ("", "-wal"):
        shutil.copy(file.with_name(file.name + end), left.with_name(left.name + end))
    return left


def test_a_batch_is_read_once_it_is_settled_and_settled_once_it_waited_long_enough(file: Path, clock: Clock) -> None:
    with SqliteStore(file, clock=clock, steady=clock) as store:
        store.add_batches([("n1", batch(1, row()))])
        clock.now += STAGED_S / 2
        store.add_batches([("n2", batch(1, row()))])
        assert good(store) == 0
        clock.now += STAGED_S / 2
        store.add_batches([("n3", batch(1, row()))])
        assert good(store) == 2
        store.add_batches([("n4", batch(1, row()))])
        assert good(store) == 2
        store.settle()
        store.settle()
        assert good(store) == 4


def test_batches_that_are_many_are_settled_before_others_come(file: Path, clock: Clock) -> None:
    with SqliteStore(file, clock=clock, steady=clock) as store:
        rows = [row(key=KEY._replace(objective=f"o{number}")) for number in range(MAX_ROWS - 1)]
        store.add_batches([("n1", batch(1, *rows)), ("n2", batch(1, *rows))])
        assert store.since(KEY._replace(objective="o0")) is None
        store.add_batches([("n1", batch(2, row()))])
        assert store.since(KEY) is None
        store.add_batches([("n1", batch(3))])
        assert good(store) == 1


def test_batches_that_are_large_are_settled_before_others_come(file: Path, clock: Clock) -> None:
    peers = {f"shop/{number:03}-{'x' * 250}": 1 for number in range(100)}
    with SqliteStore(file, clock=clock, steady=clock) as store:
        size = len(msgspec.msgpack.encode([row(peers=peers)] * 100))
        for number in range(MAX_BYTES // size):
            store.add_batches([("n1", batch(number, *[row(peers=peers)] * 100))])
        assert good(store) == 0
        store.add_batches([("n1", batch(MAX_BYTES // size, *[row(peers=peers)] * 100))])
        assert good(store) == 0
        store.add_batches([("n2", batch(1))])
        assert good(store) == 100 * (MAX_BYTES // size + 1)


def test_what_a_killed_writer_had_staged_counts_once_for_the_next(file: Path, clock: Clock) -> None:
    with SqliteStore(file, clock=clock, steady=clock) as store:
        store.add_batches([("n1", batch(1, row())), ("n2", batch(1, row(good=5)))])
        left = killed(file)
    with SqliteStore(left, clock=clock) as store:
        assert store.add_batches([("n1", batch(1, row())), ("n1", batch(2, row(good=20)))]) == [2, 3]
        store.settle()
        assert good(store) == 26
        again = killed(left)
    for path in (file, again):
        with SqliteStore(path, clock=clock) as store:
            assert good(store) == (6 if path == file else 26)


def test_a_day_between_two_writers_makes_nothing_late_that_was_staged(file: Path, clock: Clock) -> None:
    with SqliteStore(file, clock=clock) as store:
        store.add_batches([("n1", batch(1, row()))])
        left = killed(file)
    clock.now += 30 * HOUR_S
    with SqliteStore(left, clock=clock) as store:
        store.settle()
        assert (good(store), store.late_rows) == (1, 0)


def test_what_cannot_be_settled_stays_staged(file: Path, clock: Clock) -> None:
    many = [row(key=KEY._replace(objective=f"o{number}")) for number in range(2_000)]
    with SqliteStore(file, clock=clock, steady=clock) as store:
        store.add_batches([("n1", batch(1, row(), *many))])
        (pages,) = store._db.execute("PRAGMA page_count").fetchone()
        store._db.execute(f"PRAGMA max_page_count({pages})")
        with pytest.raises(StoreError, match="free some space"):
            store.settle()
        clock.now += STAGED_S
        with pytest.raises(StoreError, match="free some space"):
            store.add_batches([("n1", batch(2))])
        assert good(store) == 0
        store._db.execute("PRAGMA max_page_count(100000)")
        store.settle()
        assert good(store) == 1


def test_a_row_that_cannot_be_stored_is_lost_alone_and_told_of(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    other, lost = KEY._replace(objective="other"), Counter[str]()
    half = row(key=other, good=1 << 62)  # of a sum that SQLite has no room for
    with SqliteStore(file, clock=clock, lost=lost) as store:
        store.add_batches([("n1", batch(1, half, row())), ("n2", batch(1, half))])
        store.settle()
        assert (good(store), lost) == (1, {"unstorable": 1})
        assert "this cannot be stored, and is lost: SliRow(namespace='shop'" in caplog.text
        store.add_batches([("n1", batch(2, row(key=other)))])
        store.settle()
        assert store.events(other, NOW, NOW + 60).good == 1


@pytest.mark.parametrize("damage", ["x'c1'", "x'91c0'", "'text'", "7"])
def test_staged_rows_that_cannot_be_read_keep_no_other_from_being_counted(
    file: Path, clock: Clock, caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    with SqliteStore(file, clock=clock) as store:
        for node in ("n1", "n2"):
            store.add_batches([(node, batch(1, row()))])
        store._db.execute(f"UPDATE staged SET rows = {damage} WHERE id = 1")
        left = killed(file)
    lost = Counter[str]()
    with SqliteStore(left, clock=clock, lost=lost) as store:
        store.settle()
        assert (good(store), lost) == (1, {"unreadable": 1})
    assert "staged counts (1) cannot be read, and are lost" in caplog.text
