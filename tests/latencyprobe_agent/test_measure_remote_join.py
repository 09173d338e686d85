"""RemoteJoinMessage: who asks, who may stop asking, what is found for others, and that nothing is joined twice."""

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import Ask, ServerHalf, SpanPolicy, UnsentBytes
from latencyprobe_agent.measure import unsent
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.remote_join import Answering, Asking
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.signals.unsent import EXPLAINS
from latencyprobe_agent.vocabulary import ids
from latencyprobe_agent.vocabulary.records import Excluded, HeldBound, Outcome, Role, UnsentReason
from tests.support.exchanges import at_level

MS = 1_000_000
SETS = {1: TargetSet(("shop/p/cart",), (10 * MS,), 0, SpanPolicy(50 * MS, 1.0, 100), "shop/p")}
S = 1_000_000_000
KEY = b"key"


def client(number: int, wait_ms: int = 20, **fields: Any) -> dict[str, Any]:
    return {"role": Role.CLIENT, "request_seq": number, "stages": (0, wait_ms * MS, 0, 0), **fields}


def server(number: int, process_ms: int = 15) -> dict[str, Any]:
    return {"role": Role.SERVER, "request_seq": number, "stages": (0, 1 * MS, process_ms * MS, 0)}


def answer(key: str, process_ms: int = 15) -> ServerHalf:
    return ServerHalf(key, (0, 1 * MS, process_ms * MS, 0), srtt_us=1000, service="cart", namespace="shop")


class Node:
    """One agent's questions, over the halves of its own node."""

    def __init__(self) -> None:
        self.join = LocalJoin()
        self.asking = Asking(join_wait_s=0.25, answer_wait_s=4.0, per_second=2000)

    def sees(self, halves: Halves, at_s: float = 0.0) -> None:
        self.asking.consider(halves, self.join.join(halves), SETS, KEY, int(at_s * S))

    def asks(self, now_s: float = 0.3) -> list[str]:
        return [question.key for question in self.asking.due(now_s)]


@pytest.fixture
def node() -> Node:
    return Node()


def hexes(halves: Halves) -> list[str]:
    return ids.to_hex(halves.trace_ids(KEY))


def rows_of(halves: Halves, numbers: Sequence[int]) -> list[str]:
    return [key for key, n in zip(hexes(halves), halves.rec["request_seq"].tolist(), strict=True) if n in numbers]


def test_slow_and_failed_clients_ask_and_nobody_else(node: Node, make_halves: Any) -> None:
    halves = make_halves(
        client(1),
        client(2, wait_ms=5),
        client(3, wait_ms=5, outcome=Outcome.RESET),
        client(4, excluded=Excluded.PIPELINED),
        client(5, target_set=2),
        server(6, process_ms=90),
    )
    node.sees(halves)
    assert sorted(node.asks()) == sorted(rows_of(halves, [1, 3]))


def test_without_objectives_slow_is_what_is_slow_as_a_span(make_halves: Any) -> None:
    asking = Asking(join_wait_s=0.25, answer_wait_s=4.0, per_second=2000)
    halves = make_halves(client(1, wait_ms=20), client(2, wait_ms=60))
    policy = {1: TargetSet(("shop/p/cart",), (), 0, SpanPolicy(50 * MS, 1.0, 100), "shop/p")}
    asking.consider(halves, LocalJoin().join(halves), policy, KEY, 0)
    assert [question.key for question in asking.due(0.3)] == rows_of(halves, [2])


def test_a_question_tells_whom_the_client_dialled_and_whether_it_is_a_span(node: Node, make_halves: Any) -> None:
    halves = make_halves(client(1, peer="10.0.0.7"), client(2))
    halves.sampled[0] = Reason.SLOW + 1
    node.sees(halves)
    told = {question.key: (question.peer[-4:], question.span) for question in node.asking.due(0.3)}
    assert told == dict(zip(hexes(halves), [(bytes([10, 0, 0, 7]), True), (bytes([10, 0, 0, 2]), False)], strict=True))


def test_what_is_joined_on_this_node_is_not_asked_for(node: Node, make_halves: Any) -> None:
    node.sees(make_halves(client(1), server(1), client(2)))
    node.sees(make_halves(server(2)), at_s=0.1)
    assert node.asks() == []


