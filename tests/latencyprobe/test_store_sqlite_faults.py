"""store/sqlite.py: no count is lost or repeated, whatever happens to a batch, a row, the disk or the process."""

import signal
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from latencyprobe.errors import StoreError
from latencyprobe.slo.objective import Objective
from latencyprobe.store import SqliteStore
from tests.latencyprobe.store_rows import DAY_S, KEY, MINUTE_S, NOW, Clock, add_batch, batch, good, row


@pytest.fixture
def store(empty_store: SqliteStore) -> SqliteStore:
    return empty_store


def test_failing_batch_leaves_neither_counts_nor_number(store: SqliteStore) -> None:
    broken = row(NOW - MINUTE_S, good=None)  # type: ignore[arg-type]  # what a bug upstream might hand over
    with pytest.raises(msgspec.ValidationError, match=r"good"):
        add_batch(store, "n1", batch(1, row(), broken))
    assert 0 == good(store)
    assert 10 == add_batch(store, "n1", batch(9, row()))


HUGE = 9_300_000_000_000_000_000  # above 2^63: SQLite keeps it as REAL
BROKEN = {
    "a sum that became REAL": f"UPDATE counts SET good = {HUGE}",
    "a sum at the edge": "UPDATE counts SET bad = 9223372036854775807",
    "a sum far below 0": "UPDATE counts SET good = -9223372036854775807 - 1",
    "negative time": "UPDATE counts SET measured_ms = -9223372036854775807 - 1, expected_ms = -5",
    "more measured than a number holds": "UPDATE counts SET measured_ms = 9223372036854775807, expected_ms = -5",
    "a bucket that is none": "UPDATE counts SET detail = x'9292cd9c400180'",
    "a stage of another version": "UPDATE counts SET detail = x'92908163920101'",
    "a reason of another version": "UPDATE counts SET detail = x'94908080816301'",
    "no blob of ours": "UPDATE counts SET detail = x'ff00'",
    "text in the place of a blob": "UPDATE counts SET detail = CAST(x'9290' AS TEXT)",
    "a number in the place of a blob": "UPDATE counts SET detail = 5",
    "text in the place of exemplars": "UPDATE exemplars SET exemplars = CAST(x'9290' AS TEXT)",
    "text that is none": "UPDATE counts SET detail = x'929081a1ff920101'",
    "exemplars that are none": "UPDATE exemplars SET exemplars = x'c1'",
    "more of a peer than there can be": "UPDATE exemplars SET exemplars = x'929081a161cfffffffffffffffff'",
}


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
def test_broken_row_is_told_of_its_own_series_and_stops_no_other_call(store: SqliteStore, broken: str) -> None:
    other, whole = KEY._replace(objective="other"), row(peers={"shop/web": 1}, histogram={3: 1})
    store.add([whole])
    store._db.execute(broken)
    store.add([row(key=other)])
    assert 8 == add_batch(store, "n1", batch(7, whole, row(key=other)))
    store.expect([([KEY, other], NOW, 60_000)])
    store.compact(NOW)
    with pytest.raises(StoreError, match=r"its counts are broken \(.*\): give the objective another name"):
        store.read(KEY, NOW - DAY_S, NOW + 60)
    assert 2 == store.read(other, NOW - DAY_S, NOW + 60).good


def test_definition_that_cannot_be_read_is_none_and_the_next_one_is_in_its_place(
    store: SqliteStore, caplog: pytest.LogCaptureFixture
) -> None:
    one = Objective(KEY, "cart", 25_000_000, "99", "28d", 100, errors_count_as_bad=True)
    store.define(KEY.namespace, KEY.probe, [one])
    store.add([row()])
    for broken in ("x'ff'", "CAST(x'ff' AS TEXT)", """'{"of another version": 1}'"""):
        store._db.execute(f"UPDATE series SET definition = {broken}")
        assert store.objectives() == store.objectives_at(NOW + 60) == ()
        assert "the definition of an objective cannot be read" in caplog.text
        store.define(KEY.namespace, KEY.probe, [one])
        assert store.objectives() == store.objectives_at(NOW + 60) == (one,)


def test_what_was_asked_of_a_series_that_is_gone_was_not_asked(store: SqliteStore) -> None:
    other = KEY._replace(objective="other")
    store.ask({"n1": {KEY: NOW, other: NOW}})
    store._db.execute("DELETE FROM series WHERE objective = 'other'")
    assert [*store.asked()["n1"]] == [KEY]


def test_counts_survive_a_restart(tmp_path: Path) -> None:
    for _ in range(3):
        with SqliteStore(tmp_path / "sli.db", clock=Clock()) as opened:
            opened.add([row()])
    with SqliteStore(tmp_path / "sli.db", readonly=True) as opened:
        assert 3 == good(opened)


def test_full_disk_is_reported_and_the_old_counts_stay_readable(store: SqliteStore) -> None:
    store.add([row()])
    pages = store._db.execute("PRAGMA page_count").fetchone()[0]
    store._db.execute(f"PRAGMA max_page_count({pages})")
    with pytest.raises(StoreError, match="free some space"):
        store.add(row(NOW, key=KEY._replace(objective=f"o{i}")) for i in range(10_000))
    assert 1 == good(store)
    store._db.execute("PRAGMA max_page_count(100000)")
    store.add([row()])
    assert 2 == good(store)


WRITER = """
import sys
sys.path[:0] = {path!r}
from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import Objective
from latencyprobe.store import SqliteStore
key = {key!r}
with SqliteStore({file!r}, clock=lambda: {now}) as store:
    sequence = int(sys.argv[1])
    while True:
        batch = SliBatch("i1", sequence, (SliRow(*key, minute={now}, good=1),))
        (expected,) = store.add_batches([("n1", batch)])
        assert expected == sequence + 1
        print(sequence, flush=True)
        sequence += 1
"""


@pytest.mark.long
def test_killed_writer_loses_and_repeats_nothing(tmp_path: Path) -> None:
    file = tmp_path / "sli.db"
    key = tuple(str(part) for part in KEY)
    code = WRITER.format(path=sys.path, key=key, file=str(file), now=NOW)
    sequence = 1
    for kill_after in (3, 40, 11, 80, 1):
        writer = subprocess.Popen([sys.executable, "-c", code, str(sequence)], stdout=subprocess.PIPE, text=True)
        assert writer.stdout
        for _ in range(kill_after):
            sequence = int(next(writer.stdout)) + 1
        writer.send_signal(signal.SIGKILL)
        rest = writer.stdout.read().split()  # acknowledged before the kill arrived
        sequence = int(rest[-1]) + 1 if rest else sequence
        writer.wait()
        writer.stdout.close()
    with SqliteStore(file, clock=Clock()) as store:
        # The batch in flight when the last one was killed may be stored without its acknowledgement: send it again.
        assert sequence + 1 == add_batch(store, "n1", batch(sequence, row())) or sequence + 1 == add_batch(
            store, "n1", batch(sequence + 1, row())
        )
        assert sequence == good(store)
