"""bounds.py: what an honest agent sends passes, and what none sends is named."""

from typing import Any

import msgspec
import pytest

from latencyprobe import exclusions
from latencyprobe.bounds import MAX_EVENTS, MAX_MEASURED_MS, MAX_NS, MAX_SUM_NS, TORN, Impossible, bounded
from latencyprobe.causes import CAUSES
from latencyprobe.plan import Role
from latencyprobe.sli import (
    Coverage,
    EvidenceCount,
    EvidenceSummary,
    PeerCounts,
    PressureTime,
    SliRow,
    SlowExchange,
    WaitedFor,
)
from tests.latencyprobe.bounds_rows import NOW, row


def slow(**fields: Any) -> tuple[SlowExchange, ...]:
    whole = SlowExchange("ab" * 16, NOW * 10**9, 40_000_000, {"process": 40_000_000}, "shop/web")
    return (msgspec.structs.replace(whole, **fields),)


AMBIGUOUS = sum(i for i, exclusion in enumerate(exclusions.ALL) if exclusion.ambiguous)
EXCLUDED = sum(i for i, exclusion in enumerate(exclusions.ALL) if not exclusion.ambiguous)
HONEST = {
    "of a busy minute": row(good=60_000_000, bad=2, histogram={-672: 1, -200: 59_999_999, 319: 2}),
    "whose counters were read while they grew": row(good=900, bad=-1, histogram={-200: 899}),
    "the other way round": row(good=-3, bad=3, histogram={-200: 1}),
    "after an hour of a stopped agent": row(good=3_600_000_000, histogram={-200: 3_600_000_000}),
    "of time alone": row(coverage=Coverage(measured_ms=60_000)),
    "of pairs alone": row(coverage=Coverage(joined=7)),
    "that pairs correct": row(
        Role.CLIENT,
        stage_ns={"wait": -(10**15), "network": 10**14, "server_process": 9 * 10**14},
        dominant={"wait": -5, "server_process": 5},
    ),
    "of 100,000 connections that end after a day": row(
        bad=100_000, histogram={319: 100_000}, stage_ns={"process": 8_640_000_000_000_000_000}
    ),
    "with all that there may be": row(
        *(Role.CLIENT,),
        slowest=tuple(slow(trace_id=f"{i:032x}")[0] for i in range(5)),
        peers={f"2001:db8::{i:x}": 9 for i in range(20)},
        evidence={"retransmits": EvidenceCount(3, 1, 10**9), "handshakes": EvidenceCount(1), "tcprt": EvidenceCount(2)},
        waited_ns={f"[2001:db8::{i:x}]:6379": MAX_SUM_NS for i in range(20)},
        coverage=Coverage(seen=sum(range(len(exclusions.ALL))), ambiguous=AMBIGUOUS, excluded=EXCLUDED),
        exclusions={exclusion.name: i for i, exclusion in enumerate(exclusions.ALL)},
    ),
    "whose containers were held up": row(
        good=9,
        histogram={-200: 9},
        pressure={
            "throttled": PressureTime(9_000_000, 60_000_000, 400_000, 1_000_000),
            **dict.fromkeys(("cpu", "memory"), PressureTime(0, 60_000_000)),
            "io": PressureTime(*(1_024 * MAX_MEASURED_MS * 1_000,) * 4),
        },
    ),
    "whose servers process": row(
        bad=1,
        histogram={-100: 1},
        stage_ns={"process": MAX_SUM_NS},
        cause_ns={"on CPU": MAX_SUM_NS, "fsync": 1, "other": 9},
    ),
    "without any RPC": row(coverage=Coverage(seen=40_000, ambiguous=40_000), exclusions={"multiplexed": 40_000}),
    "with evidence alone": row(
        slowest=slow(evidence=(EvidenceSummary("tcprt", "R reordered", 1, 0),) * 8, joined=True)
    ),
    "by peer": row(by_peer={"shop/web": PeerCounts(9, 1, {-200: 8, -100: 1}), "": PeerCounts(3, 0, {5: 3})}),
    "with calls of its own": row(
        slowest=slow(waited_for=tuple(WaitedFor(f"shop/redis-{i}:6379", 9, 10**9, "ab" * 16) for i in range(3)))
    ),
}


