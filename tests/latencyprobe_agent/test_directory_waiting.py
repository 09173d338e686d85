"""directory/waiting.py: whatever the disk does, rows are taken, and what it had is handed over once it works again."""

import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from latencyprobe_agent.directory import waiting as module
from latencyprobe_agent.directory.spool import Spool
from latencyprobe_agent.directory.waiting import WaitingRows
from tests.latencyprobe_agent.sli_rows import NOW, row
from tests.support.damage import damaged
from tests.support.fuzz import seeded


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "state"


@pytest.fixture
def retry_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RETRY_S", 0.0)


def handed_over(waiting: WaitingRows, *, at_most: int = 1_000) -> int:
    """Take all batches as a directory does; return how many good events they have."""
    good, expected = 0, dict[str, int]()
    while batch := waiting.batch():
        at_most -= 1
        assert at_most >= 0, "the same is handed over without end"
        taken = batch.sequence == expected.get(batch.instance, batch.sequence)
        good += sum(one.good for one in batch.rows) if taken else 0
        expected[batch.instance] = max(batch.sequence + 1, expected.get(batch.instance, 0))
        waiting.answered(expected[batch.instance])
    return good


def test_what_one_process_leaves_the_next_one_finds(folder: Path) -> None:
    before = WaitingRows(folder)
    before.add([row(good=3)])
    batch = before.batch()
    before.close()
    after = WaitingRows(folder)
    after.open()
    assert (1, batch, "") == (len(after), after.batch(), after.problem)


def unusable(folder: Path, how: str) -> None:
    if how == "a file in its place":
        folder.write_text("")
    elif how == "a folder in the place of the file":
        (folder / "counts.db").mkdir(parents=True)
    elif how == "a folder that cannot be made":
        folder.symlink_to("/proc/self/nowhere")
    else:
        Spool(folder / "counts.db", Counter()).close()
        folder.joinpath("counts.db").write_bytes(b"noise" * 999)


@pytest.mark.parametrize(
    "how",
    ["a file in its place", "a folder in the place of the file", "a folder that cannot be made", "a damaged file"],
)
def test_without_a_folder_rows_wait_in_memory_and_it_is_told_once(
    folder: Path, how: str, caplog: pytest.LogCaptureFixture, retry_at_once: None
) -> None:
    unusable(folder, how)
    waiting = WaitingRows(folder)
    for _ in range(3):
        waiting.add([row(good=2)])
        if how == "a damaged file":
            break  # there is a new one at the next try
    assert str(folder) in waiting.problem
    (said,) = [record.message for record in caplog.records if record.levelname == "ERROR"]
    assert "SLI counts wait in memory" in said
    assert (2 if how == "a damaged file" else 6) == handed_over(waiting)


def test_a_damaged_file_is_set_aside_and_counted_and_a_new_one_takes_what_waits(
    folder: Path, retry_at_once: None
) -> None:
    unusable(folder, "a damaged file")
    waiting = WaitingRows(folder)
    waiting.add([row(good=2)])
    assert {"damaged": 1} == waiting.dropped
    waiting.add([row(good=4)])
    assert ("", b"noise") == (waiting.problem, (folder / "counts.damaged").read_bytes()[:5])
    assert 6 == handed_over(waiting)


@pytest.mark.parametrize("flight", [False, True])
def test_a_row_that_is_no_text_any_more_is_damage(folder: Path, retry_at_once: None, *, flight: bool) -> None:
    before = WaitingRows(folder)
    before.add([row(peers={"shop/web": 1})])
    if flight:
        before.batch()
    before.close()
    content = (folder / "counts.db").read_bytes()
    (folder / "counts.db").write_bytes(content.replace(b"shop/web", b"shop/\xf7eb"))
    waiting = WaitingRows(folder)
    waiting.open()
    waiting.add([row(good=2)])
    assert {"damaged": 1} == waiting.dropped
    waiting.add([row(good=4)])
    assert waiting.problem == ""
    assert 6 == handed_over(waiting)


