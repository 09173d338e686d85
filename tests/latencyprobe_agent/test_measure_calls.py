"""What a server waited for is joined by thread and time; what may be somebody else's is counted and joined to none."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latencyprobe_agent.measure.calls import SETTLE_NS, Called, CallJoin
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.support.exchanges import at_level

MS = 10**6
SECOND = 10**9


def served(begin_ms: int, end_ms: int, thread: int = 7, **fields: Any) -> dict[str, Any]:
    """A server half whose `process` is so long."""
    who = {"reader_tgid": 5, "writer_tgid": 5, "reader_tid": thread, "writer_tid": thread}
    stages = (0, 0, (end_ms - begin_ms) * MS, 0)
    start_ns = SECOND + begin_ms * MS
    return {"role": Role.SERVER, "start_ns": start_ns, "stages": stages, "request_seq": begin_ms, **who, **fields}


def called(begin_ms: int, end_ms: int, thread: int = 7, **fields: Any) -> dict[str, Any]:
    """A client half that is so long."""
    stages = (0, (end_ms - begin_ms) * MS, 0, 0)
    return served(begin_ms, end_ms, thread, **{"role": Role.CLIENT, "stages": stages, "response_seq": 9, **fields})


def at(ms: int) -> int:
    return SECOND + ms * MS


def told(join: CallJoin, now_ns: int | None = None) -> list[tuple[int, int, int]]:
    """(place of the server half by its request_seq, that of the client half, ms that it adds)."""
    found = join.settle(at(100_000) if now_ns is None else now_ns, all_of_them=now_ns is None)
    if found is None:
        return []
    servers, clients = found.server.rec["request_seq"][found.of].tolist(), found.client.rec["request_seq"].tolist()
    return list(zip(servers, clients, (found.new_ns // MS).tolist(), strict=True))


def outcomes(join: CallJoin) -> dict[str, int]:
    return {name: count for name, count in join.outcomes.items() if count}


def joined(make_halves: Any, *records: dict[str, Any]) -> CallJoin:
    join = CallJoin()
    join.keep(make_halves(*records), at(0))
    return join


def test_what_a_thread_asks_while_it_processes_is_what_its_server_half_waited_for(make_halves: Any) -> None:
    join = joined(make_halves, served(0, 100), called(10, 90), called(120, 130), served(110, 150))
    assert told(join) == [(0, 10, 80), (110, 120, 10)]
    assert outcomes(join) == {"joined": 2}


def test_several_calls_count_once_where_they_share_time(make_halves: Any) -> None:
    calls = called(10, 50, peer_port=1), called(40, 60, peer_port=2), called(70, 80)
    assert told(joined(make_halves, *calls, served(0, 100))) == [(0, 10, 40), (0, 40, 10), (0, 70, 10)]


@pytest.mark.parametrize(
    ("call", "outcome"),
    [
        (called(10, 90, thread=8), "no_exchange"),
        (called(10, 101), "no_exchange"),
        (called(10, 90, writer_tid=8), "several_threads"),
        (called(10, 90, reader_tid=0, writer_tid=0), "several_threads"),
    ],
    ids=["another thread", "longer than it", "written by one, read by another", "nobody knows who"],
)
def test_another_thread_s_or_time_s_is_joined_to_none(make_halves: Any, call: dict[str, Any], outcome: str) -> None:
    join = joined(make_halves, served(0, 100), call)
    assert told(join) == []
    assert outcomes(join) == {outcome: 1}


def test_a_call_that_may_be_of_two_requests_is_ambiguous_and_others_of_the_thread_are_not(make_halves: Any) -> None:
    both = served(0, 100, local_port=1), served(20, 120, local_port=1)
    join = joined(make_halves, *both, called(30, 90), called(5, 15), called(105, 110))
    assert told(join) == [(0, 5, 10), (20, 105, 5)]
    assert outcomes(join) == {"joined": 2, "ambiguous": 1}


@pytest.mark.parametrize(("excluded", "outcome"), [(Excluded.PIPELINED, "ambiguous"), (Excluded.SETUP, "no_exchange")])
def test_turns_that_are_no_rpc_wait_for_nothing(make_halves: Any, excluded: Excluded, outcome: str) -> None:
    join = joined(make_halves, served(0, 100, excluded=excluded), called(10, 90))
    assert told(join) == []
    assert outcomes(join) == {outcome: 1}


def test_turns_to_others_that_are_no_rpc_are_none_of_its_calls(make_halves: Any) -> None:
    join = joined(make_halves, served(0, 100), called(10, 90, excluded=Excluded.SETUP))
    assert told(join) == []
    assert outcomes(join) == {}


@pytest.mark.parametrize("order", [(0, 1), (1, 0)], ids=["the server half comes first", "the client half does"])
def test_halves_come_in_any_order_and_are_told_once_all_must_be_here(make_halves: Any, order: tuple[int, int]) -> None:
    join, both = CallJoin(), (served(0, 100), called(10, 90))
    for i in order:
        join.keep(make_halves(both[i]), at(100))
    assert told(join, at(200)) == []
    assert told(join, at(100) + SETTLE_NS) == [(0, 10, 80)]
    assert told(join) == []


def test_a_server_half_that_is_open_for_long_finds_what_it_called_at_its_beginning(make_halves: Any) -> None:
    join = joined(make_halves, called(10, 90))
    assert told(join, at(20_000)) == []
    join.keep(make_halves(served(0, 20_000)), at(20_500))
    assert told(join, at(30_000)) == [(0, 10, 80)]


def test_a_call_that_nobody_served_for_a_minute_is_given_up(make_halves: Any) -> None:
    join = joined(make_halves, called(10, 90), served(0, 100, thread=8))
    assert told(join, at(61_000)) == []
    assert outcomes(join) == {"no_exchange": 1}
    assert len(join) == 0


def test_a_call_that_comes_after_its_server_half_was_told_is_in_none(make_halves: Any) -> None:
    join = joined(make_halves, served(0, 100), called(10, 20))
    assert told(join, at(4000)) == [(0, 10, 10)]
    join.keep(make_halves(called(30, 90)), at(5000))
    assert told(join) == []
    assert outcomes(join) == {"joined": 1, "no_exchange": 1}


def test_a_thread_of_which_a_longer_request_comes_too_late_is_believed_no_more_for_a_while(make_halves: Any) -> None:
    join = joined(make_halves, served(0, 100), called(10, 90))
    assert told(join, at(4000)) == [(0, 10, 80)]  # the other request that the thread served is still open
    join.keep(make_halves(served(5, 6000), served(6100, 6200), called(6110, 6190)), at(6300))
    assert told(join, at(20_000)) == []
    join.keep(make_halves(served(700_000, 700_100), called(700_010, 700_020)), at(700_200))
    assert told(join, at(710_000)) == [(700_000, 700_010, 10)]
    assert outcomes(join) == {"joined": 2, "ambiguous": 1}


def test_where_records_are_left_out_a_thread_that_serves_several_at_a_time_is_not_believed(make_halves: Any) -> None:
    some = served(0, 100, flags=at_level(2)), served(50, 150), served(200, 300), called(210, 290)
    assert told(joined(make_halves, *some)) == []
    assert told(joined(make_halves, *(some[i] for i in (0, 2, 3)))) == [(200, 210, 80)]


def test_a_call_of_a_request_whose_record_was_left_out_is_counted_so(make_halves: Any) -> None:
    join = joined(make_halves, served(0, 100, flags=at_level(2)), called(210, 290))
    assert told(join) == []
    assert outcomes(join) == {"sampled_out": 1}


def test_spans_of_processes_that_serve_and_call_are_open_until_it_is_told(make_halves: Any) -> None:
    stranger = called(10, 90, reader_tgid=6, request_seq=11)
    join = joined(make_halves, served(0, 5000), called(10, 90), stranger)
    assert join.open(at(5000)).tolist() == []
    spans = make_halves(served(0, 5000), called(10, 90), stranger)
    n = len(spans)
    join.note_sampled(Sampled(spans, np.zeros((n, 2), np.uint64), np.full(n, Reason.OTHER_HALF, np.uint8), np.ones(n)))
    server, client, other = spans.join_key.tolist()
    assert set(join.open(at(100)).tolist()) == {server, client, other}, "nobody knows yet what the other one will do"
    assert told(join, at(5100)) == []
    assert set(join.open(at(5100)).tolist()) == {server, client}
    found = join.settle(at(9000))
    assert found is not None
    assert [*found.server.sampled.tolist(), *found.client.sampled.tolist()] == 2 * [Reason.OTHER_HALF + 1]
    assert join.open(at(9000)).tolist() == []


def test_spans_of_a_process_that_was_not_seen_before_are_open_until_it_is_known_what_it_does(make_halves: Any) -> None:
    join, spans = CallJoin(), make_halves(served(0, 100), served(9000, 9100))
    for half, now_ms in ((0, 100), (1, 9100)):
        one = replace(spans.take(np.array([half])), sampled=np.array([Reason.SLOW + 1], np.uint8))
        join.keep(one, at(now_ms))
        assert join.open(at(now_ms)).tolist() == ([spans.join_key[0]] if now_ms == 100 else [])


def test_where_more_wait_than_can_the_oldest_go_and_are_counted(make_halves: Any) -> None:
    join = CallJoin(limit=8192)
    join.keep(make_halves(served(0, 1)), at(0))
    base = make_halves(called(10, 20))
    for _ in range(5):
        join.keep(base.take(np.zeros(4096, np.intp)), at(0))
    join.keep(make_halves(served(30, 50), called(31, 49)), at(50))
    assert len(join) <= 8192
    assert told(join) == [(30, 31, 18)]
    assert join.outcomes["no_room"] > 0
    assert sum(join.outcomes.values()) == 5 * 4096 + 1


def test_of_processes_that_only_call_nothing_waits_or_counts(make_halves: Any) -> None:
    join, base = CallJoin(), make_halves(called(10, 20))
    for _ in range(10):
        join.keep(base.take(np.zeros(4096, np.intp)), at(0))
    assert (len(join), told(join), outcomes(join)) == (0, [], {})


half = st.tuples(st.booleans(), st.integers(0, 2), st.integers(0, 12), st.integers(1, 12))


@given(st.lists(half, max_size=14), st.randoms())
@settings(deadline=None)
def test_joined_is_what_lies_in_exactly_one_of_its_thread(
    make_halves: Any, rows: list[tuple[bool, int, int, int]], random: Any
) -> None:
    """Against a look at every two halves, whatever batches they come in."""
    records = []
    for i, (server, thread, begin, length) in enumerate(rows):
        make = served if server else called
        records.append(make(begin, begin + length, 1 + thread, request_offset=i))
    random.shuffle(records)
    join = CallJoin()
    cut = len(records) // 2
    for part in (records[:cut], records[cut:]):
        join.keep(make_halves(*part), at(0))
    found: Called | None = join.settle(at(10_000), all_of_them=True)

    expected = set()
    outcome = {"joined": 0, "ambiguous": 0, "no_exchange": 0}
    for i, (server, thread, begin, length) in enumerate(rows):
        if server or not any(other for other, *_ in rows):
            continue
        containing = [
            j
            for j, (other, of, start, size) in enumerate(rows)
            if other and of == thread and start <= begin and begin + length <= start + size
        ]
        outcome["no_exchange" if not containing else "joined" if len(containing) == 1 else "ambiguous"] += 1
        if len(containing) == 1:
            expected.add((containing[0], i))
    pairs = set() if found is None else set(_pairs(found))
    assert pairs == expected
    assert {name: join.outcomes[name] for name in outcome} == outcome


def _pairs(found: Called) -> list[tuple[int, int]]:
    def place(some: Halves) -> Any:
        return some.rec["request_offset"]

    return list(zip(place(found.server)[found.of].tolist(), place(found.client).tolist(), strict=True))