def test_a_question_waits_for_this_node_first_and_ends_by_itself(node: Node, make_halves: Any) -> None:
    halves = make_halves(client(1))
    join_key = int(halves.join_key[0])
    node.sees(halves)
    assert node.asks(0.2) == []
    assert node.asks(0.25) == hexes(halves)
    assert node.asks(3.9) == []
    assert join_key in node.asking.pending
    node.asks(4.0)
    assert join_key not in node.asking.pending
    assert node.asking.counts == {"asked": 1, "unanswered": 1, "left_out": 0}


def test_an_answer_makes_the_pair_that_both_halves_on_one_host_would(node: Node, make_halves: Any) -> None:
    both = make_halves(client(1), server(1))
    expected = LocalJoin().join(both)
    node.sees(both.take(np.array([0])))
    (key,) = node.asks()
    pairs, answers = node.asking.answered([answer(key)])
    assert pairs.stages.tolist() == expected.stages.tolist()
    assert dict(zip(PAIR_STAGES, pairs.stages[0].tolist(), strict=True))["network"] == 4 * MS
    assert pairs.network_excess.tolist() == [3.0 * MS]
    assert answers == {int(both.join_key[0]): answer(key)}
    assert len(node.asking.answered([answer(key)])[0]) == 0
    assert node.asking.counts["joined"] == 1


def test_a_pair_with_a_sampled_half_of_another_node_stands_for_its_adjusted_count(node: Node, make_halves: Any) -> None:
    node.sees(make_halves(client(1)))
    (key,) = node.asks()
    pairs, _ = node.asking.answered([msgspec.structs.replace(answer(key), flags=at_level(5))])
    assert pairs.adjusted_count.tolist() == [32]


def test_no_node_makes_a_pair_stand_for_more_than_can_be(node: Node, make_halves: Any) -> None:
    node.sees(make_halves(client(1)))
    (key,) = node.asks()
    pairs, answers = node.asking.answered([msgspec.structs.replace(answer(key), flags=at_level(31) | 5)])
    assert [1 << 20] == pairs.adjusted_count.tolist()
    assert [at_level(20) | 5] == [one.flags for one in answers.values()]


def test_an_answer_to_no_question_is_no_pair(node: Node, make_halves: Any) -> None:
    halves = make_halves(client(1))
    node.sees(halves)
    (key,) = hexes(halves)
    assert len(node.asking.answered([answer(key)])[0]) == 0  # not asked yet
    node.asks()
    assert len(node.asking.answered([answer("0" * 16 + key[16:]), answer("1" * 32)])[0]) == 0
    assert len(node.asking.answered([answer(key)])[0]) == 1


def test_a_refused_question_ends_with_its_reason(node: Node, make_halves: Any) -> None:
    halves = make_halves(client(1))
    node.sees(halves)
    node.asking.refused(dict.fromkeys(node.asks(), "no_agent"))
    assert int(halves.join_key[0]) not in node.asking.pending
    assert node.asking.counts["refused_no_agent"] == 1


def test_a_question_under_way_keeps_its_half_however_many_have_ended_since(make_halves: Any) -> None:
    policy = SpanPolicy(50 * MS, 1.0, 2000)
    sets = {1: TargetSet(("shop/p/cart",), (10 * MS,), 0, policy, "shop/p")}
    asking, join = Asking(join_wait_s=0.25, answer_wait_s=4.0, per_second=2000), LocalJoin()

    def asks(first: int, many: int, at_s: float) -> list[str]:
        halves = make_halves(*(client(first + i) for i in range(many)))
        asking.consider(halves, join.join(halves), sets, KEY, int(at_s * S))
        return [question.key for question in asking.due(at_s + 0.25)]

    (first,) = asks(0, 1, 0.0)
    for i in range(3):
        key_of_others = asks(1 + 1000 * i, 1000, 1.0 + i)
        assert len(asking.answered(map(answer, key_of_others))[0]) == 1000
    assert len(asking.answered([answer(first)])[0]) == 1
    assert asking.counts == {"asked": 3001, "joined": 3001, "left_out": 0}


def test_an_answer_of_which_two_client_halves_have_the_key_is_no_pair_and_counted_as_ambiguous(
    node: Node, make_halves: Any
) -> None:
    halves = make_halves(client(1), client(1), client(2))
    node.sees(halves)
    pairs, answers = node.asking.answered(map(answer, node.asks()))
    assert pairs.client.rec["request_seq"].tolist() == [2]
    assert list(answers) == [int(halves.join_key[2])]
    assert node.asking.counts == {"asked": 2, "joined": 1, "ambiguous": 1, "left_out": 0}
    assert node.asking.pending == frozenset()


