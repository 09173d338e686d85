"""report/both_ends.py: callers beside servers."""

from collections.abc import Mapping

import pytest
from msgspec.structs import replace

from latencyprobe.plan import Role
from latencyprobe.report import both_ends, build, notes
from latencyprobe.report.model import Result
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore
from tests.latencyprobe.test_report_table import NOW, printed

FAST, USUAL, SLOW = -340, -325, -146  # 0.64 ms, 0.89 ms, 42.8 ms


def objective(side: Role, target: str = "cart", name: str = "") -> Objective:
    key = ObjectiveKey("shop", "checkout", "u", name or f"{target}-{side}", "h", side)
    return Objective(key, target, 25_000_000, "99", "1d", 10, False)


def results(store: SqliteStore, histograms: Mapping[Role, Mapping[int, int]]) -> dict[str, Result]:
    """Return the results of a server's and a caller's objective with these durations, by perspective."""
    found = [objective(side) for side in histograms]
    store.define("shop", "checkout", found)
    for one in found:
        histogram = dict(histograms[one.key.perspective])
        store.add([SliRow(*one.key, minute=NOW - 120, good=sum(histogram.values()), histogram=histogram)])
    return {one.perspective: one for one in build.build(store, found, NOW).results}


def test_ends_of_one_target_find_each_other_and_no_other_target() -> None:
    server, client, other = objective(Role.SERVER), objective(Role.CLIENT), objective(Role.CLIENT, "pay")
    elsewhere = replace(client, key=client.key._replace(namespace="bank"))
    assert both_ends.pairs([server, client, other, elsewhere]) == {server.key: client.key, client.key: server.key}
    assert both_ends.pairs([server, other]) == {}


def test_each_end_tells_the_others_durations_and_callers_that_wait_longer_are_told(empty_store: SqliteStore) -> None:
    found = results(empty_store, {Role.SERVER: {FAST: 1000}, Role.CLIENT: {USUAL: 500, SLOW: 500}})
    server, client = found["Server"], found["Client"]
    assert server.other_end is not None
    assert client.other_end is not None
    assert (server.other_end.perspective, server.other_end.events) == ("Client", 1000)
    assert client.quantiles is not None
    assert server.other_end.p99 == client.quantiles.p99
    for one in (server, client):
        (note,) = [note.text for note in notes.told(one) if note.advice and "callers waited" in note.text]
        assert f"callers waited {client.quantiles.p99} at p99 where the server took {client.other_end.p99}" in note
    table = " ".join(printed(build.build(empty_store, empty_store.objectives(), NOW), 120).split())
    assert f"callers: p50 {server.other_end.p50}, p99 {server.other_end.p99} of 1,000" in table
    assert "the server: p50" in table


@pytest.mark.parametrize(
    "callers",
    [{USUAL: 1000}, {SLOW: 1000}, {USUAL: 50, SLOW: 40}],
    ids=["a round trip explains it", "each took as long: perhaps a long way", "too few calls"],
)
def test_what_a_round_trip_may_explain_is_no_advice(empty_store: SqliteStore, callers: Mapping[int, int]) -> None:
    found = results(empty_store, {Role.SERVER: {FAST: 1000}, Role.CLIENT: callers})
    assert found["Server"].other_end is not None
    assert [both_ends.advice(one) for one in found.values()] == ["", ""]


def test_an_end_that_nobody_counts_is_absent(empty_store: SqliteStore) -> None:
    found = results(empty_store, {Role.SERVER: {FAST: 1000}})
    assert found["Server"].other_end is None
    assert both_ends.told(found["Server"]) == both_ends.advice(found["Server"]) == ""
