"""store/opening.py: one writer, and no file that is not ours, newer or damaged."""

import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from latencyprobe.errors import StoreError
from latencyprobe.plan import Role
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import DAMAGED, SqliteStore, damage, default_path

NOW = 20_000 * 86400
KEY = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)


def test_second_writer_is_refused_and_a_reader_is_not(store: SqliteStore) -> None:
    with pytest.raises(StoreError, match="in use by another process"):
        SqliteStore(store.path)
    with SqliteStore(store.path, readonly=True) as reader:
        assert store.objectives() == reader.objectives() != ()


def test_reader_does_not_make_a_store(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no such store: measure with `latencyprobe run"):
        SqliteStore(tmp_path / "sli.db", readonly=True)
    assert [] == list(tmp_path.iterdir())


def test_only_the_owner_can_read_the_file(store: SqliteStore) -> None:
    for file in store.path.parent.glob("sli.db*"):
        if file.suffix != ".lock":
            assert 0o600 == file.stat().st_mode & 0o777, file


def test_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    with SqliteStore(path, clock=lambda: NOW) as opened:
        opened.add(SliRow(*KEY, minute=NOW + 60 * i, good=1) for i in range(2000))
    spoil(path)
    spoiled = path.read_bytes()
    with pytest.raises(StoreError, match="move it away") as refused:
        SqliteStore(path)
    assert refused.value.reason == DAMAGED
    assert path.read_bytes() == spoiled


def spoil(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[8192:16384] = b"\xff" * 8192
    path.write_bytes(content)


def half(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeros(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("damage_it", [spoil, half, zeros])
def test_damaged_file_goes_aside_if_that_is_asked_for_and_a_new_one_is_begun(
    tmp_path: Path, damage_it: Callable[[Path], None], caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "sli.db"
    with SqliteStore(path, clock=lambda: NOW) as opened:
        opened.add(SliRow(*KEY, minute=NOW + 60 * i, good=1) for i in range(2000))
    damage_it(path)
    damaged = path.read_bytes()
    with SqliteStore(path, move_damaged=True, clock=lambda: NOW) as opened:
        opened.add([SliRow(*KEY, minute=NOW, good=1)])
        assert opened.events(KEY, NOW - 86400, NOW + 60).total == 1
    (moved,) = damage.moved(path)
    assert moved.path.read_bytes() == damaged
    assert moved.path.name in caplog.text
    with SqliteStore(path, move_damaged=True, thorough=True):
        assert damage.moved(path) == [moved], "the new one is whole"


@pytest.mark.parametrize("content", [b"SQLite is this not" * 100, b"x"])
def test_other_file_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "sli.db"
    path.write_bytes(content)
    with pytest.raises(StoreError, match=r"sli\.db"):
        SqliteStore(path, move_damaged=True)
    assert content == path.read_bytes()


def test_database_of_another_program_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    db = sqlite3.connect(path)
    db.execute("CREATE TABLE addresses (name TEXT)")
    db.close()
    with pytest.raises(StoreError, match="another program's database") as refused:
        SqliteStore(path, move_damaged=True)
    assert (refused.value.reason, damage.moved(path)) == ("StoreFailed", [])


def test_store_of_a_newer_version_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    SqliteStore(path).close()
    db = sqlite3.connect(path)
    db.execute("PRAGMA user_version = 99")
    db.close()
    with pytest.raises(StoreError, match=r"has schema 99, .*upgrade LatencyProbe") as refused:
        SqliteStore(path, move_damaged=True)
    assert (refused.value.reason, damage.moved(path)) == ("StoreFailed", [])


def test_folder_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"file/sli\.db"):
        SqliteStore(tmp_path / "file" / "sli.db")


def test_default_path_follows_xdg() -> None:
    assert Path("/state/latencyprobe/sli.db") == default_path({"XDG_STATE_HOME": "/state", "HOME": "/home/a"})
    assert Path("/home/a/.local/state/latencyprobe/sli.db") == default_path({"HOME": "/home/a"})
