"""store/kept.py: what is kept from one evaluation to the next is what the rows say, whatever happened to them."""

import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latencyprobe.plan import Role
from latencyprobe.report import build
from latencyprobe.sli import Coverage, EvidenceCount, PressureTime, SliRow, SlowExchange
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.slo.windows import WINDOW_S
from latencyprobe.store import SqliteStore, columns
from latencyprobe.store.kept import FORGOTTEN_S, Kept
from latencyprobe.store.levels import Horizons, Span
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, KEY, MINUTE_S, NOW, Clock, row

CALLER = KEY._replace(objective="calls", perspective=Role.CLIENT)
EDITED = KEY._replace(hash="h2")
OBJECTIVES = [
    Objective(key, "cart", 25_000_000, "99", window, 1, errors_count_as_bad=True)
    for key, window in ((KEY, "90d"), (CALLER, "1d"), (EDITED, "28d"))
]


def full(key: ObjectiveKey, minute: int, seed: int) -> SliRow:
    """Return a row that has something of everything, also what began an hour ago."""
    began_ns = (minute - seed % 3 * 1800) * 10**9
    slow = SlowExchange(f"{seed % 7:032x}", began_ns, 1 + seed % 40, {"process": seed}, "p", joined=bool(seed % 2))
    return row(
        *(minute, seed % 50, seed % 4),
        key=key,
        histogram={-200 + seed % 9: seed % 50, -3: seed % 4},
        stage_ns={"process": seed, "wait": -seed},
        dominant={"process": seed % 4},
        coverage=Coverage(seed % 60, 1, 2, seed % 2, 0, 3, 40_000 + seed % 3 * 20_000),
        slowest=(slow,),
        peers={f"p{seed % 30}": 1 + seed % 4},
        evidence={"tcprt": EvidenceCount(seed % 5, 1, seed)},
        exclusions={"push": 1, "oneway": 2},
        pressure={"cpu": PressureTime(seed, 60_000_000, 1, 2)},
        waited_ns={f"w{seed % 30}": seed},
        cause_ns={f"call{seed % 25}": seed, "other": 1},
    )


