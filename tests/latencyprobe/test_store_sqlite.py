"""store/sqlite.py: every event counted once, and read back in every window that holds it."""

import random
import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from latencyprobe.plan import Role
from latencyprobe.sli import Coverage, PeerCounts, SliRow, SlowExchange, merged
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, KEY, MINUTE_S, NOW, Clock, add_batch, batch, good, row


@pytest.fixture
def store(empty_store: SqliteStore) -> SqliteStore:
    return empty_store


def objective(key: ObjectiveKey = KEY, goal: str = "99.9") -> Objective:
    return Objective(key, "cart", 25_000_000, goal, "28d", 100, errors_count_as_bad=True)


def test_row_is_read_back_as_it_was(store: SqliteStore) -> None:
    slow = SlowExchange("ab" * 16, NOW * 10**9 + 5, 40_000_000, {"process": 39_000_000}, "shop/web", joined=True)
    whole = row(
        *(NOW, 9, 1),
        histogram={-200: 9, -149: 1},
        stage_ns={"process": 39_000_000},
        dominant={"process": 1},
        coverage=Coverage(13, 2, 1, 3, 4, 5, 60_000, 60_000, 6),
        slowest=(slow,),
        peers={"shop/web": 1},
        exclusions={"push": 2, "oneway": 1},
    )
    store.add([whole])
    assert whole == store.read(KEY, NOW, NOW + 60)


def test_counts_of_one_minute_add_up(store: SqliteStore) -> None:
    one = row(good=2, histogram={1: 2}, exclusions={"push": 2}, coverage=Coverage(sampled_out=7))
    other = row(
        *(NOW, 3, 1),
        histogram={1: 3, 7: 1},
        dominant={"send": 1},
        coverage=Coverage(seen=4, sampled_out=1),
        exclusions={"push": 1, "peer": 4},
    )
    store.add([one])
    store.add([other])
    assert merged(one, other) == store.read(KEY, NOW, NOW + 60)


def test_window_holds_exactly_the_rows_that_it_overlaps(store: SqliteStore) -> None:
    store.add(row(NOW + 60 * i, good=10**i) for i in range(5))
    assert Events(110, 0) == store.events(KEY, NOW + 60, NOW + 180)
    assert Events(110, 0) == store.events(KEY, NOW + 119, NOW + 121)
    assert Events(0, 0) == store.events(KEY, NOW - 60, NOW)
    assert NOW + 60 == store.read(KEY, NOW + 100, NOW + 180).minute


def test_figures_by_peer_are_of_what_is_stored_once_and_in_no_file(tmp_path: Path, clock: Clock) -> None:
    told = row(by_peer={"shop/web": PeerCounts(3, 1, {-200: 3})})
    window = (NOW, NOW + MINUTE_S)
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        for _ in range(2):
            add_batch(store, "n1", batch(1, told))
        add_batch(store, "n2", batch(1, told))
        with pytest.raises(OverflowError):
            store.add([told, replace(told, good=1 << 70)])
        by_peer = {"shop/web": PeerCounts(6, 2, {-200: 6})}
        assert (NOW, by_peer) == store.by_peer(KEY, *window)
        assert {} == store.read(KEY, *window).by_peer
        with SqliteStore(tmp_path / "sli.db", readonly=True) as reader:
            assert reader.by_peer(KEY, *window) is None
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as again:
        assert (NOW, {}) == again.by_peer(KEY, *window)


@pytest.mark.long
def test_every_window_equals_the_raw_log_while_months_pass(tmp_path: Path, clock: Clock) -> None:
    rng = random.Random(7)
    clock.now = start = NOW - 100 * DAY_S
    log: list[SliRow] = []
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        while clock.now < NOW:
            late_s = rng.choice([0, 0, 0, 23 * HOUR_S])
            minute = max(start, int(clock.now) - late_s) // 60 * 60
            log.append(row(minute, rng.randrange(50), rng.randrange(3), histogram={rng.randrange(-300, 0): 1}))
            store.add([log[-1]])
            store.compact(int(clock.now))
            clock.now += rng.choice([60, 600, 6 * HOUR_S])
        now = int(clock.now)
        for length_s in (300, HOUR_S, 6 * HOUR_S, DAY_S, 3 * DAY_S, 7 * DAY_S, 28 * DAY_S, 90 * DAY_S):
            read = store.read(KEY, now - length_s, now)
            assert now - length_s - DAY_S < read.minute <= now - length_s
            expected = [entry for entry in log if read.minute <= entry.minute < now]
            assert (sum(e.good for e in expected), sum(e.bad for e in expected)) == (read.good, read.bad)
            assert len(expected) == sum(read.histogram.values())
            assert Events(read.good, read.bad) == store.events(KEY, now - length_s, now)


