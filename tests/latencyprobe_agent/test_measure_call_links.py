"""Which calls a server's span shows, which become spans for it, and what is known at both ends of a link."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from latencyprobe_agent.measure import call_links
from latencyprobe_agent.measure.calls import Called, CallJoin
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.vocabulary.records import Role
from tests.support.exchanges import SECOND

MS = 10**6
THREAD = {"reader_tgid": 5, "writer_tgid": 5, "reader_tid": 7, "writer_tid": 7}
SLOW, RATIO = Reason.SLOW + 1, Reason.RATIO + 1


def served(begin_ms: int, length_ms: int) -> dict[str, Any]:
    start_ns = SECOND + begin_ms * MS
    stages = (0, 0, length_ms * MS, 0)
    return {"role": Role.SERVER, "start_ns": start_ns, "stages": stages, "request_seq": begin_ms, **THREAD}


def call(begin_ms: int, length_ms: int) -> dict[str, Any]:
    stages = (0, length_ms * MS, 0, 0)
    return {**served(begin_ms, 0), "role": Role.CLIENT, "stages": stages, "response_seq": 1, "peer_port": 6379}


def joined(make_halves: Any, *records: dict[str, Any], sampled: tuple[int, ...]) -> Called:
    join, halves = CallJoin(), make_halves(*records)
    join.keep(replace(halves, sampled=np.array(sampled, np.uint8)), SECOND)
    found = join.settle(2 * SECOND, all_of_them=True)
    assert found is not None
    return found


def spans(called: Called, at: Any, *, which: slice = slice(None)) -> Sampled:
    some = call_links.wanted(called, at)
    some = some.take(np.arange(len(some))[which])
    n = len(some)
    return Sampled(some, np.zeros((n, 2), np.uint64), np.full(n, Reason.CALL, np.uint8), np.ones(n))


def test_a_span_shows_its_eight_longest_calls_and_tells_of_all(make_halves: Any) -> None:
    calls = [call(20 * i, i + 1) for i in range(11)]
    called = joined(make_halves, served(0, 900), *calls, sampled=(SLOW, *[0] * 11))
    at = call_links.shown(called)
    links = call_links.links(called, at, spans(called, at, which=slice(0)), b"key")
    assert (links["wait_ns"] // MS).tolist() == [11, 10, 9, 8, 7, 6, 5, 4]
    assert set(links["calls"].tolist()) == {11}
    assert set(links["waited_ns"].tolist()) == {66 * MS}
    assert not links["linked"].any()


@pytest.mark.parametrize(("why", "pulled"), [(SLOW, [1, 5]), (Reason.OTHER_HALF + 1, [1, 5]), (RATIO, []), (0, [])])
def test_calls_become_spans_where_what_waited_for_them_is_one_by_itself(
    make_halves: Any, why: int, pulled: list[int]
) -> None:
    records = served(0, 100), call(1, 2), call(5, 2), call(10, 50)
    called = joined(make_halves, *records, sampled=(why, 0, 0, SLOW))
    at = call_links.shown(called)
    assert len(at) == (3 if why else 0)
    assert sorted(call_links.wanted(called, at).rec["request_seq"].tolist()) == pulled


def test_a_link_leads_to_a_call_that_is_a_span_and_knows_the_ids_of_both(make_halves: Any) -> None:
    records = served(0, 100), call(1, 2), call(5, 1), call(10, 50)
    called = joined(make_halves, *records, sampled=(SLOW, 0, 0, RATIO))
    at = call_links.shown(called)
    links = call_links.links(called, at, spans(called, at, which=slice(1)), b"key")
    halves = make_halves(*records)
    ids = halves.trace_ids(b"key")
    assert links["linked"].tolist() == [True, True, False]
    assert links["client_key"].tolist() == halves.join_key[[3, 1, 2]].tolist()
    assert (links["client_trace"] == ids[[3, 1, 2]]).all()
    assert (links["server_trace"] == ids[0]).all()
    assert set(links["server_key"].tolist()) == {halves.join_key[0]}
    assert set(links["peer_port"].tolist()) == {6379}
