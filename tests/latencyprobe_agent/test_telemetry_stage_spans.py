"""Stages as child spans: whose they are, when they are drawn, and that together they are the RPC."""

import operator
from collections.abc import Callable, Iterator
from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe.stages import StagesAs
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.telemetry.naming import Naming
from latencyprobe_agent.telemetry.otlp import FakeTransport
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.span_encoder import Context, requests
from latencyprobe_agent.telemetry.span_rows import (
    AS_EVENTS,
    AS_SPANS,
    JOINED_HERE,
    JOINED_REMOTELY,
    NO_STAGES,
    NOT_JOINED,
    ROW,
    Peer,
    Ready,
    SpanTarget,
)
from latencyprobe_agent.telemetry.stage_spans import shown_as
from latencyprobe_agent.vocabulary.records import Role
from tests.support.otlp import spans, stages_ns

OFFSET_NS = 10**18
CONTEXT = Context(FakeResources(), OFFSET_NS)
NS = st.integers(0, 2**40)


def half(role: Role, stages: Any = (10, 20, 30, 40), joined: int = NOT_JOINED, stages_as: int = AS_SPANS) -> Any:
    """A row; both halves of an exchange have one trace id."""
    row = np.zeros(1, ROW)
    row["role"], row["stages"], row["joined"], row["stages_as"] = role, stages, joined, stages_as
    row["trace_id"], row["start_ns"], row["owner"] = (5, 6), 1000, role
    return row


def ready(*rows: Any) -> Ready:
    together = np.concatenate(rows)
    together["number"] = np.arange(len(together))
    return Ready(together, [SpanTarget("d/p/t", "p", "t", False)], [Peer("10.0.0.1", None)], [("", "")])


def sent(*rows: Any) -> list[tuple[dict[str, Any], Span]]:
    return spans(body for body, _ in requests(ready(*rows), CONTEXT))


@pytest.mark.parametrize(
    ("role", "stages"),
    [
        (Role.SERVER, ["receive", "read_delay", "process", "send"]),
        (Role.CLIENT, ["send", "wait", "receive", "read_delay"]),
    ],
)
def test_a_child_is_its_stage_of_the_half_s_own_resource_and_says_nothing_else(role: Role, stages: list[str]) -> None:
    (resource, parent), *children = sent(half(role))
    assert [child.name for _, child in children] == stages
    for of, child in children:
        assert of == resource
        assert (child.trace_id, child.parent_span_id) == (parent.trace_id, parent.span_id)
        assert (child.kind, child.flags) == (Span.SPAN_KIND_INTERNAL, 0x101)
        assert not [*child.attributes, *child.events, *child.links]
        assert not child.HasField("status")
    assert not parent.events


@given(st.sampled_from(Role), st.tuples(NS, NS, NS, NS))
def test_children_follow_each_other_without_a_gap_from_the_half_s_start_to_its_end(role: Role, stages: Any) -> None:
    (_, parent), *children = sent(half(role, stages))
    assert len(children) == np.count_nonzero(stages), "a stage that took no time is no span"
    at_ns = parent.start_time_unix_nano
    for _, child in children:
        assert child.start_time_unix_nano == at_ns
        at_ns = child.end_time_unix_nano
    assert at_ns == parent.end_time_unix_nano


@pytest.mark.parametrize("joined", [JOINED_HERE, JOINED_REMOTELY])
def test_the_server_s_span_stands_where_the_client_of_a_pair_waits(joined: int) -> None:
    found = [span for _, span in sent(half(Role.CLIENT, joined=joined), half(Role.SERVER, joined=joined))]
    by_kind = {span.kind: span for span in found}
    client, server = by_kind[Span.SPAN_KIND_CLIENT], by_kind[Span.SPAN_KIND_SERVER]
    assert server.parent_span_id == client.span_id
    assert stages_ns(found) == {
        (client.trace_id, client.span_id): {"send": 10, "receive": 30, "read_delay": 40},
        (server.trace_id, server.span_id): {"receive": 10, "read_delay": 20, "process": 30, "send": 40},
    }


