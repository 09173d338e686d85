"""Turns become spans: linked, with their other half, what is asked for by others, and never one that nobody sampled."""

from typing import Any

import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.stages import StagesAs
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.identity.resources import ProcessResources
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.spans import Spans
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome, Role
from tests.support.otlp import of_rpcs, spans, stages_ns, values

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,), clients=True)
IN_FORCE = InForce(
    NodePlan("host", 1, "", (ECHO,), (), host=True),
    Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")}),
    ProcessResources("host"),
)
PAIR = ({"role": Role.CLIENT, "stages": (0, 9, 0, 0)}, {"role": Role.SERVER, "stages": (0, 0, 5, 0)})


def sent(outbox: FakeOutbox) -> list[Span]:
    return [span for _, span in of_rpcs(outbox.bodies)]


@pytest.fixture
def outbox() -> FakeOutbox:
    return FakeOutbox()


@pytest.fixture
def listener(outbox: FakeOutbox) -> Spans:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=5000)
    return Spans(outbox, room, Peers(None), shared_key=False)


def test_a_pair_of_one_turn_leaves_at_once_and_linked(listener: Spans, outbox: FakeOutbox, make_turn: Any) -> None:
    listener.take(make_turn(IN_FORCE, *PAIR, sampled=True))
    client, server = sorted(sent(outbox), key=lambda span: -span.kind)
    assert (client.kind, server.kind) == (Span.SPAN_KIND_CLIENT, Span.SPAN_KIND_SERVER)
    assert server.parent_span_id == client.span_id


def test_a_call_of_http2_says_so_and_which_stream_it_was(listener: Spans, outbox: FakeOutbox, make_turn: Any) -> None:
    stream = {"stream_id": 2**31 - 1, "conn_class": ExchangeClass.UNARY}
    listener.take(make_turn(IN_FORCE, *(half | stream for half in PAIR), sampled=True))
    listener.take(make_turn(IN_FORCE, *(half | {"request_offset": 9} for half in PAIR), sampled=True, at_s=2.0))
    *calls, turn, _ = ({one.key: one.value for one in span.attributes} for span in sent(outbox))
    assert len(calls) == 2
    for attributes in calls:
        assert attributes[names.NETWORK_PROTOCOL_NAME].string_value == "http"
        assert attributes[names.NETWORK_PROTOCOL_VERSION].string_value == "2"
        assert attributes[names.STREAM_ID].int_value == 2**31 - 1
    assert not {names.NETWORK_PROTOCOL_NAME, names.STREAM_ID} & turn.keys(), "of turns nothing is known"


def test_a_streaming_call_says_when_it_was_first_answered_and_its_reset_is_no_error(
    listener: Spans, outbox: FakeOutbox, make_turn: Any
) -> None:
    stream = {"stream_id": 7, "conn_class": ExchangeClass.STREAMING, "excluded": Excluded.STREAMING}
    stages = {Role.CLIENT: (10, 5_000, 30, 40), Role.SERVER: (10, 20, 3_000, 40)}
    both = [half | stream | {"stages": stages[half["role"]]} for half in PAIR]
    listener.take(make_turn(IN_FORCE, *(half | {"outcome": Outcome.STREAM_RESET} for half in both), sampled=True))
    lost = [half | {"outcome": Outcome.RESET, "request_offset": 9} for half in both]
    listener.take(make_turn(IN_FORCE, *lost, sampled=True, at_s=2.0))
    client, server, *broken = sorted(sent(outbox), key=lambda span: (span.status.code, -span.kind))
    assert server.parent_span_id == client.span_id
    for span, first_s in ((client, 5_010e-9), (server, 3_030e-9)):
        attributes = values(span.attributes)
        assert attributes[names.FIRST_ANSWER] == pytest.approx(first_s)
        assert attributes[names.ERROR_TYPE] == "RST_STREAM"
        assert span.status.code == Status.STATUS_CODE_UNSET
    assert {span.status.code for span in broken} == {Status.STATUS_CODE_ERROR}


def test_many_spans_do_not_wait_for_the_next_second(listener: Spans, outbox: FakeOutbox, make_turn: Any) -> None:
    listener.take(make_turn(IN_FORCE))
    some = [half | {"request_offset": i} for i in range(2000) for half in PAIR]
    listener.take(make_turn(IN_FORCE, *some[:100], sampled=True, at_s=0.1))
    assert sent(outbox) == []
    listener.take(make_turn(IN_FORCE, *some[100:], sampled=True, at_s=0.2))
    assert len(sent(outbox)) == 4000


def test_what_was_not_sampled_is_no_span(listener: Spans, outbox: FakeOutbox, make_turn: Any) -> None:
    listener.take(make_turn(IN_FORCE, *PAIR))
    listener.close()
    assert sent(outbox) == []


def test_a_half_of_an_earlier_turn_gets_the_pair_of_a_later_one(
    listener: Spans, outbox: FakeOutbox, make_turn: Any
) -> None:
    listener.take(make_turn(IN_FORCE, PAIR[0], sampled=True))
    assert sent(outbox) == []
    listener.take(make_turn(IN_FORCE, *PAIR, at_s=0.1))
    assert sent(outbox) == [], "requests are a second apart"
    listener.take(make_turn(IN_FORCE, at_s=1.0))
    (client,) = sent(outbox)
    assert "latencyprobe.stage.network" in {attribute.key for attribute in client.attributes}


def test_a_slow_pair_is_a_picture_as_the_widest_policy_of_its_target_set_says(
    listener: Spans, outbox: FakeOutbox, make_turn: Any
) -> None:
    shown = {}
    for i, stages in enumerate(StagesAs):
        of_set = TargetSet((ECHO.id,), (), 0, SpanPolicy(10**9, 0.0, 100, stages), "d/p")
        in_force = IN_FORCE._replace(rules=Rules(sets={1: of_set}))
        listener.take(make_turn(in_force, *PAIR, sampled=True, at_s=2.0 * i))
        found = [span for _, span in spans(outbox.bodies)]
        outbox.bodies.clear()
        names = {span.span_id: Span.SpanKind.Name(span.kind).removeprefix("SPAN_KIND_") for span in found}
        events = {event.name.rpartition(".")[2] for span in found for event in span.events}
        children = {names[parent]: of_parent for (_, parent), of_parent in stages_ns(found).items()}
        shown[stages] = len(found), len(events) > 0, children
    assert shown == {
        StagesAs.NONE: (2, False, {}),
        StagesAs.EVENTS: (2, True, {}),
        StagesAs.SPANS: (3, False, {"SERVER": {"process": 5}}),
    }


def test_at_the_end_everything_leaves(listener: Spans, outbox: FakeOutbox, make_turn: Any) -> None:
    listener.take(make_turn(IN_FORCE, PAIR[0], sampled=True))
    listener.close()
    assert len(sent(outbox)) == 1


def test_a_target_that_the_plan_no_longer_has_names_no_span(
    listener: Spans, outbox: FakeOutbox, make_turn: Any
) -> None:
    gone = IN_FORCE._replace(plan=NodePlan("host", 2, "", (), (), host=True))
    listener.take(make_turn(gone, *PAIR, sampled=True))
    listener.close()
    assert sent(outbox) == []