def test_compaction_keeps_what_each_level_promises(tmp_path: Path, clock: Clock) -> None:
    clock.now = NOW - 500 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        while clock.now <= NOW:
            store.add([row(int(clock.now))])
            clock.now += 10 * HOUR_S
        store.compact(NOW)
    with sqlite3.connect(store.path) as db:
        oldest = dict(db.execute("SELECT width_s, min(start) FROM counts GROUP BY width_s").fetchall())
    assert NOW - 2 * DAY_S - HOUR_S <= oldest[MINUTE_S] <= NOW - 2 * DAY_S + 10 * HOUR_S
    assert NOW - 36 * DAY_S <= oldest[HOUR_S] <= NOW - 34 * DAY_S
    assert NOW - 401 * DAY_S <= oldest[DAY_S] <= NOW - 399 * DAY_S


def horizons_of(store: SqliteStore) -> tuple[int, ...]:
    return tuple(store._db.execute("SELECT minutes, hours, days FROM state").fetchone())


def test_a_jump_of_the_clock_takes_no_minute_away_and_is_forgotten(tmp_path: Path, clock: Clock) -> None:
    """Ten minutes in the wrong year, with a restart in between."""
    steady = Clock(1000)
    minutes = range(NOW - 20 * HOUR_S, NOW, 60)
    for started in range(2):
        with SqliteStore(tmp_path / "sli.db", clock=clock, steady=steady) as store:
            if not started:
                store.add(row(minute) for minute in minutes)
                add_batch(store, "n1", batch(5))
            for _ in range(5):
                steady.now += 60
                store.compact(NOW + 400 * DAY_S)
    steady.now += 60
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=steady) as store:
        store.compact(NOW)
        assert 60 == store.events(KEY, NOW - 19 * HOUR_S, NOW - 18 * HOUR_S).good
        assert 1 == store.events(KEY, NOW - 19 * HOUR_S, NOW - 19 * HOUR_S + 60).good
        assert 6 == add_batch(store, "n1", batch(9)), "its number is still known"


def test_a_clock_that_was_wrong_when_the_store_was_begun_costs_nothing_once_it_is_right(
    tmp_path: Path, clock: Clock
) -> None:
    clock.now = NOW + 400 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=Clock(0)) as store:
        store.add([row(int(clock.now))])
        store.compact(int(clock.now))
        clock.now = NOW
        store.add([row(NOW - 60)])
        store.compact(NOW)
        assert 1 == store.events(KEY, NOW - 60, NOW).good
        assert 0 == store.events(KEY, NOW - 120, NOW - 60).good


def test_horizons_never_recede(store: SqliteStore, clock: Clock) -> None:
    store.add(row(minute) for minute in range(NOW - 20 * HOUR_S, NOW, 600))
    clock.now = NOW + 2 * DAY_S
    store.compact(int(clock.now))
    known = horizons_of(store)
    assert NOW == known[0], "all its minutes are gone"
    for back_s in (HOUR_S, 3 * DAY_S, 300 * DAY_S):
        store.compact(int(clock.now) - back_s)
        assert known == horizons_of(store)
    assert 6 == store.events(KEY, NOW - 10 * HOUR_S, NOW - 9 * HOUR_S).good, "read from the hours that are left"


def test_a_store_that_was_closed_for_a_month_catches_up(tmp_path: Path, clock: Clock) -> None:
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        store.add([row()])
    clock.now += 30 * DAY_S
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        while not horizons_of(store)[0]:
            clock.now += HOUR_S
            store.compact(int(clock.now))
            assert clock.now < NOW + 31 * DAY_S


def test_late_minute_counts_for_a_day_and_is_then_reported(store: SqliteStore) -> None:
    store.add([row(NOW - DAY_S), row(NOW - DAY_S - 60)])
    assert (1, 1) == (good(store), store.late_rows)


def test_what_was_refused_as_late_is_missing_in_the_coverage_of_its_minute(store: SqliteStore, clock: Clock) -> None:
    clock.now = NOW - DAY_S
    store.add([row(NOW - DAY_S - 120, good=90)])
    clock.now = NOW
    late = row(NOW - DAY_S - 60, 8, 1, coverage=Coverage(seen=11, ambiguous=2, lost=1), exclusions={"push": 2})
    store.add([late, row(NOW - 3 * DAY_S, 7), row(NOW - DAY_S - 60, key=KEY._replace(objective="nobody's"))])
    for until in (NOW - DAY_S, NOW - 22 * HOUR_S, NOW + DAY_S):
        read = store.read(KEY, NOW - DAY_S - 120, until)
        assert (90, 0, Coverage(lost=12)) == (read.good, read.bad, read.coverage)
    assert 3 == store.late_rows
    assert store.since(KEY._replace(objective="nobody's")) is None