class Played:
    """A store that is written, compacted, opened again, while time passes; beside it all that it should hold."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = Clock(NOW - 100 * DAY_S)
        self.store = self._opened()
        self.log: list[SliRow] = []
        for days in range(100, 0, -5):
            self.clock.now = NOW - days * DAY_S
            self.add(days, 0)
        self.clock.now = NOW

    def _opened(self) -> SqliteStore:
        return SqliteStore(self.path, clock=self.clock, steady=self.clock)

    def add(self, seed: int, back_s: int) -> None:
        """Add a row of each series, of now or late."""
        minute = int(self.clock.now - back_s) // MINUTE_S * MINUTE_S
        rows = [full(key, minute, seed + i) for i, key in enumerate((KEY, CALLER))]
        self.store.add(rows)
        self.log += rows

    def expect(self, seed: int, back_s: int) -> None:
        minute = int(self.clock.now - back_s) // MINUTE_S * MINUTE_S
        self.store.expect([((KEY, CALLER), minute, 60_000 + seed % 2 * 60_000)])

    def edit(self, seed: int, back_s: int) -> None:
        """Define other objectives, one of which gets its first counts."""
        self.store.define("shop", "checkout", OBJECTIVES[seed % 3 :])
        self.store.add([full(EDITED, int(self.clock.now) // MINUTE_S * MINUTE_S, seed)])

    def go_on(self, seed: int, back_s: int) -> None:
        self.clock.now += (15, 60, 600, HOUR_S, DAY_S, 12 * DAY_S)[seed % 6]

    def compact(self, seed: int, back_s: int) -> None:
        self.store.compact(int(self.clock.now))

    def open_again(self, seed: int, back_s: int) -> None:
        self.store.close()
        self.store = self._opened()

    def evaluate(self, seed: int, back_s: int) -> None:
        """Ask as the operator does each minute, and for a moment that is over; compare with a store that has just been
        opened."""
        now = int(self.clock.now)
        with SqliteStore(self.path, readonly=True) as fresh:
            assert build.build(fresh, OBJECTIVES, now) == build.build(self.store, OBJECTIVES, now)
            for window_s in WINDOW_S.values():
                for until in (now + 1, now - back_s):
                    asked = (KEY, until - window_s, until)
                    assert fresh.read(*asked) == self.store.read(*asked)
                    assert fresh.events_by_step(*asked, HOUR_S) == self.store.events_by_step(*asked, HOUR_S)
        self._as_logged(self.store.read(KEY, now - 90 * DAY_S, now + 1))

    def _as_logged(self, read: SliRow) -> None:
        counted = [one for one in self.log if one.objective == KEY.objective and one.minute >= read.minute]
        assert (sum(one.good for one in counted), sum(one.bad for one in counted)) == (read.good, read.bad)
        assert sum((Counter(one.histogram) for one in counted), Counter()) == Counter(read.histogram)


@contextmanager
def played() -> Iterator[Played]:
    with tempfile.TemporaryDirectory() as folder:
        one = Played(Path(folder) / "sli.db")
        with one.store:
            yield one
        one.store.close()


HAPPENS = (
    *(Played.add, Played.add, Played.go_on, Played.go_on),
    *(Played.evaluate, Played.evaluate, Played.expect, Played.edit, Played.compact, Played.open_again),
)
happenings = st.tuples(
    st.sampled_from(HAPPENS), st.integers(0, 1000), st.sampled_from([0, 0, 60, 600, 5 * HOUR_S, 23 * HOUR_S])
)


@pytest.mark.long
@settings(max_examples=25, deadline=None)
@given(st.lists(happenings, min_size=5, max_size=30))
def test_what_is_kept_is_what_the_rows_say_whatever_happened_to_them(happened: list[tuple[object, int, int]]) -> None:
    with played() as store:
        store.evaluate(0, 0)
        for happens, seed, back_s in happened:
            happens(store, seed, back_s)  # type: ignore[operator]
        store.evaluate(0, 600)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return how many rows were read, one number for each sum that was made of rows."""
    found: list[int] = []
    summed = columns.summed

    def counting(stored: list[object]) -> object:
        found.append(len(stored))
        return summed(stored)  # type: ignore[arg-type]

    monkeypatch.setattr(columns, "summed", counting)
    return found


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Played]:
    """Yield a store with a row in each minute of 13 hours and 9 minutes, since 5 o'clock."""
    one = Played(tmp_path / "sli.db")
    for minute in range(790):
        one.clock.now = NOW + minute * MINUTE_S
        one.store.add([row(int(one.clock.now), good=100)])
    with one.store:
        yield one


def evaluate(store: Played) -> None:
    build.build(store.store, [OBJECTIVES[0]], int(store.clock.now))


def test_a_minute_later_few_rows_are_read(store: Played, counted: list[int]) -> None:
    evaluate(store)
    assert sum(counted) > 40
    for _ in range(30):
        store.clock.now += MINUTE_S
        store.store.add([row(int(store.clock.now) - MINUTE_S, good=100)])
        counted.clear()
        evaluate(store)
        assert sum(counted) <= 10 + 10 + 5, "a ten that changed, one that is not over, the last five minutes"


def test_a_late_row_makes_the_rows_beside_it_be_read_again_and_no_others(store: Played, counted: list[int]) -> None:
    evaluate(store)
    store.store.add([row(int(store.clock.now) - 5 * HOUR_S, good=100)])
    counted.clear()
    evaluate(store)
    assert (12, 12 + 5) == (max(counted), sum(counted)), "the hours since 5 o'clock but the last, and the last minutes"


def test_who_only_reads_keeps_nothing(store: Played) -> None:
    with SqliteStore(store.path, readonly=True) as reader:
        for good in (100, 200):
            now = int(store.clock.now) // HOUR_S * HOUR_S
            assert good == reader.read(KEY, now - 600, now - 540).good
            store.store.add([row(now - 600, good=100)])


