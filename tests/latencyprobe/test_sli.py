"""sli.py: counts that may be added up."""

from functools import reduce

import msgspec
from msgspec.structs import replace

from latencyprobe.causes import CAUSES
from latencyprobe.plan import Role
from latencyprobe.sli import (
    OTHERS,
    PEERS,
    SLOWEST,
    Coverage,
    EvidenceSummary,
    PeerCounts,
    PressureTime,
    SliBatch,
    SliRow,
    SlowExchange,
    WaitedFor,
    merged,
)

KEY = ("shop", "checkout", "u1", "fast", "h1", Role.SERVER)


def test_merged_row_is_the_sum_of_both() -> None:
    one = SliRow(
        *(*KEY, 60, 1, 2),
        histogram={3: 1, 4: 2},
        stage_ns={"process": 5},
        dominant={"process": 2},
        exclusions={"push": 3, "setup": 1},
        pressure={"io": PressureTime(1, 10, 1, 2), "cpu": PressureTime(3, 10)},
        cause_ns={"fsync": 3, "other": 1},
    )
    other = SliRow(
        *(*KEY, 120, 10, 1),
        histogram={4: 1},
        stage_ns={"send": 7},
        dominant={"process": 1},
        exclusions={"push": 5},
        pressure={"io": PressureTime(2, 20, 0, 3)},
        cause_ns={"futex": 9, "fsync": 2},
    )
    assert SliRow(
        *KEY,
        minute=60,
        good=11,
        bad=3,
        histogram={3: 1, 4: 3},
        stage_ns={"process": 5, "send": 7},
        dominant={"process": 3},
        exclusions={"push": 8, "setup": 1},
        pressure={"io": PressureTime(3, 30, 1, 5), "cpu": PressureTime(3, 10)},
        cause_ns={"futex": 9, "fsync": 5, "other": 1},
    ) == merged(one, other)


def test_coverage_is_added_field_by_field() -> None:
    one = SliRow(*KEY, minute=0, coverage=Coverage(1, 2, 3, 4, 5, 6, 7, 8, 9))
    assert Coverage(2, 4, 6, 8, 10, 12, 14, 16, 18) == merged(one, one).coverage


def test_of_two_accounts_of_an_exchange_the_one_with_both_halves_is_kept() -> None:
    early = SlowExchange("a" * 32, 0, 9, {"wait": 9}, "")
    late = SlowExchange("a" * 32, 0, 9, {"network": 2, "server_process": 7}, "", joined=True)
    one, other = (SliRow(*KEY, minute=0, slowest=(slow,)) for slow in (early, late))
    assert (late,) == merged(one, other).slowest == merged(other, one).slowest


def test_evidence_of_all_accounts_of_an_exchange_is_added_up() -> None:
    account = SlowExchange("a" * 32, 0, 9, {"wait": 9}, "")
    rto, tlp, opened = (
        EvidenceSummary("retransmits", "rto", 1, 200),
        EvidenceSummary("retransmits", "tlp", 1, 20),
        EvidenceSummary("handshakes", "ok", 1, 5),
    )
    accounts = [
        replace(account, evidence=(opened, rto)),
        replace(account, stages={"network": 9}, joined=True),
        replace(account, evidence=(tlp,)),
        replace(account, evidence=(rto,)),
    ]
    rows = [SliRow(*KEY, minute=0, slowest=(one,)) for one in accounts]

    expected = replace(accounts[1], evidence=(EvidenceSummary("retransmits", "rto", 2, 400), tlp, opened))
    assert [(expected,)] * 2 == [reduce(merged, some).slowest for some in (rows, rows[::-1])]