@pytest.mark.parametrize("honest", HONEST.values(), ids=HONEST)
def test_row_of_an_honest_agent_passes_as_it_is(honest: SliRow) -> None:
    assert honest == bounded(honest)


IMPOSSIBLE: dict[str, list[dict[str, Any]]] = {
    "minute": [{"minute": NOW + 1}, {"minute": -60}],
    "good": [{"good": 1 << 60}, {"good": -TORN - 1}, {"good": 10**29}],
    "bad": [{"bad": 1 << 60}, {"bad": -TORN - 1}],
    "histogram": [
        {"good": 10**9, "histogram": {40_000: 10**9}},
        {"good": 10**9, "histogram": {320: 10**9}},
        {"good": 10**9, "histogram": {-673: 10**9}},
        {"histogram": {3: -1, 4: 1}},
        {"histogram": {3: 1 << 60}},
        {"good": 10**9},
        {"histogram": {3: 10**9}},
    ],
    "stage_ns": [
        {"stage_ns": {f"s{i}": 1 for i in range(65)}},
        {"stage_ns": {"process": 1 << 63}},
        {"stage_ns": {"process": -1}},
        {"stage_ns": {"wait": -1}},
    ],
    "dominant": [{"dominant": {"process": 1 << 60}}, {"dominant": {"process": -1}}],
    "coverage": [
        {"coverage": Coverage(seen=-1)},
        {"coverage": Coverage(lost=1 << 60)},
        {"coverage": Coverage(measured_ms=MAX_MEASURED_MS + 1)},
        {"coverage": Coverage(expected_ms=60_000)},
        {"coverage": Coverage(seen=8, ambiguous=9), "exclusions": {"push": 9}},
    ],
    "exclusions": [
        {"coverage": Coverage(seen=9, ambiguous=9)},
        {"exclusions": {"push": 9}},
        {"coverage": Coverage(seen=9, ambiguous=9), "exclusions": {"push": 8}},
        {"coverage": Coverage(seen=9, ambiguous=9), "exclusions": {"oneway": 9}},
        {"coverage": Coverage(seen=9, excluded=9), "exclusions": {"push": 9}},
        {"coverage": Coverage(seen=9, excluded=9), "exclusions": {"oneway": 10, "peer": -1}},
        {"coverage": Coverage(seen=9, excluded=9), "exclusions": {"oneway": 10, "tomorrow": -1}},
        {"coverage": Coverage(seen=9, excluded=9), "exclusions": {"push": 1, "tomorrow": 8}},
        {"coverage": Coverage(seen=9, excluded=9), "exclusions": {"oneway": 1, "tomorrow": 9}},
        {"coverage": Coverage(seen=65, excluded=65), "exclusions": {f"r{i}": 1 for i in range(65)}},
        {"exclusions": {"push": 1 << 60, "tomorrow": -(1 << 60)}},
    ],
    "slowest": [
        {"slowest": slow() * 6},
        {"slowest": slow(trace_id="AB" * 16)},
        {"slowest": slow(trace_id="ab" * 16 + "\n")},
        {"slowest": slow(start_unix_ns=1 << 63)},
        {"slowest": slow(start_unix_ns=-1)},
        {"slowest": slow(duration_ns=-1)},
        {"slowest": slow(duration_ns=1 << 62)},
        {"slowest": slow(stages={"process": -1})},
        {"slowest": slow(stages={f"s{i}": 1 for i in range(65)})},
        {"slowest": slow(evidence=(EvidenceSummary("tcprt", "R", 1, 1),) * 9)},
        {"slowest": slow(evidence=(EvidenceSummary("tcprt", "R", -1, 1),))},
        {"slowest": slow(waited_for=(WaitedFor("redis:6379", 1, 1, "ab" * 16),) * 4)},
        {"slowest": slow(waited_for=(WaitedFor("redis:6379", -1, 1, "ab" * 16),))},
        {"slowest": slow(waited_for=(WaitedFor("redis:6379", 1, 1, "AB" * 16),))},
    ],
    "pressure": [
        {"pressure": {"io": PressureTime(0, -1)}},
        {"pressure": {"io": PressureTime(2, 1)}},
        {"pressure": {"io": PressureTime(1, 9, 2, 5)}},
        {"pressure": {"io": PressureTime(5, 9, 2, 1)}},
        {"pressure": {"io": PressureTime(1, 9, -1, 1)}},
        {"pressure": {"io": PressureTime(1, 9, 0, 10)}},
        {"pressure": {"io": PressureTime(1, 1 << 60)}},
        {"pressure": {f"k{i}": PressureTime() for i in range(65)}},
    ],
    "waited_ns": [{"waited_ns": {f"p{i}": 1 for i in range(21)}}],
    "cause_ns": [
        {"cause_ns": {"fsync": -1}},
        {"cause_ns": {"fsync": 1 << 63}},
        {"cause_ns": {f"call{i}": 1 for i in range(65)}},
    ],
    "by_peer": [
        {"by_peer": {f"p{i}": PeerCounts(1) for i in range(21)}},
        {"by_peer": {"p": PeerCounts(-1)}},
        {"by_peer": {"p": PeerCounts(1 << 60)}},
        {"by_peer": {"p": PeerCounts(1, 2, {3: 1})}},
        {"by_peer": {"p": PeerCounts(1, -1, {3: 1})}},
        {"by_peer": {"p": PeerCounts(1)}},
        {"by_peer": {"p": PeerCounts(1, 0, {3: 1, 4: 1})}},
        {"by_peer": {"p": PeerCounts(1, 0, {320: 1})}},
        {"by_peer": {"p": PeerCounts(1, 0, {3: -1})}},
        {"by_peer": {"p": PeerCounts(1, 0, {3: 1 << 60})}},
    ],
    "peers": [{"peers": {f"p{i}": 1 for i in range(21)}}, {"peers": {"p": -1}}, {"peers": {"p": 1 << 60}}],
    "evidence": [
        {"evidence": {"tcprt": EvidenceCount(lost=-1)}},
        {"evidence": {f"s{i}": EvidenceCount(lost=MAX_EVENTS) for i in range(2)}},
        {"evidence": {f"s{i}": EvidenceCount(1) for i in range(65)}},
    ],
}


