"""The engine of all trackers: what begins, what ends, what is told of it, the knobs; by a row that the test drives."""

import os
import time
from collections.abc import Callable, Iterator

import pytest

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.vocabulary.records import KEY_DUPLICATES, Begun, TrackedFlag
from tests.truth.engine import Engine, attached

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

MS = 1_000_000
AT = 10_000 * MS  # some time, for those that say when
K1, K2 = b"one", b"two"


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


@pytest.fixture(scope="module")
def loaded() -> Iterator[Engine]:
    with attached(Knobs(MS, tgid=os.getpid())) as engine:
        yield engine


@pytest.fixture
def engine(loaded: Engine) -> Engine:
    """With nothing open, a threshold of 1 ms, and no record left."""
    loaded.programs.forget()
    loaded.programs.turn(**vars(Knobs(MS, tgid=os.getpid())))
    loaded.records()
    return loaded


@pytest.fixture
def told(engine: Engine) -> Callable[[], dict[str, int]]:
    """What was told since the test began, but for zeros."""
    before = engine.programs.told()
    return lambda: {what: n - before[what] for what, n in engine.programs.told().items() if n > before[what]}


def durations(engine: Engine) -> list[int]:
    return [int(ns) for ns in engine.records()["duration_ns"]]


def test_the_self_test_of_the_original(engine):
    assert [Begun.OK] * 10 == [engine.begin(K1, at_ns=AT) for _ in range(10)]
    assert Begun.OK == engine.begin(K2, at_ns=AT)
    assert [10, 1, -1] == [engine.end(key, at_ns=AT + 2 * MS) for key in (K1, K2, K1)]
    assert 11 * [2 * MS] == durations(engine)
    assert 0 == engine.programs.size()


def test_keys_are_compared_over_their_full_length(engine):
    same = bytes(range(63))
    engine.begin(same + b"a", at_ns=AT)
    assert -1 == engine.end(same + b"b", at_ns=AT + 2 * MS)
    assert 1 == engine.end(same + b"a", at_ns=AT + 2 * MS)


def test_of_one_key_there_are_at_most_sixteen(engine, told):
    assert [Begun.OK] * KEY_DUPLICATES == [engine.begin(K1, at_ns=AT) for _ in range(KEY_DUPLICATES)]
    assert Begun.FULL == engine.begin(K1, at_ns=AT)
    assert {"skipped": 1} == told()
    assert KEY_DUPLICATES == engine.end(K1, at_ns=AT)


def test_a_unique_one_replaces_what_is_open(engine, told):
    engine.begin(K1, at_ns=AT, unique=True)
    engine.begin(K1, at_ns=AT + 5 * MS, unique=True)
    assert {"replaced": 1} == told()
    assert 1 == engine.end(K1, at_ns=AT + 7 * MS)
    assert [2 * MS] == durations(engine)


def test_only_what_takes_longer_than_the_threshold_has_a_record(engine):
    for key, took_ns in ((K1, MS), (K2, MS + 1)):
        engine.begin(key, at_ns=AT)
        engine.end(key, at_ns=AT + took_ns, which=3)
    (record,) = engine.records()
    assert (AT, MS + 1, 3, 7) == (record["start_ns"], record["duration_ns"], record["id"], record["payload"][0])
    assert (os.getpid(), TrackedFlag.NORMAL) == (record["tgid"], record["flag"])
    assert b"python" in record["comm"].tobytes() or b"pytest" in record["comm"].tobytes()


def test_a_timeout_is_told_of_once_and_the_end_as_well(engine, told):
    engine.programs.turn(timeout_ns=10 * MS)
    start_ns = now_ns() - 11 * MS
    engine.begin(K1, at_ns=start_ns)
    engine.begin(K2, at_ns=start_ns + 10**12)  # begins later
    for _ in range(3):
        engine.programs.flush()
    (open_,) = engine.records()
    assert (TrackedFlag.TIMEOUT, start_ns) == (open_["flag"], open_["start_ns"])
    assert open_["duration_ns"] > 10 * MS
    assert 1 == engine.end(K1, at_ns=start_ns + 20 * MS)
    (ended,) = engine.records()
    assert (TrackedFlag.NORMAL, start_ns, 20 * MS) == (ended["flag"], ended["start_ns"], ended["duration_ns"])
    assert {"timeouts": 1} == told()