def test_batch_counts_once(store: SqliteStore) -> None:
    assert 8 == add_batch(store, "n1", batch(7, row()))  # an unknown instance starts anywhere
    assert 8 == add_batch(store, "n1", batch(7, row()))
    assert 8 == add_batch(store, "n1", batch(3, row()))
    assert 9 == add_batch(store, "n1", batch(8, row()))
    assert 2 == good(store)


def test_gap_stores_nothing_and_names_the_expected_number(store: SqliteStore) -> None:
    add_batch(store, "n1", batch(1, row()))
    assert 2 == add_batch(store, "n1", batch(3, row()))
    assert 1 == good(store)


def test_instances_count_for_themselves(store: SqliteStore) -> None:
    for node, instance in (("n1", "i1"), ("n1", "i2"), ("n2", "i1")):
        assert 2 == add_batch(store, node, batch(1, row(), instance=instance))
    assert 3 == good(store)


def test_instance_is_remembered_for_days_and_then_forgotten(store: SqliteStore, clock: Clock) -> None:
    add_batch(store, "n1", batch(5))
    for past_s, expected in ((0, 6), (1, 2)):
        clock.now = NOW + 3 * DAY_S + past_s
        store.compact(int(clock.now))
        assert expected == add_batch(store, "n1", batch(1))


def test_node_is_remembered_by_its_latest_instances_alone(store: SqliteStore, clock: Clock) -> None:
    for number in range(40):
        clock.now += 1
        add_batch(store, "n1", batch(5, instance=f"i{number}"))
    add_batch(store, "n2", batch(5))
    assert 16 + 1 == store._db.execute("SELECT count(*) FROM instances").fetchone()[0]
    assert 6 == add_batch(store, "n1", batch(9, instance="i39")), "a gap: it is known"


def test_a_day_of_all_nodes_is_added_up_beyond_64_bits_of_ns(store: SqliteStore) -> None:
    """22 bad exchanges are always under way on each of 5,000 nodes."""
    spent_ns = 5000 * 22 * DAY_S * 10**9 // 100
    store.add([row(stage_ns={"wait": spent_ns, "network": -spent_ns}) for _ in range(100)])
    found = store.read(KEY, NOW - 5 * HOUR_S, NOW + DAY_S).stage_ns
    assert 2**63 < found["wait"] == pytest.approx(100 * spent_ns, rel=1e-15)
    assert found["network"] == -found["wait"]


def test_a_window_that_begins_between_two_torn_readings_has_no_negative_sum(store: SqliteStore) -> None:
    store.add([row(NOW - 60, good=8, bad=1), row(good=9, bad=-1)])
    assert Events(9, 0) == store.events(KEY, NOW, NOW + 60)
    assert 0 == store.read(KEY, NOW, NOW + 60).bad
    assert Events(17, 0) == store.events(KEY, NOW - 60, NOW + 60)


def test_wanted_time_is_the_highest_word_for_a_minute(store: SqliteStore) -> None:
    for expected_ms in (60_000, 120_000, 60_000):
        store.expect([([KEY], NOW, expected_ms)])
    store.add([row(coverage=Coverage(measured_ms=45_000))])
    assert Coverage(measured_ms=45_000, expected_ms=120_000) == store.read(KEY, NOW - DAY_S, NOW + 60).coverage


def test_wanted_time_is_stored_however_long_the_store_was_away_while_minutes_are_kept(
    store: SqliteStore, clock: Clock
) -> None:
    clock.now = NOW - 3 * DAY_S
    store.add([row(NOW - 3 * DAY_S)])
    clock.now = NOW
    store.compact(NOW)
    horizon = horizons_of(store)[0]
    minutes = [horizon - 60, horizon, NOW - 30 * HOUR_S, NOW]
    assert 1 == store.expect([([KEY], minute, 60_000) for minute in minutes]), "whose minute is not kept any more"
    assert 180_000 == store.read(KEY, horizon, NOW + 60).coverage.expected_ms
    assert 60_000 == store.read(KEY, NOW - 30 * HOUR_S, NOW - 29 * HOUR_S).coverage.expected_ms
    assert 0 == store.late_rows


