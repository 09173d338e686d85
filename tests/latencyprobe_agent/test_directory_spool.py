"""directory/spool.py: rows, batch in flight, number and sender are one, whatever ends the process."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from latencyprobe.sli import Coverage, EvidenceCount, PeerCounts, SliBatch, SlowExchange
from latencyprobe_agent.directory import spool as module
from latencyprobe_agent.directory.spool import Spool
from latencyprobe_agent.directory.spool_file import SpoolError
from tests.latencyprobe_agent.sli_rows import NOW, row

WHOLE = row(
    *(NOW, 9),
    bad=1,
    histogram={-200: 9, -149: 1},
    coverage=Coverage(13, 2, measured_ms=5_000),
    exclusions={"push": 2},
    evidence={"retransmits": EvidenceCount(1, 1, 7)},
    slowest=(SlowExchange("ab" * 16, NOW * 10**9, 40_000_000, {"process": 39_000_000}, "shop/web"),),
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "state" / "counts.db"


@pytest.fixture(params=["disk", "memory"])
def spool(request: pytest.FixtureRequest, path: Path, dropped: Counter[str]) -> Iterator[Spool]:
    opened = Spool(path if request.param == "disk" else None, dropped)
    yield opened
    opened.close()


def killed(spool: Spool) -> Spool:
    """What the next process finds: the file and its journal as they are, without the one that had them."""
    assert spool._path is not None
    copy = spool._path.with_name(f"{spool._path.name}.after")
    for suffix in ("", "-wal"):
        copy.with_name(copy.name + suffix).write_bytes(spool._path.with_name(spool._path.name + suffix).read_bytes())
    return Spool(copy, spool._dropped)


def sent(spool: Spool) -> SliBatch:
    batch = spool.batch()
    assert batch is not None
    return batch


def test_a_row_comes_out_as_it_went_in(spool: Spool) -> None:
    spool.add([WHOLE], NOW)
    assert (WHOLE,) == sent(spool).rows


def test_figures_by_peer_that_would_come_too_late_do_not_wait(spool: Spool) -> None:
    """While the directory is away they would take most of the room, and only the last minutes' are kept there."""
    by_peer = {"shop/web": PeerCounts(3, 1, {-200: 3})}
    for minute in range(NOW, NOW + 900, 60):
        spool.add([row(minute, by_peer=by_peer)], minute + 65)
    told = [one.minute for one in sent(spool).rows if one.by_peer]
    assert told == list(range(NOW, NOW + 540, 60)), "the first has waited for ten minutes then"


def test_rows_of_one_minute_wait_as_one_and_the_oldest_go_first(spool: Spool) -> None:
    spool.add([row(good=1), row(good=2), row(NOW - 60)], NOW)
    spool.add([row(good=4), row(objective="calls")], NOW)
    assert 3 == spool.waiting
    assert [(NOW - 60, 1), (NOW, 1), (NOW, 7)] == sorted((one.minute, one.good) for one in sent(spool).rows)


def test_large_rows_go_in_batches_that_the_directory_takes(spool: Spool) -> None:
    peers = {f"{'n' * 63}/{'w' * 230}{i}": 1 for i in range(20)}
    large = {"histogram": dict.fromkeys(range(-600, 300), 12345), "peers": peers, "waited_ns": peers}
    rows = [row(NOW + 60 * i, **large) for i in range(250)]
    spool.add(rows, NOW)
    batches = []
    while batch := spool.batch():
        batches.append(batch)
        spool.answered(batch.sequence + 1)
    assert rows == [one for batch in batches for one in batch.rows]
    sizes = [len(msgspec.json.encode(batch)) for batch in batches]
    assert 2 == len(sizes)
    assert max(sizes) < 4 << 20