def test_what_is_open_for_too_long_is_removed_and_nothing_else(engine, told):
    engine.programs.turn(gc_threshold_ns=20_000 * MS)
    old_ns, young_ns = now_ns() - 21_000 * MS, now_ns()
    engine.begin(K1, at_ns=old_ns)
    engine.begin(K2, at_ns=young_ns)
    engine.programs.flush()
    (removed,) = engine.records()
    assert TrackedFlag.GC == removed["flag"]
    assert {"collected": 1} == told()
    assert [-1, 1] == [engine.end(key, at_ns=young_ns + 2 * MS) for key in (K1, K2)]


def test_only_what_is_worse_than_all_before_has_a_record(engine):
    engine.programs.turn(worst_only=True)
    for took_ms in (2, 5, 3, 5, 6, 1):
        engine.begin(K1, at_ns=AT)
        engine.end(K1, at_ns=AT + took_ms * MS)
    assert [2 * MS, 5 * MS, 6 * MS] == durations(engine)


def test_statistics_are_of_all_that_ended(engine):
    before = engine.programs.statistics()[0]
    for took_ns in (10, 30, 20 * MS):
        engine.begin(K1, at_ns=AT)
        engine.end(K1, at_ns=AT + took_ns)
    after = engine.programs.statistics()[0]
    assert (3, 20 * MS + 40) == (after["count"] - before["count"], after["total_ns"] - before["total_ns"])
    assert after["min_ns"] <= 10
    assert after["max_ns"] >= 20 * MS


def test_a_threshold_that_is_turned_counts_from_the_next_event_on(engine):
    engine.begin(K1, at_ns=AT)
    engine.programs.turn(threshold_ns=50 * MS)
    engine.end(K1, at_ns=AT + 40 * MS)
    assert [] == durations(engine)
    engine.begin(K1, at_ns=AT)
    engine.programs.turn(threshold_ns=30 * MS)
    engine.end(K1, at_ns=AT + 40 * MS)
    assert [40 * MS] == durations(engine)


def test_what_is_switched_off_forgets_and_begins_nothing(engine):
    engine.begin(K1, at_ns=AT)
    engine.programs.turn(tracking=False)
    assert Begun.DISABLED == engine.begin(K2, at_ns=AT)
    engine.programs.turn(tracking=True)
    assert [-1, -1] == [engine.end(key, at_ns=AT + 2 * MS) for key in (K1, K2)]


def test_a_limit_of_records_is_counted_beyond(engine, told):
    engine.programs.turn(records_per_second=10)
    for _ in range(100):
        engine.begin(K1, at_ns=AT)
        engine.end(K1, at_ns=AT + 2 * MS)
    came = len(engine.records())
    assert 100 - came == told()["rate_limited"] > 0


def test_what_is_full_refuses_and_evicts_nothing():
    with attached(Knobs(MS, tgid=os.getpid()), entries=16) as engine:
        keys = [b"key %d" % i for i in range(100)]
        begun = [engine.begin(key, at_ns=AT + i) for i, key in enumerate(keys)]
        kept = [i for i, result in enumerate(begun) if result == Begun.OK]
        assert 16 == len(kept) == engine.programs.size()
        assert list(range(16)) == kept, "the first ones stay"
        assert 84 == begun.count(Begun.FULL) == engine.programs.told()["skipped"]
        ends = [engine.end(key, at_ns=AT + 2 * MS) for key in keys]
        assert [1 if i in kept else -1 for i in range(100)] == ends
        assert [AT + i for i in kept] == engine.records()["start_ns"].tolist(), "no false match"