def test_an_answer_after_the_halves_met_here_is_no_second_pair(node: Node, make_halves: Any) -> None:
    node.sees(make_halves(client(1)))
    (key,) = node.asks()
    node.sees(make_halves(server(1)), at_s=1.0)
    assert len(node.asking.answered([answer(key)])[0]) == 0


def test_the_budget_is_that_of_spans_and_what_it_leaves_out_is_counted(node: Node, make_halves: Any) -> None:
    halves = make_halves(*(client(i) for i in range(150)))
    node.sees(halves)
    asked = node.asks()
    by_join_key = [key for _, key in sorted(zip(halves.join_key.tolist(), hexes(halves), strict=True))]
    assert sorted(asked) == sorted(by_join_key[-100:])
    assert node.asking.counts["left_out"] == 50


@given(st.data(), st.sets(st.integers(0, 40), max_size=30), st.sets(st.integers(0, 40), max_size=30))
def test_every_key_asked_is_given_once_or_counted_as_not_found(
    make_halves: Any, data: st.DataObject, here: set[int], wanted: set[int]
) -> None:
    halves = make_halves(*(server(n) for n in sorted(here)))
    late = data.draw(st.integers(0, len(here)))
    join, answering = LocalJoin(), Answering(keep_s=2.5)
    join.join(halves.take(np.arange(late)))
    keys = hexes(make_halves(*(client(n) for n in sorted(wanted))))
    answering.ask([Ask(tuple(keys))], 0.0)
    found = [*answering.find(join, KEY, 0.1).keys]
    join.join(halves.take(np.arange(late, len(here))))
    found += answering.find(join, KEY, 2.0).keys
    found += answering.find(join, KEY, 2.5).keys
    assert sorted(found) == sorted(set(keys).intersection(hexes(halves)))
    assert answering.counts["not_found"] == len(wanted - here)
    assert answering.counts["given"] == len(wanted & here)


def test_a_half_becomes_a_span_if_that_was_asked_and_it_is_none_yet(make_halves: Any) -> None:
    halves = make_halves(server(1), server(2), server(3))
    halves.sampled[1] = Reason.RATIO + 1
    join, answering = LocalJoin(), Answering(keep_s=2.5)
    join.join(halves)
    one, other, third = hexes(halves)
    answering.ask([Ask((one, other), spans=True), Ask((third,))], 0.0)
    found = answering.find(join, KEY, 0.0)
    assert hexes(found.halves) == found.keys
    assert dict(zip(found.keys, found.spans.tolist(), strict=True)) == {one: True, other: False, third: False}


def test_a_client_half_is_never_given_away(make_halves: Any) -> None:
    halves = make_halves(client(1))
    join, answering = LocalJoin(), Answering(keep_s=2.5)
    join.join(halves)
    answering.ask([Ask(tuple(hexes(halves)))], 0.0)
    assert len(answering.find(join, KEY, 0.0).keys) == 0


def test_more_keys_than_there_is_room_for_are_counted(make_halves: Any) -> None:
    answering = Answering(keep_s=2.5)
    answering.ask([Ask(tuple(f"{i:032x}" for i in range(5000)))], 0.0)
    answering.find(LocalJoin(), KEY, 2.5)
    assert (answering.counts["too_many"], answering.counts["not_found"]) == (5000 - 4096, 4096)


def test_an_answer_tells_what_the_servers_kernel_held(node: Node, make_halves: Any) -> None:
    halves = make_halves(client(1, 50))
    node.sees(halves)
    (key,) = node.asks()
    held = UnsentBytes(UnsentReason.NAGLE, 500, 9_000 * MS, HeldBound.AT_MOST)
    pairs, _ = node.asking.answered([msgspec.structs.replace(answer(key), unsent=held)])
    (told,) = unsent.of_pairs(pairs)
    held_ns = int(told.joined.new_ns[0])
    assert [("server nagle at most", 500, 34 * MS)] == EXPLAINS.describe(told.joined.evidence.rec[0], held_ns)
    assert halves.join_key.tolist() == told.joined.half["join_key"].tolist()
    pairs, _ = node.asking.answered([answer(key)])
    assert [] == unsent.of_pairs(pairs)