@pytest.mark.long
def test_of_what_was_asked_for_no_more_is_kept_than_of_the_last_minutes(store: Played) -> None:
    kept = store.store._kept

    def sizes() -> list[int]:
        return [len(one) for half in (kept._asked, kept._before) for of in half.values() for one in of.values()]

    for minutes in range(500):  # past midnight
        store.clock.now += MINUTE_S
        if minutes % 61 == 0:
            store.store.add([full(KEY, int(store.clock.now) - MINUTE_S, minutes)])
        evaluate(store)
        assert 8 <= len(sizes()) <= 64
    assert sum(sizes()) < 16 << 10
    store.clock.now += 2 * FORGOTTEN_S
    store.store.read(CALLER, int(store.clock.now) - HOUR_S, int(store.clock.now))
    store.clock.now += FORGOTTEN_S
    store.store.read(CALLER, int(store.clock.now) - HOUR_S, int(store.clock.now))
    assert [store.store._series.known(CALLER)] == [*kept._asked]
    assert [store.store._series.known(CALLER)] == [*kept._before]


def test_the_slowest_are_those_that_began_in_the_window_also_of_what_is_kept(store: Played) -> None:
    def slow(began: int, duration_ns: int) -> SlowExchange:
        return SlowExchange(f"{duration_ns:032x}", began * 10**9, duration_ns, {}, "p")

    hour = int(store.clock.now) // HOUR_S * HOUR_S - 5 * HOUR_S
    store.store.add([row(hour, slowest=tuple(slow(hour - 1, 90 + i) for i in range(5)))])
    store.store.add([row(hour + HOUR_S, slowest=(slow(hour + HOUR_S, 7),))])
    for since, longest in ((hour - HOUR_S, 94), (hour, 7)):
        for _ in range(2):
            assert longest == store.store.read(KEY, since, hour + 4 * HOUR_S).slowest[0].duration_ns


def test_what_compaction_deleted_is_in_no_sum(tmp_path: Path) -> None:
    day = NOW // DAY_S * DAY_S
    clock = Clock(day)
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        store.add([row(day)])
        for clock.now, good in ((day + 401 * DAY_S - 30, 1), (day + 401 * DAY_S + 30, 0)):
            store.compact(int(clock.now))
            assert good == store.read(KEY, day, day + DAY_S).good


SPAN = Span(HOUR_S, 0, 2 * HOUR_S)


def made(kept: Kept, span: Span, value: int, series: int = 1) -> int:
    return kept.sum(int, series, span, lambda: value)


def test_a_sum_is_made_once_for_each_series_piece_and_kind_until_it_changes(clock: Clock) -> None:
    kept = Kept(clock)
    assert [3, 3] == [made(kept, SPAN, 3), made(kept, SPAN, 4)]
    assert [5, 6] == [made(kept, SPAN, 5, series=2), made(kept, SPAN._replace(until=HOUR_S), 6)]
    assert "x" == kept.sum(str, 1, SPAN, lambda: "x")
    kept.changed(1, 2 * HOUR_S)
    assert 3 == made(kept, SPAN, 7)
    kept.changed(1, 2 * HOUR_S - MINUTE_S)
    assert [7, 5] == [made(kept, SPAN, 7), made(kept, SPAN, 8, series=2)]


def test_what_does_not_last_or_fit_is_made_each_time(clock: Clock) -> None:
    kept = Kept(clock)
    assert [1, 2] == [made(kept, Span(MINUTE_S, 0, 540), value) for value in (1, 2)]
    assert [1 << 64, 2] == [made(kept, SPAN, value) for value in (1 << 64, 2)]
    assert [1, 2] == [made(Kept(None), SPAN, value) for value in (1, 2)]


def test_a_change_is_known_also_of_what_was_asked_for_before(clock: Clock) -> None:
    kept = Kept(clock)
    made(kept, SPAN, 1)
    clock.now += FORGOTTEN_S
    made(kept, SPAN, 1, series=2)
    kept.changed(1, HOUR_S)
    assert 2 == made(kept, SPAN, 2)


def test_compaction_forgets_what_rows_were_deleted_of(clock: Clock) -> None:
    kept = Kept(clock)
    day = Span(DAY_S, 0, DAY_S)
    for span in (SPAN, day):
        made(kept, span, 1)
    kept.compacted(Horizons(0, HOUR_S, 0))
    assert [2, 1] == [made(kept, SPAN, 2), made(kept, day, 2)]