MEASURED = Coverage(measured_ms=60_000)
SPANS = {"minutes": (NOW, NOW + 120), "hours": (NOW, NOW + HOUR_S), "days": (NOW - 5 * HOUR_S, NOW + 19 * HOUR_S)}


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
@pytest.mark.parametrize("wanted_first", [True, False])
@pytest.mark.parametrize("wanted_ms", [0, 50_000])
def test_time_that_nobody_wanted_fills_no_gap_in_any_level(
    store: SqliteStore, span: tuple[int, int], wanted_first: bool, wanted_ms: int
) -> None:
    """As of minutes before the operator's start, or of a node that measures before it is known to be ready."""
    for wanted in (wanted_first, not wanted_first):
        if wanted:
            store.expect([([KEY], NOW, wanted_ms)])
            store.expect([([KEY], NOW + 60, 60_000)])
        else:
            store.add([row(NOW, coverage=MEASURED), row(NOW, coverage=MEASURED)])
            store.add([row(NOW + 60, coverage=Coverage(measured_ms=50_000))])
    coverage = store.read(KEY, *span).coverage
    assert (50_000 + wanted_ms, 60_000 + wanted_ms) == (coverage.measured_ms, coverage.expected_ms)


@pytest.mark.parametrize("span", SPANS.values(), ids=SPANS)
def test_the_minute_that_is_not_over_does_not_hide_the_gap_of_an_earlier_one(
    store: SqliteStore, span: tuple[int, int]
) -> None:
    store.add([row(NOW, coverage=Coverage(measured_ms=53_000)), row(NOW + 60, coverage=Coverage(measured_ms=15_000))])
    store.expect([([KEY], NOW, 60_000)])
    coverage = store.read(KEY, *span).coverage
    assert (53_000, 60_000) == (coverage.measured_ms, coverage.expected_ms)


def test_every_level_holds_the_same_time_whatever_came_first(store: SqliteStore) -> None:
    rng = random.Random(3)
    measured, expected = dict.fromkeys(range(NOW, NOW + HOUR_S, 60), 0), dict.fromkeys(range(NOW, NOW + HOUR_S, 60), 0)
    for _ in range(600):
        minute, ms = rng.choice(list(measured)), rng.choice([0, 20_000, 60_000, 120_000])
        if rng.random() < 0.3:
            store.expect([([KEY], minute, ms)])
            expected[minute] = max(expected[minute], ms)
        else:
            store.add([row(minute, coverage=Coverage(measured_ms=ms))])
            measured[minute] += ms
    wanted = sum(min(measured[minute], expected[minute]) for minute in measured)
    for span in ((NOW, NOW + 59 * 60), SPANS["hours"], SPANS["days"]):
        last = NOW + 59 * 60
        of_last = 0 if span[1] > last else min(measured[last], expected[last])
        assert wanted - of_last == store.read(KEY, *span).coverage.measured_ms


def test_slowest_are_those_that_began_in_the_window(store: SqliteStore) -> None:
    def slow(second: int, duration_ns: int) -> SliRow:
        exchange = SlowExchange(f"{duration_ns:032x}", second * 10**9, duration_ns, {}, "shop/web")
        return row(second // 60 * 60, slowest=(exchange,), peers={"shop/web": 1})

    store.add([slow(NOW - 30 * 60, 9), slow(NOW - 90 * 60, 8), slow(NOW - 3 * HOUR_S, 7)])
    read = store.read(KEY, NOW - HOUR_S, NOW)
    assert [9] == [exchange.duration_ns for exchange in read.slowest]
    assert [9, 8, 7] == [exchange.duration_ns for exchange in store.read(KEY, NOW - 28 * DAY_S, NOW).slowest]


def test_definitions_follow_the_probe(store: SqliteStore) -> None:
    changed, other = KEY._replace(hash="h2"), KEY._replace(probe="other")
    store.define("shop", "other", [objective(other)])
    store.define("shop", "checkout", [objective()])
    assert (objective(other), objective()) == store.objectives()
    store.define("shop", "checkout", [objective(goal="99")])
    assert (objective(other), objective(goal="99")) == store.objectives()
    store.define("shop", "checkout", [objective(changed)])
    assert (objective(other), objective(changed)) == store.objectives()
    store.define("shop", "checkout", [])
    assert (objective(other),) == store.objectives()


def test_series_begins_with_its_first_minute(store: SqliteStore) -> None:
    assert store.since(KEY) is None
    store.add([row(NOW), row(NOW - 120)])
    assert NOW - 120 == store.since(KEY)


def test_series_of_another_namespace_probe_or_definition_are_not_seen(store: SqliteStore) -> None:
    fields = {
        "namespace": "x",
        "probe": "x",
        "probe_uid": "x",
        "objective": "x",
        "hash": "x",
        "perspective": Role.CLIENT,
    }
    store.add([row(key=KEY._replace(**{name: value})) for name, value in fields.items()])  # type: ignore[arg-type]
    assert 0 == good(store)
