"""SLI rows say what servers waited for, by peer, and of the slowest exchanges whom they called."""

from functools import reduce
from typing import Any

import pytest

from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import WaitedFor, merged
from latencyprobe_agent.measure import keys
from latencyprobe_agent.measure.calls import Called, CallJoin
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.signals.exchanges import place
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.records import Role
from tests.latencyprobe_agent.slicer import MS, NOW, PAIR_KEY, make_slicer, objective, only, taken
from tests.support.exchanges import SECOND, at_level

THREAD = {"reader_tgid": 5, "writer_tgid": 5, "reader_tid": 7, "writer_tid": 7}
SLOW = {"role": Role.SERVER, "stages": (0, 0, 20 * MS, 0), **THREAD}


def call(begin_ms: int, length_ms: int, **fields: Any) -> dict[str, Any]:
    start_ns = SECOND + begin_ms * MS
    there = {"peer": "10.0.0.9", "peer_port": 6379, "response_seq": begin_ms}
    return {"role": Role.CLIENT, "start_ns": start_ns, "stages": (0, length_ms * MS, 0, 0), **there, **THREAD, **fields}


def joined(halves: Halves) -> Called:
    join = CallJoin()
    join.keep(halves, SECOND)
    found = join.settle(2 * SECOND, all_of_them=True)
    assert found is not None
    return found


def test_what_slow_exchanges_waited_for_is_added_up_by_peer(make_halves: Any) -> None:
    slicer = make_slicer(objective("fast"), objective("slow", threshold_index=1))
    redis, users = (call(1, 4), call(3, 6), call(12, 1)), call(14, 5, peer="fd00::9", peer_port=8080)
    quick = {**SLOW, "start_ns": 2 * SECOND, "stages": (0, 0, 2 * MS, 0), "request_seq": 5}
    other = call(1000, 1)
    slicer.add_calls(joined(make_halves(SLOW, *redis, users, quick, other)), NOW)
    (row,) = slicer.take(lambda packed: "fd00::9" if packed[0] else "10.0.0.9")
    assert row.objective == "fast"
    assert row.waited_ns == {"10.0.0.9:6379": 9 * MS, "[fd00::9]:8080": 5 * MS}


def test_a_sampled_call_counts_for_those_that_it_stands_for(make_halves: Any) -> None:
    slicer = make_slicer(objective())
    slicer.add_calls(joined(make_halves(SLOW, call(1, 2, flags=at_level(2)))), NOW)
    assert only(slicer).waited_ns == {"10.0.0.9:6379": 8 * MS}


@pytest.mark.parametrize("told_before", [False, True])
def test_the_slowest_name_whom_they_waited_for_and_where_that_is_found(make_halves: Any, told_before: bool) -> None:
    slicer = make_slicer(objective())
    halves = make_halves(SLOW, call(1, 4), call(6, 5), call(12, 1, peer_port=80))
    slicer.add_records(halves, LocalJoin().join(halves), NOW)
    early = taken(slicer) if told_before else ()
    slicer.add_calls(joined(halves), NOW)
    row = reduce(merged, (*early, *taken(slicer)))
    (slow,) = row.slowest
    longest, third = ids.to_hex(keys.trace_ids(place(halves.rec[[2, 3]]), PAIR_KEY))
    assert slow.waited_for == (
        WaitedFor("10.0.0.9:6379", 2, 9 * MS, longest),
        WaitedFor("10.0.0.9:80", 1, 1 * MS, third),
    )
    assert slow.stages == {"process": 20 * MS}


def test_a_caller_s_objective_says_nothing_of_what_servers_waited_for(make_halves: Any) -> None:
    slicer = make_slicer(objective(perspective=Perspective.CLIENT))
    slicer.add_calls(joined(make_halves(SLOW, call(1, 4))), NOW)
    assert taken(slicer) == ()
