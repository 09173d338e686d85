"""Streaming calls of HTTP/2 become spans and pairs, by the time to their first answer, and are never SLI events."""

import numpy as np
import pytest

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure import streaming
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.remote_join import Asking
from latencyprobe_agent.measure.rules import TargetSet
from latencyprobe_agent.measure.sampling import Budget, Reason, decide
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeClass, Excluded, Outcome, Role
from tests.support.exchanges import exchanges

SLOW_NS = 1_000_000
HOUR_NS = 3_600 * 10**9
QUIET = SpanPolicy(SLOW_NS, 0.0, 1000)
SETS = {1: TargetSet(("shop/p/cart",), (SLOW_NS,), 0, QUIET, "shop/p")}
CLASSED = {"excluded": Excluded.STREAMING, "conn_class": ExchangeClass.STREAMING}


def call(role=Role.CLIENT, first_answer_ns=10, lasts_ns=HOUR_NS, stream_id=7, **fields) -> np.ndarray:
    """A streaming call, open for an hour. Its place is its stream's number."""
    rest_ns = lasts_ns - first_answer_ns
    stages = (0, first_answer_ns, rest_ns, 0) if role is Role.CLIENT else (0, 0, first_answer_ns, rest_ns)
    return exchanges(1, role, stages=stages, stream_id=stream_id, **{**CLASSED, **fields})


def calls(*rows: np.ndarray) -> Halves:
    return halves(np.concatenate([np.zeros(0, EXCHANGE), *rows]))


def reasons(some: Halves, sets=SETS) -> dict[int, Reason]:
    """By stream."""
    found = decide(some, sets, Budget(1000), 0)
    numbers = some.rec["stream_id"][found.index].tolist()
    return {number: Reason(reason) for number, reason in zip(numbers, found.reason.tolist(), strict=True)}


@pytest.mark.parametrize("role", [Role.CLIENT, Role.SERVER])
def test_the_first_answer_is_what_is_judged_and_not_how_long_it_lasts(role):
    some = calls(call(role, 10, stream_id=1), call(role, SLOW_NS + 1, stream_id=3))

    assert some.first_answer_ns.tolist() == [10, SLOW_NS + 1]
    assert some.duration_ns.tolist() == [HOUR_NS, HOUR_NS]
    assert reasons(some) == {3: Reason.SLOW}


def test_an_answer_that_overtakes_its_request_takes_no_negative_time():
    early = call(Role.SERVER)
    early["send_start_ns"] = early["ready_first_ns"] - 5

    assert calls(early).first_answer_ns.tolist() == [1]


def test_a_reset_is_how_a_subscription_ends_and_what_breaks_its_connection_fails_it():
    some = calls(call(stream_id=1, outcome=Outcome.STREAM_RESET), call(stream_id=3, outcome=Outcome.RESET))

    assert reasons(some) == {3: Reason.ERROR}


def test_the_reset_of_another_call_fails_it():
    unary = {"excluded": Excluded.NONE, "conn_class": ExchangeClass.UNARY}

    assert reasons(calls(call(outcome=Outcome.STREAM_RESET, **unary))) == {7: Reason.ERROR}


def test_both_ends_of_a_share_are_sampled_or_neither():
    sets = {1: TargetSet(("shop/p/cart",), (SLOW_NS,), 0, SpanPolicy(SLOW_NS, 0.5, 1000), "shop/p")}
    clients, servers = (
        calls(*(call(role, stream_id=n) for n in range(1, 99, 2))) for role in (Role.CLIENT, Role.SERVER)
    )

    of_clients = reasons(clients, sets)
    assert 0 < len(of_clients) < 49
    assert of_clients == reasons(servers, sets)


@pytest.mark.parametrize("fields", [{"stream_id": 0}, {"excluded": Excluded.OUT_OF_STEP}], ids=str)
def test_turns_that_stream_and_calls_that_were_lost_sight_of_are_not_shown(fields):
    some = calls(call(first_answer_ns=SLOW_NS + 1, **fields))

    assert reasons(some) == {}
    assert not some.shown.any()


def test_its_halves_are_a_pair_that_is_no_event():
    unary = {"excluded": Excluded.NONE, "conn_class": ExchangeClass.UNARY, "stream_id": 9}
    both = [call(role, **fields) for fields in ({}, unary) for role in (Role.CLIENT, Role.SERVER)]
    pairs = LocalJoin().join(calls(*both))

    assert sorted(pairs.client.rec["stream_id"].tolist()) == [7, 9]
    assert pairs.events.client.rec["stream_id"].tolist() == [9]
    assert (pairs.stages.sum(axis=1) == HOUR_NS).all()


def test_ends_that_disagree_whether_it_streams_are_a_pair_that_is_no_event():
    server = call(Role.SERVER, excluded=Excluded.NONE, conn_class=ExchangeClass.UNARY)
    pairs = LocalJoin().join(calls(call(), server))

    assert len(pairs) == 1
    assert len(pairs.events) == 0


def test_a_slow_one_asks_the_other_node_for_its_server_half_and_a_quick_one_does_not():
    asking = Asking(join_wait_s=1.0, answer_wait_s=4.0, per_second=100)
    some = calls(call(stream_id=1), call(first_answer_ns=SLOW_NS + 1, stream_id=3))

    asking.consider(some, LocalJoin().join(some), SETS, b"key", 0)

    assert asking.pending == {int(some.join_key[1])}


def test_turns_have_no_first_answer():
    some = halves(exchanges(3, Role.CLIENT, stages=(1, 2, 3, 4)))

    assert not some.first_answer_ns.any()
    assert some.judged_ns is some.duration_ns
    assert not streaming.streaming(some.rec).any()