@pytest.mark.parametrize(("field", "fields"), [(field, one) for field, some in IMPOSSIBLE.items() for one in some])
def test_impossible_row_is_refused_and_the_field_is_named(field: str, fields: dict[str, Any]) -> None:
    with pytest.raises(Impossible, match=f"^{field}: ") as refused:
        bounded(msgspec.structs.replace(row(), **fields))
    assert field == refused.value.field


def test_only_a_callers_own_stages_may_be_negative() -> None:
    with pytest.raises(Impossible, match=r"^stage_ns: "):
        bounded(row(Role.CLIENT, stage_ns={"network": -1, "wait": -1}))


def test_names_that_this_version_does_not_know_count_as_other() -> None:
    found = bounded(
        row(
            stage_ns={"process": 5, "tomorrow": 2, "later": 3},
            dominant={"tomorrow": 1},
            evidence={"tomorrow": EvidenceCount(2, 1, 9), "later": EvidenceCount(1, 0, 1), "tcprt": EvidenceCount(1)},
            coverage=Coverage(seen=9, ambiguous=5, excluded=4),
            exclusions={"push": 4, "tomorrow": 2, "later": 1, "own": 2},
            slowest=slow(stages={"tomorrow": 7}, evidence=(EvidenceSummary("tomorrow", "slow", 1, 9),)),
        )
    )
    assert ({"process": 5, "other": 5}, {"other": 1}) == (found.stage_ns, found.dominant)
    assert {"other": EvidenceCount(3, 1, 10), "tcprt": EvidenceCount(1)} == found.evidence
    assert {"push": 4, "own": 2, "other": 3} == found.exclusions
    assert ({"other": 7}, (EvidenceSummary("other", "slow", 1, 9),)) == (
        found.slowest[0].stages,
        found.slowest[0].evidence,
    )


