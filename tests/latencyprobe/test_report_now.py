"""report/now.py: the last full minutes."""

from fractions import Fraction

import pytest

from latencyprobe.plan import Role
from latencyprobe.report import build, now
from latencyprobe.report.model import Now
from latencyprobe.sli import SliRow
from latencyprobe.store import SqliteStore
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


def test_nothing_came_so_nothing_is_told(empty_store: SqliteStore) -> None:
    one = objective(Role.SERVER)
    empty_store.define("shop", "checkout", [one])
    assert of(empty_store) is None
    empty_store.add([SliRow(*one.key, minute=NOW - 900, good=60, histogram={FAST: 60})])
    assert of(empty_store) is None


@pytest.mark.parametrize(
    ("bad", "events", "told"),
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
def test_shares_have_two_digits_and_are_whole_only_where_all_are_bad(bad: int, events: int, told: str) -> None:
    assert now.share(bad, events) == told


@pytest.mark.parametrize(
    ("value", "told"), [(Fraction(1, 300), "0.0033"), (Fraction(100, 7), "14"), (123456, "123000"), (0, "0")]
)
def test_rates_have_two_digits_and_three_above_a_hundred(value: Fraction, told: str) -> None:
    assert now.rate(Fraction(value)) == told
