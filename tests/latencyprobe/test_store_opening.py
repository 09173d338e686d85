"""store/opening.py: one writer, and no file that is not ours, newer or damaged."""

import os
import pwd
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

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


SUDO = "measured with sudo? then `sudo latencyprobe report`"


def told(path: Path) -> str:
    with pytest.raises(StoreError) as refused:
        SqliteStore(path, readonly=True)
    return str(refused.value)


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where root's own store would be, for somebody else."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "mine"))
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.setattr(pwd, "getpwuid", lambda _: SimpleNamespace(pw_dir=str(tmp_path / "root")))
    return default_path({"HOME": str(tmp_path / "root")})


def test_who_measured_with_sudo_is_told_where_the_counts_are(roots: Path, tmp_path: Path) -> None:
    assert SUDO not in told(default_path()), "root has none"
    roots.parent.mkdir(parents=True)
    roots.touch()
    assert told(default_path()).endswith(f"or give --store; {SUDO}")
    assert SUDO not in told(tmp_path / "other.db"), "asked for by its name"


def test_what_only_root_may_look_at_may_be_there(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stat(path: Path) -> None:
        raise PermissionError if path == roots else FileNotFoundError

    monkeypatch.setattr(Path, "stat", stat)
    assert told(default_path()).endswith(SUDO)


def test_a_store_that_is_not_ours_to_read_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    SqliteStore(tmp_path / "sli.db").close()
    monkeypatch.setattr(os, "access", lambda *_: False)  # root may read all
    assert told(tmp_path / "sli.db") == f"{tmp_path}/sli.db: you may not read it: {SUDO}, or give --store"


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


def header(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:50])


def magic(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:7])


def no_utf8(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"CREATE TABLE counts", b"CREATE \xd4ABLE counts"))


def other_name(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"good INTEGER", b"gooe INTEGER"))


def no_primary_key(path: Path) -> None:
    path.write_bytes(path.read_bytes().replace(b"id INTEGER PRIMARY", b"id INTEGER PSIMARY"))


@pytest.mark.parametrize("damage_it", [spoil, half, zeros, header, magic, no_utf8, other_name, no_primary_key])
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


def test_file_of_a_format_that_sqlite_does_not_know_is_told_of_and_stays(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    SqliteStore(path).close()
    content = bytearray(path.read_bytes())
    content[47] = 9  # the schema format
    path.write_bytes(content)
    with pytest.raises(StoreError, match="unsupported file format") as refused:
        SqliteStore(path, move_damaged=True)
    assert (refused.value.reason, damage.moved(path)) == ("StoreFailed", [])


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