def test_what_was_waited_for_is_told_once_and_stays() -> None:
    account = SlowExchange("a" * 32, 0, 9, {"process": 9}, "", evidence=(EvidenceSummary("retransmits", "rto", 1, 2),))
    told = replace(account, evidence=(), waited_for=(WaitedFor("redis:6379", 1, 8, "b" * 32),))
    rows = [
        SliRow(*KEY, minute=0, slowest=(account,), waited_ns={"redis:6379": 3}),
        SliRow(*KEY, minute=0, slowest=(told,), waited_ns={"redis:6379": 5, "users:80": 1}),
    ]
    for one, other in (rows, rows[::-1]):
        result = merged(one, other)
        assert (replace(told, evidence=account.evidence),) == result.slowest
        assert {"redis:6379": 8, "users:80": 1} == result.waited_ns


def test_a_row_from_before_servers_waited_for_others_is_read() -> None:
    row = SliRow(*KEY, minute=0, slowest=(SlowExchange("a" * 32, 0, 9, {}, ""),))
    encoded = msgspec.json.encode(row)
    assert b"waited" not in encoded
    assert row == msgspec.json.decode(encoded, type=SliRow)


def test_only_the_slowest_and_the_most_frequent_are_kept() -> None:
    slow = [SlowExchange(f"{i:032x}", 0, i, {}, "") for i in range(2 * SLOWEST)]
    one = SliRow(*KEY, minute=0, slowest=tuple(slow[::2]), peers={f"p{i:02}": 1 for i in range(PEERS)})
    other = SliRow(*KEY, minute=0, slowest=tuple(slow[1::2]), peers={"p99": 5})
    result = merged(one, other)
    assert [9, 8, 7, 6, 5] == [exchange.duration_ns for exchange in result.slowest]
    assert ("p99", PEERS) == (next(iter(result.peers)), len(result.peers))


def counts(events: int, bad: int = 0, bucket: int = 3) -> PeerCounts:
    return PeerCounts(events, bad, {bucket: events})


def test_figures_by_peer_add_up_and_the_worst_are_kept_the_others_as_one() -> None:
    many = {f"p{i:02}": counts(10 + i) for i in range(PEERS)}
    rows = [
        SliRow(*KEY, minute=0, by_peer=many | {"worst": counts(1, 1), OTHERS: counts(5, bucket=9)}),
        SliRow(*KEY, minute=0),
        SliRow(*KEY, minute=0, by_peer={"p19": counts(100), "few": counts(2)}),
    ]
    found = merged(*rows).by_peer
    assert ["worst", "p19", "p18"] == list(found)[:3], "bad ones first, then most events"
    assert (PEERS + 1, OTHERS) == (len(found), list(found)[-1])
    assert counts(129) == found["p19"]
    assert PeerCounts(5 + 10 + 2, 0, {3: 12, 9: 5}) == found[OTHERS]
    every = [one for row in rows for one in row.by_peer.values()]
    assert sum(one.events for one in every) == sum(one.events for one in found.values()), "none is lost"


def test_a_row_without_figures_by_peer_says_nothing_of_them_on_the_wire() -> None:
    assert b"by_peer" not in msgspec.json.encode(SliRow(*KEY, minute=0, good=1))


def test_causes_beyond_their_number_are_added_up_and_none_of_the_time_is_lost() -> None:
    rows = [SliRow(*KEY, minute=0, cause_ns={f"call{i}": 10 + i}) for i in range(40)]
    found = reduce(merged, rows).cause_ns
    assert CAUSES + 1 == len(found)
    assert sum(range(10, 50)) == sum(found.values())
    assert "other" == list(found)[-1]


def test_a_batch_of_a_newer_agent_is_read_without_what_is_not_known_and_one_of_an_older_is_whole() -> None:
    row = SliRow(*KEY, minute=60, good=1, pressure={"io": PressureTime(1, 10)})
    document = msgspec.json.decode(msgspec.json.encode(SliBatch("i", 1, (row,))))
    document["rows"][0]["tomorrow"] = {"a": 1}
    document["rows"][0]["pressure"]["io"].append(7)
    assert (row,) == msgspec.json.decode(msgspec.json.encode(document), type=SliBatch).rows
    del document["rows"][0]["pressure"]
    assert "cause_ns" not in document["rows"][0]
    assert {} == msgspec.json.decode(msgspec.json.encode(document), type=SliBatch).rows[0].pressure
