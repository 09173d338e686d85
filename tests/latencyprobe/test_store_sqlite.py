"""store/sqlite.py: every event counted once, and read back in every window that holds it."""

import random
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
        store.add_batches([("n2", batch(1, told))])
        assert not [file for file in tmp_path.iterdir() if b"shop/web" in file.read_bytes()]
        store.settle()
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


def test_batch_counts_once(store: SqliteStore) -> None:
    assert 8 == add_batch(store, "n1", batch(7, row()))  # an unknown instance starts anywhere
    assert 8 == add_batch(store, "n1", batch(7, row()))
    assert 8 == add_batch(store, "n1", batch(3, row()))
    assert 9 == add_batch(store, "n1", batch(8, row()))
    assert 2 == good(store)


def test_batches_of_many_nodes_at_once_are_what_they_are_one_by_one(tmp_path: Path, clock: Clock) -> None:
    rng, other = random.Random(7), KEY._replace(objective="slow")
    late = NOW - 25 * HOUR_S  # only counted as missed

    def drawn(node: int) -> SliRow:
        good, bad = rng.randrange(9), rng.randrange(3)
        return row(
            *(rng.choice([NOW, NOW, NOW - 60, late]), good, bad, rng.choice([KEY, KEY, other])),
            histogram={rng.randrange(-5, 5): good + bad},
            stage_ns={"process": bad * 10**9},
            coverage=Coverage(seen=good + bad, ambiguous=node % 2, measured_ms=rng.randrange(60_000)),
            slowest=(
                SlowExchange(f"{rng.getrandbits(128):032x}", NOW * 10**9, rng.randrange(10**9), {}, f"shop/{node}"),
            ),
            peers={f"shop/{rng.randrange(5)}": bad},
            by_peer={f"shop/{rng.randrange(5)}": PeerCounts(good, bad)},
        )

    batches = [(f"n{node}", batch(1, *(drawn(node) for _ in range(3)))) for node in range(40)]
    batches += [("n1", batch(1)), ("n2", batch(5, drawn(2))), ("n3", batch(2, drawn(3)))]  # again; a gap; one more
    with SqliteStore(tmp_path / "one.db", clock=clock) as one, SqliteStore(tmp_path / "all.db", clock=clock) as all_:
        for store in (one, all_):
            store.expect([([KEY, other], minute, 600_000) for minute in (NOW, NOW - 60)])
        assert all_.add_batches(batches) == [add_batch(one, *some) for some in batches]
        all_.settle()
        for key in (KEY, other):
            for since in (NOW, NOW - 60, NOW - DAY_S, NOW - 3 * DAY_S):
                assert all_.read(key, since, NOW + 60) == one.read(key, since, NOW + 60)
                assert all_.by_peer(key, since, NOW + 60) == one.by_peer(key, since, NOW + 60)


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
