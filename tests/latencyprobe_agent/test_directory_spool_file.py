"""directory/spool_file.py: one process has the file, nobody else reads it, and one of no use is told as such."""

import sqlite3
from collections import Counter
from pathlib import Path

import pytest

from latencyprobe_agent.directory import spool as module
from latencyprobe_agent.directory.spool import Spool
from latencyprobe_agent.directory.spool_file import SpoolDamagedError, SpoolError
from tests.latencyprobe_agent.sli_rows import NOW, row


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "counts.db"


def test_one_process_has_the_file_at_a_time(path: Path, dropped: Counter[str]) -> None:
    first = Spool(path, dropped)
    first.add([row()], NOW)
    with pytest.raises(SpoolError, match="locked") as refused:
        Spool(path, dropped)
    assert not isinstance(refused.value, SpoolDamagedError)
    first.close()
    assert 1 == Spool(path, dropped).waiting


def test_the_file_is_its_owners_alone(path: Path, dropped: Counter[str]) -> None:
    Spool(path, dropped)
    assert 0o600 == path.stat().st_mode & 0o777
    assert 0o700 == path.parent.stat().st_mode & 0o777


@pytest.mark.parametrize(
    "content",
    [
        *("noise", "another database", "another version", "no sender", "a broken row", "a row that is text"),
        *("a row that is a number", "another name in the schema", "rows that do not go"),
        "a sequence that is text",
    ],
)
def test_a_file_of_no_use_is_told_as_such(path: Path, dropped: Counter[str], content: str) -> None:
    spool = Spool(path, dropped)
    spool.add([row()], NOW)
    spool.close()
    changes = {
        "another database": "DROP TABLE sender; PRAGMA user_version = 0",
        "another version": "PRAGMA user_version = 2",
        "no sender": "DELETE FROM sender",
        "a broken row": "UPDATE rows SET body = x'ff'",
        "a row that is text": "UPDATE rows SET body = CAST(x'ff' AS TEXT)",
        "a row that is a number": "UPDATE rows SET body = 7",
        "another name in the schema": "ALTER TABLE rows RENAME COLUMN body TO bodx",
        "a sequence that is text": "UPDATE sender SET sequence = 'x'",
        "rows that do not go": "CREATE TRIGGER stays BEFORE DELETE ON rows BEGIN SELECT RAISE(IGNORE); END",
    }
    if content == "noise":
        path.write_bytes(b"no database" * 1000)
    else:
        with sqlite3.connect(path) as db:
            db.executescript(changes[content])
        db.close()
    with pytest.raises(SpoolDamagedError, match=str(path)):
        Spool(path, dropped).batch()


def test_rows_that_do_not_go_are_not_dropped_without_end(path: Path, dropped: Counter[str]) -> None:
    spool = Spool(path, dropped)
    spool.add([row(NOW - 60)], NOW)
    spool._db.execute("CREATE TRIGGER stays BEFORE DELETE ON rows BEGIN SELECT RAISE(IGNORE); END")
    with pytest.raises(SpoolDamagedError, match="0 of 1 rows could be taken out"):
        spool.add([row()], NOW + 24 * 3600)


def test_rows_that_cannot_be_found_are_not_looked_for_without_end(
    path: Path, dropped: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    spool = Spool(path, dropped)
    spool.add([row()], NOW)
    spool._db.execute("UPDATE rows SET minute = 'x'")
    monkeypatch.setattr(module, "_CAPACITY_BYTES", 1)
    with pytest.raises(SpoolDamagedError, match="0 of 1 rows could be taken out"):
        spool.add([row()], NOW)
