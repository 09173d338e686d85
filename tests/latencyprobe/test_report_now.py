"""report/now.py: the last full minutes."""

from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest

from latencyprobe.plan import Role
from latencyprobe.report import build, now
from latencyprobe.report.model import Now, PeerNow
from latencyprobe.sli import OTHERS, PeerCounts, SliRow
from latencyprobe.store import SqliteStore
from tests.latencyprobe.store_rows import Clock
from tests.latencyprobe.test_report_both_ends import FAST, SLOW, objective
from tests.latencyprobe.test_report_table import NOW


def of(store: SqliteStore, at: int = NOW) -> Now | None:
    return build.build(store, store.objectives(), at).results[0].now


def test_only_the_last_full_minutes_count(empty_store: SqliteStore) -> None:
    one = objective(Role.SERVER)
    empty_store.define("shop", "checkout", [one])
    for minute, events in ((NOW - 600, 9000), (NOW - 300, 300), (NOW - 60, 300), (NOW, 777)):
        bad = events // 10
        row = SliRow(*one.key, minute, events - bad, bad, {FAST: events}, dominant={"process": bad})
        empty_store.add([row])
    found = of(empty_store, NOW + 20)
    assert found is not None
    assert (found.over, found.rate, found.bad, found.p50) == ("5m", "2", "10", found.p99)
    assert [(stage.stage, stage.events) for stage in found.stages] == [("process", 60)]
    assert found.other_p50 is None


def test_minutes_whose_counts_may_still_come_are_not_among_the_last(writing: SqliteStore) -> None:
    """In a cluster of 5,000 nodes these are all that ended within 70 s: its rates were too low, and no peers told."""
    writing.add([told(NOW - 120, {"shop/web": counts(600)}), told(NOW - 60, {}, 300)])
    found = of(writing, NOW + 10)
    assert found is not None
    assert (found.over, found.rate, found.peers) == ("2m", "7.5", ())
    ((_, result),) = build.judged(writing, writing.objectives(), NOW + 10, lag_s=70)
    assert result.now is not None
    assert (result.now.over, result.now.rate, [one.rate for one in result.now.peers]) == ("1m", "10", ["10"])


def test_both_ends_of_the_same_minutes(empty_store: SqliteStore) -> None:
    server, client = objective(Role.SERVER), objective(Role.CLIENT)
    empty_store.define("shop", "checkout", [server, client])
    for one, bucket in ((server, FAST), (client, SLOW)):
        empty_store.add([SliRow(*one.key, minute=NOW - 60, good=60, histogram={bucket: 60})])
    by_side = {one.perspective: one.now for one in build.build(empty_store, empty_store.objectives(), NOW).results}
    mine, theirs = by_side["Server"], by_side["Client"]
    assert mine is not None
    assert theirs is not None
    assert mine.over == "1m", "it began so long ago"
    assert mine.rate == "1"
    assert (mine.p99, mine.other_p99) == (theirs.other_p99, theirs.p99)


def counts(events: int, bad: int = 0, bucket: int = FAST) -> PeerCounts:
    return PeerCounts(events, bad, {bucket: events})


def told(minute: int, by_peer: dict[str, PeerCounts], events: int | None = None) -> SliRow:
    """A row of these peers, and of as many events as they have, or as are given."""
    bad, every = (sum(getattr(one, field) for one in by_peer.values()) for field in ("bad", "events"))
    every = every if events is None else events
    return SliRow(*objective(Role.SERVER).key, minute, every - bad, bad, {FAST: every}, by_peer=by_peer)


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[SqliteStore]:
    """A store that has been written to for an hour."""
    clock = Clock(NOW - 3600)
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        store.define("shop", "checkout", [objective(Role.SERVER)])
        clock.now = NOW
        yield store


def peers(store: SqliteStore) -> list[PeerNow]:
    found = of(store)
    assert found is not None
    return list(found.peers)


def test_the_worst_peers_are_told_and_all_others_as_one(writing: SqliteStore) -> None:
    usual = {f"shop/p{i}": counts(600 + i) for i in range(6)}
    writing.add([told(NOW - 300, usual | {OTHERS: counts(60)}), told(NOW - 60, {"shop/late": counts(30, 3, SLOW)})])
    found = peers(writing)
    assert [one.peer for one in found] == ["shop/late", "shop/p5", "shop/p4", "shop/p3", "shop/p2", ""]
    assert (found[0].rate, found[0].bad, found[0].p99) == ("0.1", "10", "43ms")
    assert (found[1].rate, found[1].bad, found[1].p50) == ("2", "0", "640us")
    assert found[-1].rate == "4.2", "601 and 600 and 60 of 300 s"


@pytest.mark.parametrize(
    ("events", "known"), [(1000, True), (1100, True), (910, True), (1120, False), (890, False), (2000, False)]
)
def test_peers_that_are_not_those_of_the_events_are_not_told(writing: SqliteStore, events: int, known: bool) -> None:
    """Some node has an agent of a version before, or records were lost."""
    writing.add([told(NOW - 60, {"shop/web": counts(1000)}, events)])
    assert bool(peers(writing)) == known


@pytest.mark.parametrize(("bad", "known"), [(100, True), (91, True), (112, True), (140, False), (0, False)])
def test_peers_without_the_bad_events_are_not_told(writing: SqliteStore, bad: int, known: bool) -> None:
    """Where few are bad, all of their records may be lost and most of the others' be there."""
    row = told(NOW - 60, {"shop/web": counts(2000, 100)})
    writing.add([msgspec.structs.replace(row, good=2000 - bad, bad=bad)])
    assert bool(peers(writing)) == known


def test_of_few_events_two_may_be_in_another_minute(writing: SqliteStore) -> None:
    writing.add([told(NOW - 60, {"shop/web": counts(1)}, 3)])
    assert [one.peer for one in peers(writing)] == ["shop/web"]


def test_after_a_restart_rates_are_of_the_minutes_since(tmp_path: Path) -> None:
    clock = Clock(NOW - 130)
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as store:
        store.define("shop", "checkout", [objective(Role.SERVER)])
        minutes = range(NOW - 300, NOW, 60)
        store.add(told(at, {"shop/web": counts(60)} if at >= NOW - 180 else {}, 60) for at in minutes)
        found = of(store)
    assert found is not None
    assert (found.rate, [one.rate for one in found.peers]) == ("1", ["1"])


def test_nothing_came_so_nothing_is_told(empty_store: SqliteStore) -> None:
    one = objective(Role.SERVER)
    empty_store.define("shop", "checkout", [one])
    assert of(empty_store) is None
    empty_store.add([SliRow(*one.key, minute=NOW - 900, good=60, histogram={FAST: 60})])
    assert of(empty_store) is None


@pytest.mark.parametrize(
    ("bad", "events", "said"),
    [
        (600, 600, "100"),
        (199, 200, "99"),
        (9_999, 10_000, "99"),
        (1, 8, "12"),
        (1, 16, "6.2"),
        (1, 300, "0.33"),
        (1, 10**7, "0.00001"),
        (0, 7, "0"),
    ],
)
def test_shares_have_two_digits_and_are_whole_only_where_all_are_bad(bad: int, events: int, said: str) -> None:
    assert now.share(bad, events) == said


@pytest.mark.parametrize(
    ("value", "said"),
    [(Fraction(1, 300), "0.0033"), (Fraction(100, 7), "14"), (123456, "123000"), (999_900, "1000000"), (0, "0")],
)
def test_rates_have_two_digits_and_three_above_a_hundred(value: Fraction, said: str) -> None:
    assert now.rate(Fraction(value)) == said