def test_what_comes_with_the_exchanges_and_has_no_switch_keeps_its_name() -> None:
    held = (EvidenceSummary("unsent", "server nagle", 500, 9),)
    found = bounded(row(evidence={"unsent": EvidenceCount(1, 1, 9)}, slowest=slow(evidence=held)))
    assert ({"unsent": EvidenceCount(1, 1, 9)}, held) == (found.evidence, found.slowest[0].evidence)


def test_what_others_told_an_agent_is_cut_to_size_and_its_row_is_kept() -> None:
    """Anybody may own a pod with a strange owner's name, and answer what a server's half lost."""
    name = f"shop/\x1b]0;{'w' * 1000}"
    waits = (EvidenceSummary("retransmits", "server", 0, 1 << 70), EvidenceSummary("tcprt", "R", 1, -5))
    found = bounded(
        row(
            peers={name: 3, name + "x": 4},
            slowest=slow(peer=name, error="e" * 99, evidence=waits),
            evidence={"retransmits": EvidenceCount(1 << 41, 1 << 31, 1 << 70), "tcprt": EvidenceCount(-1, -1, -1)},
        )
    )
    (peer,) = found.peers
    assert ("shop/\ufffd]0;www", 320, {peer: 7}, peer) == (peer[:12], len(peer), found.peers, found.slowest[0].peer)
    assert "e" * 63 == found.slowest[0].error
    assert [MAX_NS, 0] == [hit.wait_ns for hit in found.slowest[0].evidence]
    most = EvidenceCount(MAX_EVENTS, 1 << 31, MAX_SUM_NS)
    assert {"retransmits": most, "tcprt": EvidenceCount()} == found.evidence
    of_two = bounded(row(evidence={f"s{i}": EvidenceCount(MAX_EVENTS) for i in range(2)}))
    assert {"other": EvidenceCount(MAX_EVENTS)} == of_two.evidence


def test_a_peer_without_events_is_none() -> None:
    """It would have no quantiles, and who shows it would look for some."""
    told = {"shop/web": PeerCounts(1, 0, {3: 1}), "shop/idle": PeerCounts(), "": PeerCounts(0, 0, {3: 0})}
    assert {"shop/web": PeerCounts(1, 0, {3: 1})} == bounded(row(by_peer=told)).by_peer


def test_kinds_of_pressure_of_another_version_say_nothing_here() -> None:
    times = {"irq": PressureTime(1, 9), "io": PressureTime(2, 9)}
    assert {"io": PressureTime(2, 9)} == bounded(row(pressure=times)).pressure


def test_causes_are_those_of_this_version_and_calls_the_rest_of_the_time_is_unknown_here() -> None:
    sent = {"fdatasync": 5, "on CPU": 4, "stolen by a neighbour": 3, "unknown": 2, "\x1b[31m": 1}
    assert {"fdatasync": 5, "on CPU": 4} == bounded(row(cause_ns=sent)).cause_ns
    many = {f"call{i}": 1 for i in range(64)}
    assert (CAUSES + 1, 64) == (
        len(bounded(row(cause_ns=many)).cause_ns),
        sum(bounded(row(cause_ns=many)).cause_ns.values()),
    )
