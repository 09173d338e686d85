"""Requests written column by column say what one object for each span would: `tests/support/span_oracle.py`."""

from operator import attrgetter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, Span

from latencyprobe.plan import Identity
from latencyprobe_agent.identity.resources import UNKNOWN_SERVICE, FakeResources
from latencyprobe_agent.measure.call_links import LINK
from latencyprobe_agent.measure.matches import packed
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.signals import retransmits, tcprt
from latencyprobe_agent.telemetry.span_encoder import Context, requests
from latencyprobe_agent.telemetry.span_rows import ROW, Noted, NotedCalls, Peer, Ready, SpanTarget
from latencyprobe_agent.vocabulary.records import RETRANSMIT, TCPRT, ExchangeClass, Outcome, Role
from tests.support import span_oracle

PLACES = ("10.0.0.1", "10.96.0.12", "::", "fd00::1", "192.168.100.200")
TARGETS = (
    SpanTarget("a/p/x", "p", "x", True),
    SpanTarget("a/p/", "p", "", False),
    SpanTarget("b/q/y", "q", "y", False),
)
SERVERS = (("", ""), ("", "lost"), ("cart", ""), ("cart", "shop"))
PEERS = tuple(
    Peer(place, identity)
    for place in PLACES
    for identity in (
        None,
        Identity(place),
        Identity(place, "shop", service="cart"),
        Identity(place, "shop", "web-0", workload="web", measured=("a/p/x", "b/q/y")),
        Identity(place, "größe", "web-1", service="größe", measured=("a/p/",)),
    )
)


class Resources(FakeResources):
    """Nobody knows the owners 0 and 1."""

    def attributes(self, owner: int) -> dict[str, str | int]:
        if owner < 2:
            return {"service.name": UNKNOWN_SERVICE}
        return {
            "service.name": f"service-{owner}",
            ("service.namespace" if owner % 2 else "k8s.namespace.name"): "shop",
        }


def chances(count: int) -> st.SearchStrategy[Any]:
    """Rows with values of all kinds, also such as do not come together."""
    ns, u32, few = st.integers(0, 2**44), st.sampled_from([0, 1, 77, 2**32 - 1]), st.integers(0, 3)
    one = {
        "trace_id": st.tuples(*[st.integers(0, 2**64 - 1)] * 2),
        "start_ns": ns,
        "stages": st.tuples(*[st.just(0) | ns] * 4),
        "pair_stages": st.tuples(*[ns] * len(PAIR_STAGES)),
        "first_answer_ns": st.just(0) | ns,
        "stream_id": st.sampled_from([0, 1, 2**31 - 1]),
        "ratio": st.floats(0, 1),
        "excess_ns": st.floats(-1e9, 1e9) | st.just(np.nan),
        "target": st.integers(0, len(TARGETS) - 1),
        "peer": st.integers(0, len(PEERS) - 1),
        "server": st.integers(0, len(SERVERS) - 1),
        "flags": st.integers(0, 2**32 - 1),
        "pair_dominant": st.integers(0, len(PAIR_STAGES) - 1),
        "joined": st.integers(0, 2),
        "stages_as": st.integers(0, 2),
        "local_addr": st.sampled_from(PLACES).map(lambda place: np.frombuffer(packed(place), np.uint8)),
        **dict.fromkeys(("owner", "other_owner", "dominant"), few),
        **dict.fromkeys(("request_bytes", "response_bytes"), st.integers(0, 2**56 - 1)),
        **dict.fromkeys(("srtt_us", "rtt_min_us", "retransmits"), u32),
        **dict.fromkeys(("local_port", "peer_port"), st.integers(0, 2**16 - 1)),
        **{name: st.sampled_from(kind) for name, kind in KINDS.items()},
    }
    return st.lists(st.fixed_dictionaries(one), min_size=1, max_size=count)


KINDS = {"role": Role, "conn_class": ExchangeClass, "outcome": Outcome, "reason": Reason}


def noted(draw: Any, count: int) -> list[Noted]:
    """Records that explain some of these spans, and some others."""
    found = []
    for explains, dtype in draw(
        st.lists(st.sampled_from([(retransmits.EXPLAINS, RETRANSMIT), (tcprt.EXPLAINS, TCPRT)]))
    ):
        number = np.array(draw(st.lists(st.integers(0, count + 1), min_size=1, max_size=4)), np.uint64)
        records = np.zeros(len(number), dtype)
        records["flow"]["boot_ns"] = np.arange(len(number))
        found.append(Noted(explains, number, records, 7 * number.astype(np.int64)))
    return found


