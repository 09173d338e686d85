"""report/build.py: a LatencyReport's content, from the store's counts."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.bounds import MAX_NS
from latencyprobe.errors import StoreError
from latencyprobe.plan import Role
from latencyprobe.report import build, model, room
from latencyprobe.sli import EvidenceCount, PressureTime, SliRow, SlowExchange, WaitedFor
from latencyprobe.slo.evaluate import State
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore

NOW = 1_790_000_000 // 60 * 60
NOTHING = dict.fromkeys((state.column for state in State), 0)


def report(store: SqliteStore) -> dict[str, Any]:
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(build.build(store, store.objectives(), NOW)))
    return document


def result(store: SqliteStore, name: str) -> dict[str, Any]:
    return next(entry for entry in report(store)["results"] if entry["objective"] == name)


def test_results_are_counted_by_state_and_worst_comes_first(store: SqliteStore) -> None:
    assert NOTHING | {"met": 1, "violated": 1, "noData": 1} == report(store)["summary"]
    assert ["Violated", "NoData", "Met"] == [entry["state"] for entry in report(store)["results"]]


def test_violated_objective_names_the_stage_that_burned_the_budget(store: SqliteStore) -> None:
    fast = result(store, "fast")
    assert ("99", "-900", 60_000, 600) == (fast["sli"], fast["errorBudgetRemaining"], fast["events"], fast["bad"])
    assert [
        {"stage": "process", "events": 540, "share": "90", "time": "24s"},
        {"stage": "read_delay", "events": 60, "share": "10", "time": "2.4s"},
    ] == fast["badByStage"]
    assert [{"peer": "shop/frontend", "bad": 600}] == fast["topPeers"]
    assert ["Quiet", "Firing", "Firing", "Firing"] == [burn["state"] for burn in fast["burnRates"]]
    assert {"severity": "page", "long": "6h", "short": "30m", "factor": "6", "state": "Firing"}.items() < fast[
        "burnRates"
    ][1].items()


def test_definition_and_times_are_told_as_the_spec_tells_them(store: SqliteStore) -> None:
    fast = result(store, "fast")
    assert ("checkout", "cart", "Server", "25ms", "99.9", "28d") == tuple(
        fast[name] for name in ("probe", "target", "perspective", "threshold", "goal", "window")
    )
    assert ("2026-09-21T13:13:00Z", "2026-09-21T14:13:00Z") == (fast["since"], fast["updated"])


def test_quantiles_are_those_of_the_histogram(store: SqliteStore) -> None:
    assert {"p50": "1.01ms", "p90": "1.01ms", "p99": "1.01ms", "p999": "41.9ms"} == result(store, "fast")["quantiles"]


def test_slowest_keep_their_stages_in_order(store: SqliteStore) -> None:
    slowest = result(store, "fast")["slowest"]
    assert 5 == len(slowest)
    assert {
        "traceId": f"{59:032x}",
        "time": "2026-09-21T14:03:00.000Z",
        "duration": "44.209ms",
        "stages": [
            {"stage": "receive", "duration": "100us"},
            {"stage": "read_delay", "duration": "4ms"},
            {"stage": "process", "duration": "40.059ms"},
            {"stage": "send", "duration": "50us"},
        ],
        "peer": "shop/frontend",
        "evidence": [
            {"signal": "handshakes", "what": "ok", "count": 2, "wait": "1.02s"},
            {"signal": "retransmits", "what": "rto", "count": 1, "wait": "812ms"},
        ],
    } == {name: value for name, value in slowest[0].items() if name != "waitedFor"}
    assert slowest[1].keys().isdisjoint({"evidence", "waitedFor"})


def test_what_a_server_waited_for_is_a_share_of_process(store: SqliteStore) -> None:
    found = result(store, "fast")
    assert found["waitedFor"] == [
        {"peer": "shop/redis:6379", "time": "20.4s", "share": "85"},
        {"peer": "shop/users:8080", "time": "2.4s", "share": "10"},
    ]
    assert found["slowest"][0]["waitedFor"] == [
        {"peer": "shop/redis:6379", "calls": 3, "wait": "34ms", "traceId": "d" * 32},
        {"peer": "shop/users:8080", "calls": 1, "wait": "4ms", "traceId": "e" * 32},
    ]


def test_what_process_went_to_stands_beside_it(store: SqliteStore) -> None:
    assert result(store, "fast")["causes"] == [
        {"cause": "recvfrom", "time": "22.6s", "share": "94"},
        {"cause": "on CPU", "time": "960ms", "share": "4"},
        {"cause": "throttled", "time": "24ms", "share": "0.1"},
        {"cause": "unknown", "time": "456ms", "share": "1.9"},
    ]
    assert "causes" not in result(store, "calls")


def test_coverage_tells_what_is_missing(store: SqliteStore) -> None:
    calls = next(o for o in store.objectives() if o.key.objective == "calls")
    (entry,) = build.build(store, [calls], NOW, {calls.key: 2}).results
    assert {
        "ratio": "94",
        "seen": 60_600,
        "ambiguous": 600,
        "excluded": 0,
        "lost": 0,
        "recordsLost": 0,
        "joined": 30_000,
        "nodesMissing": 2,
        "gaps": "3m",
        "exclusions": ({"reason": "push", "turns": 540}, {"reason": "overlap", "turns": 60}),
        "sampledOut": 12_000,
    } == msgspec.to_builtins(entry.coverage)


def test_absent_data_is_absent_and_not_zero(store: SqliteStore) -> None:
    idle = result(store, "idle")
    assert ("NoData", 0, 1000) == (idle["state"], idle["events"], idle["eventsNeeded"])
    assert not {"sli", "errorBudgetRemaining", "quantiles", "since", "slowest"} & idle.keys()


def test_objective_that_cannot_be_evaluated_is_incomplete_says_why_and_takes_nothing_from_the_others(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def without_other_end(name: str) -> dict[str, Any]:
        return {field: value for field, value in result(store, name).items() if field not in ("otherEnd", "now")}

    whole = {name: without_other_end(name) for name in ("calls", "idle")}
    read = store.read

    def failing(key: ObjectiveKey, since: int, until: int, **how: bool) -> SliRow:
        return SliRow(*key, 0, 10**400 // 0) if key.objective == "fast" else read(key, since, until, **how)

    monkeypatch.setattr(store, "read", failing)
    assert NOTHING | {"met": 1, "incomplete": 1, "noData": 1} == report(store)["summary"]
    assert whole == {name: without_other_end(name) for name in ("calls", "idle")}
    assert "otherEnd" not in result(store, "calls"), "its other end is the broken one"
    fast = result(store, "fast")
    assert ("Incomplete", 0, 0, "99.9", "25ms") == tuple(
        fast[name] for name in ("state", "events", "bad", "goal", "threshold")
    )
    assert fast["reason"].startswith("ZeroDivisionError: ")
    assert "objective shop/checkout/fast (h1) is not evaluated: ZeroDivisionError" in caplog.text


def test_without_the_latest_counts_nothing_looks_healthy_and_what_was_lost_stays_lost(store: SqliteStore) -> None:
    before = {r.objective: r for r in build.build(store, store.objectives(), NOW).results}
    after = {r.objective: r for r in build.build(store, store.objectives(), NOW, None, "the disk is full").results}
    assert {r.state for r in before.values()} >= {State.MET, State.VIOLATED}
    for name, (state, events) in {name: (r.state, r.events) for name, r in before.items()}.items():
        assert after[name].state is (State.INCOMPLETE if state in (State.MET, State.AT_RISK) else state)
        assert (after[name].reason, after[name].events) == ("the disk is full", events)
    empty = build.build(None, store.objectives(), NOW, None, "the disk is full").results
    assert {(r.state, r.events, r.reason) for r in empty} == {(State.INCOMPLETE, 0, "the disk is full")}


def test_store_that_fails_altogether_is_no_fault_of_an_objective(store: SqliteStore) -> None:
    def failing(key: ObjectiveKey, since: int, until: int, **how: bool) -> SliRow:
        raise StoreError("disk I/O error", "StoreFailed")

    store.read = failing  # type: ignore[method-assign]  # as a disk does
    with pytest.raises(StoreError, match="disk I/O error"):
        build.build(store, store.objectives(), NOW)


def test_no_share_is_above_the_whole(store: SqliteStore) -> None:
    """What explains bad events may come a minute later than they, at the edge of the window."""
    late = {"dominant": {"process": 7}, "evidence": {"retransmits": EvidenceCount(9, 8, 7)}}
    store.add([SliRow(*next(o for o in store.objectives() if o.key.objective == "idle").key, minute=NOW - 60, **late)])
    idle = result(store, "idle")
    assert ["100"] == [stage["share"] for stage in idle["badByStage"]]
    assert [("100", "100")] == [(one["share"], one["badShare"]) for one in idle["evidence"]]


def test_records_of_a_signal_that_were_lost_are_told_where_it_explains_nothing(store: SqliteStore) -> None:
    key = next(o for o in store.objectives() if o.key.objective == "idle").key
    rows = [SliRow(*key, minute=NOW - ago, evidence={"handshakes": EvidenceCount(lost=4)}) for ago in (60, 3600)]
    store.add(rows)
    (one,) = result(store, "idle")["evidence"]
    assert ("handshakes", 0, 8) == (one["signal"], one["events"], one["lost"])


def test_events_of_the_current_second_count(store: SqliteStore) -> None:
    store.add([SliRow(*next(o for o in store.objectives() if o.key.objective == "idle").key, minute=NOW, good=7)])
    assert 7 == result(store, "idle")["events"]


def test_no_objectives_make_an_empty_report(store: SqliteStore) -> None:
    assert ((), 0) == (build.build(store, [], NOW).results, build.build(store, [], NOW).omitted)


def test_document_reads_back_as_a_latencyreport(store: SqliteStore) -> None:
    document = build.document("shop", build.build(store, store.objectives(), NOW))
    encoded = msgspec.json.encode(document)
    assert encoded.startswith(b'{"apiVersion":"latencyprobe.dev/v1alpha1","kind":"LatencyReport","metadata":')
    assert document == msgspec.json.decode(encoded, type=model.LatencyReport)


@pytest.fixture
def crowded(tmp_path: Path) -> Iterator[tuple[SqliteStore, list[Objective]]]:
    """Yield a store with 300 objectives whose every name and list is as long as it can be."""
    stages = dict.fromkeys(("client_send", "network", "server_process", "client_read_delay"), 1234567)
    with SqliteStore(tmp_path / "crowded.db", clock=lambda: NOW) as opened:
        objectives = [
            Objective(
                ObjectiveKey("shop", "p" * 63, "u1", f"{i:03}{'o' * 60}", "h1", Role.CLIENT),
                *("t" * 63, 25_000_000, "99.9", "28d", 100, True),
            )
            for i in range(300)
        ]
        waited_for = tuple(WaitedFor(f"{i}{'n' * 319}", 1 << 40, MAX_NS, "f" * 32) for i in range(3))
        slow = tuple(
            SlowExchange(f"{i:032x}", (NOW - 30) * 10**9 + i, 10**9, stages, "n" * 127, waited_for=waited_for)
            for i in range(5)
        )
        peers = {f"{p}{'n' * 120}": 1 for p in range(5)}
        rows = [
            SliRow(
                *o.key,
                minute=NOW - 60,
                good=10**6,
                bad=i * 10,
                slowest=slow,
                peers=peers,
                waited_ns=peers,
                cause_ns={f"{c}{'c' * 31}": 1 << 60 for c in "abcdefghijklmnop"} | {"other": 1},
            )
            for i, o in enumerate(objectives)
        ]
        opened.add(rows)
        yield opened, objectives


def test_report_stays_within_its_bounds_and_keeps_the_worst_whole(
    crowded: tuple[SqliteStore, list[Objective]],
) -> None:
    store, objectives = crowded
    found = build.build(store, objectives, NOW)
    assert len(msgspec.json.encode(found)) <= room.MAX_BYTES
    assert (300, 300 - found.omitted) == (sum(found.summary.values()), len(found.results))
    assert 0 < found.omitted
    assert (5, 5) == (len(found.results[0].slowest), len(found.results[0].top_peers))
    assert () == found.results[-1].slowest
    assert [2990, 2980] == [entry.bad for entry in found.results[:2]]


def test_shares_of_pressure_are_of_the_containers_time_and_of_the_seconds_with_bad_ones(store: SqliteStore) -> None:
    objective = next(o for o in store.objectives() if o.key.objective == "fast")
    pressed = {
        "cpu": PressureTime(30_000_000, 120_000_000),
        "throttled": PressureTime(27_600_000, 120_000_000, 8_300_000, 10_000_000),
    }
    store.add([SliRow(*objective.key, minute=NOW - 60 * i, pressure=pressed) for i in (1, 2)])
    assert [
        {"kind": "throttled", "share": "23", "time": "55.2s", "badShare": "83"},
        {"kind": "cpu", "share": "25", "time": "60s"},
    ] == result(store, "fast")["pressure"]
    assert all("pressure" not in other for other in report(store)["results"] if other["objective"] != "fast")