def critical_path(found: list[Span], before: Callable[[int, int], bool]) -> list[str]:
    """Whose time the trace took, from its end: always the child's that ended last before what follows.

    `before`: of its end, and the start of what follows. Jaeger's page wants it to be less, others less or equal.
    """
    halves = {span.span_id: Span.SpanKind.Name(span.kind)[10:].lower() for span in found}

    def walk(span: Span) -> Iterator[str]:
        name = halves[span.span_id]
        name = f"{halves[span.parent_span_id]} {span.name}" if name == "internal" else name
        at_ns, ends = span.end_time_unix_nano, operator.le
        while inside := [
            one for one in found if one.parent_span_id == span.span_id and ends(one.end_time_unix_nano, at_ns)
        ]:
            last = max(inside, key=attrgetter("end_time_unix_nano"))
            if last.end_time_unix_nano < at_ns:
                yield name
            yield from walk(last)
            at_ns, ends = last.start_time_unix_nano, before
        if at_ns > span.start_time_unix_nano:
            yield name

    (root,) = (span for span in found if not span.parent_span_id)
    return list(walk(root))


@pytest.mark.parametrize(
    ("before", "of_server"),
    [
        (operator.le, ["server send", "server process", "server read_delay", "server receive"]),
        (operator.lt, ["server send", "server", "server read_delay", "server"]),
    ],
)
def test_the_critical_path_of_a_pair_leads_through_the_server(before: Any, of_server: list[str]) -> None:
    client = half(Role.CLIENT, (10, 1000, 30, 40), JOINED_HERE)
    server = half(Role.SERVER, (10, 20, 800, 40), JOINED_HERE)
    server["start_ns"] += 100
    path = critical_path([span for _, span in sent(client, server)], before)
    assert [step for step in path if step.startswith("server")] == of_server
    assert path[0] == "client read_delay"
    assert path[-2:] == ["client", "client send"], "the way there is the client's own time"


def test_all_ids_of_a_trace_differ_and_none_is_zero() -> None:
    ids = {span.span_id for _, span in sent(half(Role.CLIENT), half(Role.SERVER))}
    assert len(ids) == 10
    assert bytes(8) not in ids


@pytest.mark.parametrize(
    ("policy", "reason", "expected"),
    [
        *((StagesAs.SPANS, reason, AS_SPANS) for reason in (Reason.ERROR, Reason.SLOW, Reason.OTHER_HALF)),
        *((StagesAs.SPANS, reason, AS_EVENTS) for reason in (Reason.RATIO, Reason.CALL)),
        *((StagesAs.EVENTS, reason, AS_EVENTS) for reason in Reason),
        *((StagesAs.NONE, reason, NO_STAGES) for reason in Reason),
    ],
)
def test_slow_and_failed_ones_and_their_other_halves_are_drawn(policy: StagesAs, reason: Reason, expected: int) -> None:
    of_row = np.array([1, 0, 1])
    code = shown_as([StagesAs.NONE, policy], of_row, np.full(3, reason, np.uint8))
    assert code.tolist() == [expected, NO_STAGES, expected]


def test_stages_that_are_not_shown_are_attributes_all_the_same() -> None:
    ((_, shown), *_), ((_, bare),) = sent(half(Role.SERVER)), sent(half(Role.SERVER, stages_as=NO_STAGES))
    assert sorted(map(str, bare.attributes)) == sorted(map(str, shown.attributes))
    assert not bare.events


def test_what_a_collector_took_is_counted_with_children_also_of_spans_that_waited_for_names() -> None:
    transport = FakeTransport()
    outbox = Outbox(transport, signal="traces", collector="here", capacity_bytes=1 << 20)
    naming = Naming(outbox, lambda _: ["main"])
    outbox.start()
    naming.put(ready(half(Role.CLIENT), half(Role.SERVER, (0, 20, 30, 0))), CONTEXT)
    naming.close()
    outbox.stop(10)
    assert outbox.sent_items == len(spans(transport.bodies)) == 8