def noted_calls(draw: Any, count: int) -> list[NotedCalls]:
    """Calls of some of these spans, and of some others."""
    one = st.tuples(st.integers(0, count + 1), st.booleans(), st.sampled_from(Outcome), st.sampled_from(PLACES))
    found = []
    for server in draw(st.lists(st.booleans(), max_size=2, unique=True)):
        chosen = draw(st.lists(one, min_size=1, max_size=5))
        links = np.zeros(len(chosen), LINK)
        for link, (number, linked, outcome, place) in zip(links, chosen, strict=True):
            link["linked"], link["outcome"], link["calls"] = linked, outcome, number + 1
            link["peer_addr"], link["peer_port"] = np.frombuffer(packed(place), np.uint8), 6379
            link["server_trace"], link["client_trace"] = (number, 2**64 - 1 - number), (5 * number, 9)
            link["waited_ns"] = 77 * number
        links["begin_ns"], links["wait_ns"] = np.arange(len(links)), 3 * np.arange(len(links))
        found.append(NotedCalls(server, np.array([number for number, *_ in chosen], np.uint64), links))
    return found


@st.composite
def readies(draw: Any) -> Ready:
    """Spans that may go."""
    chosen = draw(chances(8))
    rows = np.zeros(len(chosen), ROW)
    rows["number"] = np.arange(len(rows))
    for i, one in enumerate(chosen):
        for name, value in one.items():
            rows[name][i] = value
    return Ready(rows, TARGETS, PEERS, SERVERS, noted(draw, len(rows)), noted_calls(draw, len(rows)))


def canonical(group: ResourceSpans) -> ResourceSpans:
    """With attributes by name, and events by time and name: their order says nothing."""
    for span in group.scope_spans[0].spans:
        attributes, events = sorted(span.attributes, key=attrgetter("key")), sorted(span.events, key=_by_time)
        del span.attributes[:], span.events[:]
        span.attributes.extend(attributes)
        span.events.extend(events)
    return group


def _by_time(event: Span.Event) -> tuple[int, str, bytes]:
    return event.time_unix_nano, event.name, event.SerializeToString(deterministic=True)


@pytest.mark.long
@given(readies(), st.integers(0, 2**60), st.booleans())
@settings(deadline=None)
def test_columns_say_what_one_object_for_each_span_would(ready: Ready, offset_ns: int, shared_key: bool) -> None:
    context = Context(Resources(), offset_ns, shared_key)
    ((body, count),) = requests(ready, context)
    found = ExportTraceServiceRequest.FromString(body).resource_spans
    assert count == sum(len(group.scope_spans[0].spans) for group in found)
    assert [*map(canonical, found)] == [*map(canonical, span_oracle.grouped(ready, context))]


@pytest.mark.long
def test_many_spans_of_many_peers_say_the_same() -> None:
    rng, count = np.random.default_rng(1), 3000
    rows = np.zeros(count, ROW)
    rows["number"] = np.arange(count)
    rows["trace_id"] = rng.integers(0, 2**64, (count, 2), np.uint64)
    rows["owner"], rows["peer"] = rng.integers(0, 30, count), rng.integers(0, 2000, count)
    rows["stages"] = rng.integers(0, 2**30, (count, 4))
    rows["stages_as"], rows["joined"] = rng.integers(0, 3, (2, count))
    for name, kind in KINDS.items():
        rows[name] = rng.integers(0, len(kind), count)
    peers = [Peer(f"10.1.{i >> 8}.{i & 255}", Identity("", "shop", service="x" * (i % 50))) for i in range(2000)]
    ready, context = Ready(rows, TARGETS, peers, SERVERS), Context(Resources(), 10**18)
    found = []
    for body, told in requests(ready, context):
        before = len(found)
        for group in ExportTraceServiceRequest.FromString(body).resource_spans:
            found += canonical(group).scope_spans[0].spans
        assert told == len(found) - before
    expected = map(canonical, span_oracle.grouped(ready, context))
    assert found == [span for group in expected for span in group.scope_spans[0].spans]
