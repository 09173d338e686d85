"""store/damage.py: a damaged file goes aside whole, few are kept, and other files are left alone."""

from pathlib import Path

import pytest

from latencyprobe.store import damage

NOW = 1_767_323_045.678  # 2026-01-02T03:04:05.678Z


def written(path: Path, text: str) -> None:
    for part in ("", "-wal", "-shm", ".lock"):
        path.with_name(path.name + part).write_text(text + part)


def test_file_and_log_go_aside_together_under_the_time_and_the_claim_stays(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    written(path, "one")
    target = damage.move_aside(path, NOW)
    assert target.name == "sli.db.damaged-20260102T030405.678Z"
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {
        target.name: "one",
        f"{target.name}-wal": "one-wal",
        f"{target.name}-shm": "one-shm",
        "sli.db.lock": "one.lock",
    }
    (found,) = damage.moved(path)
    assert (found.path, round(found.at, 3)) == (target, NOW)


def test_only_the_last_ones_are_kept_and_nothing_of_another_name_is_touched(tmp_path: Path) -> None:
    path = tmp_path / "sli.db"
    others = [tmp_path / name for name in ("sli.db.damaged-by-meZ", "other.db.damaged-20200101T000000.000Z")]
    for other in others:
        other.write_text("somebody's")
    for number in range(5):
        written(path, f"{number}")
        damage.move_aside(path, NOW + number)
    assert [one.path.read_text() for one in damage.moved(path)] == ["4", "3"]
    assert len(list(tmp_path.glob("sli.db.damaged-2*"))) == 2 * 3
    assert all(other.exists() for other in others)


def test_log_is_moved_before_its_file(tmp_path: Path) -> None:
    """Cut short in between, the file is looked at again without a log; a log alone would be replayed into a new one."""
    path = tmp_path / "sli.db"
    written(path, "one")
    (tmp_path / "sli.db.damaged-20260102T030405.678Z").mkdir()
    (tmp_path / "sli.db.damaged-20260102T030405.678Z" / "x").write_text("the file cannot go there")
    with pytest.raises(OSError, match="directory"):
        damage.move_aside(path, NOW)
    assert path.exists()
    assert not path.with_name("sli.db-wal").exists()