def test_a_row_above_all_bounds_goes_alone(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_BATCH_BYTES", 10)
    spool.add([row(), row(NOW + 60)], NOW)
    assert [NOW] == [one.minute for one in sent(spool).rows]
    assert 2 == spool.waiting


def test_a_batch_stays_in_flight_until_it_is_answered(spool: Spool) -> None:
    spool.add([row()], NOW)
    first = sent(spool)
    spool.add([row(good=8)], NOW)
    assert (first, 2) == (sent(spool), spool.waiting)
    spool.answered(first.sequence + 1)
    assert (first.sequence + 1, (8,)) == (sent(spool).sequence, tuple(one.good for one in sent(spool).rows))
    spool.answered(first.sequence + 2)
    assert (None, 0) == (spool.batch(), spool.waiting)


@pytest.mark.parametrize("at", ["waiting", "in flight", "answered", "more waits"])
def test_a_killed_process_leaves_all_that_was_taken_in(path: Path, dropped: Counter[str], at: str) -> None:
    before = Spool(path, dropped)
    before.add([WHOLE], NOW)
    batch = sent(before) if at != "waiting" else None
    if at == "answered":
        before.answered(1)
    if at == "more waits":
        before.add([row(good=4)], NOW)
    after = killed(before)
    assert before.waiting == after.waiting
    if at == "answered":
        assert after.batch() is None
        after.add([row()], NOW)
        assert 1 == sent(after).sequence
    elif batch is None:
        assert (0, (WHOLE,)) == (sent(after).sequence, sent(after).rows)
    else:
        assert batch == sent(after), "instance and number too"
        after.answered(1)
        assert (0 if at == "in flight" else 1) == after.waiting


def test_a_batch_is_on_the_disk_before_it_goes_and_nothing_else_waits_for_the_disk(
    path: Path, dropped: Counter[str]
) -> None:
    spool, said = Spool(path, dropped), []
    spool._db.set_trace_callback(said.append)
    spool.add([row()], NOW)
    spool.batch()
    spool.answered(1)
    assert ["NORMAL", "FULL", "NORMAL"] == [one.split()[-1] for one in said if "synchronous" in one]
    said.clear()
    spool.batch()
    assert said == [], "without rows nothing is written"


def test_after_a_gap_the_expected_number_is_used(spool: Spool) -> None:
    for number in range(3):
        spool.add([row()], NOW)
        assert number == sent(spool).sequence
        spool.answered(number + 1)
    spool.add([row(good=5)], NOW)
    rows = sent(spool).rows
    spool.answered(1)
    assert (1, rows) == (sent(spool).sequence, sent(spool).rows)


def test_a_folder_from_before_batches_that_the_directory_has_hands_over_none_of_its_rows(
    spool: Spool, dropped: Counter[str]
) -> None:
    """They may be among them: nobody counts them twice, and the report knows."""
    spool.add((row(NOW - 60 * i, good=3) for i in range(260)), NOW)
    assert 250 == len(sent(spool).rows)
    spool.answered(5)
    assert ({"restored": 260}, None) == (dropped, spool.batch())
    spool.add([row()], NOW)
    assert (5, 780) == (sent(spool).sequence, sent(spool).rows[0].coverage.lost)


def test_what_is_refused_is_counted_and_the_next_row_of_its_objective_says_what_is_missing(
    path: Path, dropped: Counter[str]
) -> None:
    spool = Spool(path, dropped)
    spool.add([WHOLE, row(objective="calls", good=5)], NOW)
    batch = sent(spool)
    spool.refused()
    spool.add([row(NOW - 60, objective="calls"), row(NOW, objective="calls", coverage=Coverage(lost=2))], NOW)
    after = killed(spool)
    assert (batch.sequence, batch.instance) == (sent(after).sequence, sent(after).instance)
    assert ({"refused": 2}, [5, 2]) == (dropped, [one.coverage.lost for one in sent(after).rows])
    after.answered(1)
    after.add([row(), row(objective="calls")], NOW)
    assert {"fast": 12, "calls": 0} == {one.objective: one.coverage.lost for one in sent(after).rows}


def test_what_is_older_than_a_day_goes_and_is_counted(spool: Spool, dropped: Counter[str]) -> None:
    spool.add([row(NOW - 25 * 3600, good=3), row()], NOW)
    assert {"too_old": 1} == dropped
    assert [(1, 3)] == [(one.good, one.coverage.lost) for one in sent(spool).rows]


@pytest.mark.parametrize(("bound", "most"), [("CAPACITY_ROWS", 300), ("_CAPACITY_BYTES", 256 << 10)])
def test_above_the_bounds_the_oldest_go_and_are_counted(
    path: Path, dropped: Counter[str], monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(module, bound, most)
    monkeypatch.setattr(module, "BATCH_ROWS", 10)
    spool = Spool(path, dropped)
    minutes = [NOW - 60 * i for i in range(900)]
    for minute in reversed(minutes):
        spool.add([row(minute, peers={f"shop/{'web' * 90}": 1})], NOW)
    assert 900 == dropped["no_room"] + spool.waiting
    assert 200 < spool.waiting <= (300 if bound == "CAPACITY_ROWS" else 800)
    assert minutes[spool.waiting - 1] == sent(spool).rows[0].minute
    assert dropped["no_room"] == sent(spool).rows[0].coverage.lost
    assert sum(file.stat().st_size for file in path.parent.iterdir()) < 10 << 20


@pytest.mark.long
@pytest.mark.parametrize(("bound", "most"), [("CAPACITY_ROWS", 300), ("_CAPACITY_BYTES", 256 << 10)])
def test_one_namespace_pushes_out_no_rows_of_another_but_its_own_oldest(
    path: Path, dropped: Counter[str], monkeypatch: pytest.MonkeyPatch, bound: str, most: int
) -> None:
    monkeypatch.setattr(module, bound, most)
    monkeypatch.setattr(module, "BATCH_ROWS", 10)
    spool = Spool(path, dropped)
    for minute in range(12):
        at = NOW + 60 * minute
        hostile = [row(at, namespace="evil", objective=f"o{i}", peers={f"evil/{'w' * 90}": 1}) for i in range(200)]
        spool.add([*hostile, row(at, good=2)], at)
    left = list(spool._rows())
    assert 12 == sum(one.namespace == "shop" for one in left)
    assert 12 * 201 - len(left) == dropped["no_room"]
    minutes = [one.minute for one in left if one.namespace == "evil"]
    assert 200 == minutes.count(NOW + 60 * 11), "the newest stay"
    assert NOW + 60 * 5 < min(minutes)


def test_losses_of_one_namespace_push_out_no_losses_of_another(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MISSING", 20)
    spool.add([row(NOW - 25 * 3600, good=3)], NOW)
    spool.add([row(NOW - 25 * 3600, namespace="evil", objective=f"o{i}", good=1) for i in range(100)], NOW)
    assert 20 == len(spool._missing())
    spool.add([row()], NOW)
    assert 3 == sent(spool).rows[0].coverage.lost


def test_losses_of_objectives_that_are_gone_do_not_pile_up(spool: Spool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MISSING", 20)
    for number in range(100):
        spool.add([row(NOW - 25 * 3600, objective=f"o{number}")], NOW)
    assert 20 == len(spool._missing())


def test_what_waits_in_memory_is_taken_over_with_what_is_missing(path: Path, dropped: Counter[str]) -> None:
    memory, disk = Spool(None, dropped), Spool(path, dropped)
    memory.add([row(good=2), row(NOW - 25 * 3600, good=3)], NOW)
    disk.add([row(good=4)], NOW)
    disk.take_over(memory, NOW)
    assert (0, None) == (memory.waiting, memory.batch())
    assert [(6, 3)] == [(one.good, one.coverage.lost) for one in sent(disk).rows]


def test_a_full_disk_changes_nothing_and_is_told(path: Path, dropped: Counter[str]) -> None:
    spool = Spool(path, dropped)
    spool.add([row(good=2)], NOW)
    spool._db.execute(f"PRAGMA max_page_count = {spool._pragma('page_count')}")
    with pytest.raises(SpoolError, match="full"):
        spool.add((row(NOW, objective=f"o{i}") for i in range(500)), NOW)
    spool._db.execute("PRAGMA max_page_count = 10000")
    assert (1, [2]) == (spool.waiting, [one.good for one in sent(spool).rows])