@pytest.mark.long
def test_however_a_file_is_damaged_rows_wait_and_go_and_nothing_is_raised(
    tmp_path: Path, folder: Path, retry_at_once: None
) -> None:
    """`FLIPS=30000` in the environment: as many."""
    cases, fuzz = seeded("FLIPS", 300)
    spool = Spool(tmp_path / "whole.db", Counter())
    for objective in ("fast", "calls"):
        spool.add([row(NOW - 60 * i, 5, objective, peers={"shop/web": 1}) for i in range(150)], NOW)
        spool.batch()
    spool.add([row(NOW - 25 * 3600, good=3)], NOW)
    begun, log = ((tmp_path / f"whole.db{end}").read_bytes() for end in ("", "-wal"))
    spool.close()
    files = [{"": one} for one in damaged((tmp_path / "whole.db").read_bytes(), cases, fuzz)]
    files += [{"": begun, "-wal": one} for one in damaged(log, cases // 4, fuzz)]
    ends = Counter[str]()
    folder.mkdir()
    for content in files:
        for old in folder.iterdir():
            old.unlink()
        for end, data in content.items():
            (folder / f"counts.db{end}").write_bytes(data)
        waiting = WaitingRows(folder, lambda: NOW)
        waiting.open()
        waiting.add([row(good=7)])
        assert 7 <= handed_over(waiting, at_most=10)
        waiting.add([row(NOW + 60, good=9)])
        waiting.open()
        assert 9 == handed_over(waiting, at_most=2)
        waiting.close()
        ends[waiting.problem or ("damaged" if waiting.dropped["damaged"] else "used")] += 1
    print(dict(ends))
    assert min(ends.pop("damaged"), ends.pop("used")) > cases / 10
    assert all("readonly" in problem for problem in ends), "which one byte of its header says"


def test_a_disk_that_fills_up_and_is_freed_loses_and_repeats_nothing(folder: Path, retry_at_once: None) -> None:
    waiting = WaitingRows(folder)
    waiting.add([row(good=1)])
    batch = waiting.batch()
    assert batch
    assert waiting._disk
    waiting._disk._db.execute("PRAGMA max_page_count = 1")
    waiting.answered(batch.sequence + 1)  # which the disk can note still, or not
    big = [row(objective=f"o{i}") for i in range(500)]
    waiting.add(big)
    assert "full" in waiting.problem
    assert 500 == len(waiting)
    in_memory = waiting.batch()
    assert in_memory
    assert in_memory.instance != batch.instance
    waiting.add([row(good=1)])
    assert waiting.problem == ""
    assert in_memory == waiting.batch(), "it is in flight"
    waiting.answered(in_memory.sequence + 1)
    assert 500 - 250 + 1 == handed_over(waiting)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 512 KiB."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount(folder, "size=512k", "-t", "tmpfs", "none")
    yield folder
    subprocess.run(["umount", folder], check=True)


def mount(folder: Path, options: str, *words: str) -> None:
    subprocess.run(["mount", "-o", options, *words, folder], check=True)


@pytest.mark.root
@pytest.mark.parametrize(("how", "freed"), [("full", "size=8m"), ("read-only", "rw,size=8m")])
def test_a_real_disk_that_is_full_or_read_only_and_then_works_again_loses_and_repeats_nothing(
    disk: Path, retry_at_once: None, how: str, freed: str
) -> None:
    waiting = WaitingRows(disk / "state")
    waiting.add([row(good=1)])
    batch = waiting.batch()
    assert batch
    waiting.add([row(good=2)])
    if how == "read-only":
        waiting.close()  # a file system with files open for writing cannot become so
        waiting = WaitingRows(disk / "state")
        mount(disk, "remount,ro")
    more = [row(objective=f"o{i}", peers={"shop/web" * 20: 1}) for i in range(3000)]
    waiting.add(more)
    assert waiting.problem
    assert 3000 == len(waiting)
    mount(disk, f"remount,{freed}")
    waiting.open()
    assert (waiting.problem, waiting.batch()) == ("", batch)
    waiting.answered(batch.sequence + 1)
    assert 3002 == handed_over(waiting)
    waiting.close()


def test_a_batch_whose_acceptance_the_disk_cannot_note_is_sent_again_with_its_number(
    folder: Path, retry_at_once: None
) -> None:
    waiting = WaitingRows(folder)
    waiting.add([row(good=3)])
    batch = waiting.batch()
    assert batch
    assert waiting._disk
    waiting._disk._db.execute("PRAGMA query_only = 1")
    waiting.answered(batch.sequence + 1)
    assert "readonly" in waiting.problem
    waiting.open()
    assert batch == waiting.batch()


def test_two_agents_on_one_node_never_share_the_file_and_the_second_takes_it_over(
    folder: Path, retry_at_once: None
) -> None:
    old, new = WaitingRows(folder), WaitingRows(folder)
    old.add([row(good=1)])
    new.add([row(good=2)])
    assert "locked" in new.problem
    assert (1, 1) == (len(old), len(new))
    old.close()
    new.add([row(good=4)])
    assert new.problem == ""
    assert 7 == handed_over(new)


def test_a_clock_that_jumps_ahead_makes_no_row_old(folder: Path) -> None:
    now = [float(NOW)]
    waiting = WaitingRows(folder, clock=lambda: now[0])
    waiting.add([row(good=1)])
    now[0] += 400 * 86_400
    waiting.add([row(int(now[0]) // 60 * 60, good=2)])
    now[0] = NOW
    assert 3 == handed_over(waiting)
    assert not waiting.dropped


def test_the_folder_is_made_for_its_owner_alone(folder: Path) -> None:
    WaitingRows(folder).add([row()])
    assert 0o700 == folder.stat().st_mode & 0o777
    assert (folder / "counts.db").exists()
