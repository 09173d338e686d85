import math
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from latencyprobe import plan
from latencyprobe.plan import Identity, SpanPolicy, Target
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.telemetry import span_encoder
from latencyprobe_agent.telemetry.span_rows import JOINED_HERE, JOINED_REMOTELY, ROW, Peer, Ready
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Outcome, Role
from tests.support.otlp import of_rpcs, spans, values

OFFSET_NS = 1_700_000_000_000_000_000
STAGES_NS = tuple(range(1, len(PAIR_STAGES) + 1))
NETWORK = PAIR_STAGES.index("network")
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", plan.Role.SERVER, (), 0, SpanPolicy(1, 1.0, 100), clients=True)
CALLER = Identity("10.0.0.2", "shop", "web-0", "uid-9", "web", "web", "n2", measured=("shop/p/cart",))


class Join(NamedTuple):
    """What a pair shows. `server`: service name and namespace, of one that was joined remotely."""

    stages_ns: tuple[int, ...]
    dominant: int
    excess_ns: float
    client_owner: int
    server_owner: int
    server: tuple[str, str] | None = None


def together(*parts: Ready) -> Ready:
    """Spans that were chosen one by one."""
    for i, part in enumerate(parts):
        part.rows["number"] = part.rows["peer"] = part.rows["server"] = i
    rows, peers, servers = (
        [value for part in parts for value in getattr(part, of)] for of in ("rows", "peers", "servers")
    )
    return Ready(np.array(rows, ROW), parts[0].targets, peers, servers)


def decoded(*chosen: Ready, shared_key: bool = False, offset_ns: int = OFFSET_NS) -> list[tuple[dict[str, Any], Span]]:
    """Return (resource attributes, span) of each RPC that the official parser finds."""
    context = span_encoder.Context(FakeResources(), offset_ns, shared_key)
    return of_rpcs(body for body, _ in span_encoder.requests(together(*chosen), context))


@pytest.fixture
def chosen(make_halves: Any) -> Any:
    def choose(
        role: Role,
        identity: Identity | None = CALLER,
        join: Join | None = None,
        reason: Reason = Reason.SLOW,
        **record: Any,
    ) -> Ready:
        halves = make_halves({"role": role, "stages": (10, 20, 30, 40), **record})
        room = WaitingRoom(identity_wait_s=0.0, join_wait_s=0.0, capacity=1)
        sampled = Sampled(halves, halves.trace_ids(b"key"), np.array([reason], np.uint8), np.ones(1))
        room.admit(sampled, {1: CART}, 0.0, by_process=False)
        ready = room.take_ready(FakePeers(), 0.0)
        (row,) = ready.rows
        row["peer"] = 0
        if join is not None:
            row["joined"] = JOINED_REMOTELY if join.server else JOINED_HERE
            row["pair_stages"], row["pair_dominant"], row["excess_ns"] = join.stages_ns, join.dominant, join.excess_ns
            row["other_owner"] = join.client_owner if role is Role.SERVER else join.server_owner
        peers = [Peer(record.get("peer", "10.0.0.2"), identity)]
        return replace(ready, peers=peers, servers=[(join and join.server) or ("", "")])

    return choose


@pytest.mark.parametrize("step_s", [3600, -3600, 5, -5])
def test_a_step_of_the_wall_clock_moves_a_span_and_lengthens_nothing(chosen: Any, step_s: int) -> None:
    boot_ns, offset_ns = 10**12, OFFSET_NS
    clock = Clock(lambda: boot_ns, lambda: boot_ns + offset_ns)
    ((_, before),) = decoded(chosen(Role.SERVER), offset_ns=clock.offset_ns)
    offset_ns += step_s * 10**9
    assert clock.resample() == step_s * 10**9
    ((_, after),) = decoded(chosen(Role.SERVER), offset_ns=clock.offset_ns)
    assert after.start_time_unix_nano - before.start_time_unix_nano == step_s * 10**9
    for span in (before, after):
        assert span.end_time_unix_nano - span.start_time_unix_nano == 100
    assert values(before.attributes) == values(after.attributes)


def test_a_server_half_is_a_server_span_in_wall_time(chosen: Any) -> None:
    ((resource, span),) = decoded(chosen(Role.SERVER, cgroup_id=7))
    assert resource == {"service.name": "service-7", "process.pid": 7}
    assert (span.kind, span.name) == (Span.SPAN_KIND_SERVER, "cart")
    assert span.start_time_unix_nano == OFFSET_NS + 1_000_000_000
    assert span.end_time_unix_nano == OFFSET_NS + 1_000_000_100
    assert span.status.code == Status.STATUS_CODE_UNSET
    attributes = values(span.attributes)
    assert attributes["network.transport"] == "tcp"
    assert attributes["network.type"] == "ipv4"
    assert (attributes["server.address"], attributes["server.port"]) == ("10.0.0.1", 6379)
    assert (attributes["client.address"], attributes["client.port"]) == ("10.0.0.2", 40000)
    assert (attributes["network.peer.address"], attributes["network.peer.port"]) == ("10.0.0.2", 40000)
    assert attributes["service.peer.name"] == attributes["peer.service"] == "web"
    assert attributes["service.peer.namespace"] == "shop"
    assert (attributes["latencyprobe.probe"], attributes["latencyprobe.target"]) == ("p", "cart")
    assert attributes["latencyprobe.class"] == "pingpong"
    assert (attributes["latencyprobe.sampled.reason"], attributes["latencyprobe.sampled.ratio"]) == ("slow", 1.0)
    assert not [name for name in attributes if name.startswith(("rpc.", "http."))]


def test_stages_are_attributes_in_seconds_and_events_at_their_starts(chosen: Any) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, reason=Reason.RATIO))
    attributes = values(span.attributes)
    stages = [attributes[f"latencyprobe.stage.{name}"] for name in ("receive", "read_delay", "process", "send")]
    assert stages == pytest.approx([1e-8, 2e-8, 3e-8, 4e-8])
    assert attributes["latencyprobe.dominant_stage"] == "send"
    assert [(event.name, event.time_unix_nano - span.start_time_unix_nano) for event in span.events] == [
        ("latencyprobe.stage.read_delay", 10),
        ("latencyprobe.stage.process", 30),
        ("latencyprobe.stage.send", 60),
    ]


def test_a_client_half_is_a_root_client_span_with_its_own_stages(chosen: Any) -> None:
    service = Identity("10.96.0.9", "shop", service="cart-svc")
    ((_, span),) = decoded(chosen(Role.CLIENT, service, peer="10.96.0.9"))
    attributes = values(span.attributes)
    assert (span.kind, span.parent_span_id) == (Span.SPAN_KIND_CLIENT, b"")
    assert (attributes["server.address"], attributes["server.port"]) == ("cart-svc", 6379)
    assert attributes["network.peer.address"] == "10.96.0.9"
    assert attributes["service.peer.name"] == "cart-svc"
    assert "client.address" not in attributes
    assert "latencyprobe.root.reason" not in attributes
    assert attributes["latencyprobe.stage.wait"] == pytest.approx(2e-8)


def test_both_halves_are_one_trace_and_the_server_names_its_client(chosen: Any) -> None:
    (_, client), (_, server) = decoded(chosen(Role.CLIENT), chosen(Role.SERVER))
    assert client.trace_id == server.trace_id
    assert len(server.trace_id) == 16
    assert values(client.attributes)["latencyprobe.pair.key"] == server.trace_id.hex()
    assert server.parent_span_id == client.span_id != server.span_id
    assert server.flags & 0x300 == 0x300


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        (None, "peer_unresolved"),
        (Identity("10.0.0.2", "shop", "web-0", service="web"), "client_not_measured"),
        (Identity("10.0.0.2", measured=("shop/p/other",)), "client_not_measured"),
    ],
)
def test_a_server_span_whose_client_is_not_measured_is_a_root_that_says_why(
    chosen: Any, identity: Identity | None, reason: str
) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, identity))
    assert span.parent_span_id == b""
    assert values(span.attributes)["latencyprobe.root.reason"] == reason
    assert values(span.attributes).get("latencyprobe.peer.unresolved", False) == (identity is None)


def test_a_shared_pairing_key_links_to_the_other_host(chosen: Any) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, Identity("10.0.0.2")), shared_key=True)
    assert span.parent_span_id != b""


def test_a_joined_half_knows_the_network_and_the_other_end(chosen: Any) -> None:
    join = Join(STAGES_NS, dominant=NETWORK, excess_ns=-500.0, client_owner=3, server_owner=4)
    (_, client), (_, server) = decoded(chosen(Role.CLIENT, None, join), chosen(Role.SERVER, None, join))
    for span, peer in ((client, "service-4"), (server, "service-3")):
        attributes = values(span.attributes)
        assert attributes["latencyprobe.joined"] == "local"
        assert attributes["latencyprobe.network_excess"] == pytest.approx(-5e-7)
        assert attributes["service.peer.name"] == peer
        assert "latencyprobe.peer.unresolved" not in attributes
    assert server.parent_span_id == client.span_id
    attributes = values(client.attributes)
    assert attributes["latencyprobe.dominant_stage"] == "network"
    told = [attributes[f"latencyprobe.stage.{stage}"] for stage in PAIR_STAGES]
    assert told == pytest.approx([ns / 1e9 for ns in STAGES_NS])
    assert "latencyprobe.stage.network" not in values(server.attributes)


def test_a_client_whose_server_half_was_recalled_names_the_server_that_answered(chosen: Any) -> None:
    dialled = Identity("10.96.0.9", "shop", service="cart-svc")
    joins = [Join(STAGES_NS, NETWORK, math.nan, 3, 0, server) for server in (("cart", "shop"), ("", ""))]
    (_, named), (_, nameless) = decoded(*(chosen(Role.CLIENT, dialled, join) for join in joins))
    attributes = values(named.attributes)
    assert attributes["latencyprobe.joined"] == "remote"
    assert (attributes["service.peer.name"], attributes["server.address"]) == ("cart", "cart-svc")
    assert values(nameless.attributes)["service.peer.name"] == "cart-svc"


def test_a_recalled_server_half_knows_its_parent_without_an_identity(chosen: Any) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, None, reason=Reason.OTHER_HALF))
    assert span.parent_span_id != b""
    assert values(span.attributes)["latencyprobe.sampled.reason"] == "other_half"


def test_without_a_round_trip_sample_there_is_no_excess(chosen: Any) -> None:
    ((_, span),) = decoded(chosen(Role.CLIENT, None, Join(STAGES_NS, NETWORK, math.nan, 3, 4)))
    assert "latencyprobe.network_excess" not in values(span.attributes)
    assert "latencyprobe.tcp.rtt" not in values(span.attributes)


@pytest.mark.parametrize(
    ("outcome", "error"),
    [(Outcome.RESET, "ECONNRESET"), (Outcome.TIMED_OUT, "ETIMEDOUT"), (Outcome.ABORTED, "aborted")],
)
def test_only_a_failed_exchange_has_an_error(chosen: Any, outcome: Outcome, error: str) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, outcome=outcome))
    assert span.status.code == Status.STATUS_CODE_ERROR
    assert values(span.attributes)["error.type"] == error
    ((_, span),) = decoded(chosen(Role.SERVER))
    assert "error.type" not in values(span.attributes)


def test_tcp_evidence_and_flags_are_there_when_the_kernel_has_them(chosen: Any) -> None:
    flags = ExchangeFlags.BACKLOG | ExchangeFlags.FRESH | ExchangeFlags.REQUEST_RESUMED
    record = {"srtt_us": 150, "rtt_min_us": 90, "retransmits": 2, "request_bytes": 10, "response_bytes": 20}
    ((_, span),) = decoded(chosen(Role.SERVER, flags=flags, **record))
    attributes = values(span.attributes)
    assert attributes["latencyprobe.tcp.rtt"] == pytest.approx(150e-6)
    assert attributes["latencyprobe.tcp.rtt_min"] == pytest.approx(90e-6)
    assert attributes["latencyprobe.tcp.retransmits"] == 2
    assert (attributes["latencyprobe.request.size"], attributes["latencyprobe.response.size"]) == (10, 20)
    assert attributes["latencyprobe.flags"] == "backlog|fresh|request_resumed"


def test_ipv6_is_told_from_mapped_ipv4(chosen: Any) -> None:
    ((_, span),) = decoded(chosen(Role.SERVER, peer="fd00::2", local="fd00::1"))
    assert values(span.attributes)["network.type"] == "ipv6"
    assert values(span.attributes)["server.address"] == "fd00::1"


def test_spans_of_one_container_share_one_resource(chosen: Any) -> None:
    batch = together(*(chosen(Role.SERVER, cgroup_id=i % 3, request_seq=i) for i in range(30)))
    ((body, count),) = span_encoder.requests(batch, span_encoder.Context(FakeResources(), 0))
    request = ExportTraceServiceRequest.FromString(body)
    assert count == 150
    assert [len(group.scope_spans[0].spans) for group in request.resource_spans] == [50, 50, 50]


@pytest.mark.long
@pytest.mark.parametrize("name_length", [3, 250])
def test_requests_stay_below_what_receivers_accept(chosen: Any, name_length: int) -> None:
    join = Join(STAGES_NS, NETWORK, -1.0, 3, 4)
    one = chosen(Role.CLIENT, CALLER, join, outcome=Outcome.RESET, srtt_us=1, rtt_min_us=1, flags=0xFFF)
    rows = np.repeat(one.rows, 4000)
    rows["owner"] = np.arange(4000)
    context = span_encoder.Context(Verbose("x" * name_length), OFFSET_NS)
    parts = list(span_encoder.requests(replace(one, rows=rows), context))
    assert sum(count for _, count in parts) == len(spans(body for body, _ in parts)) == 4 * 4000
    assert max(len(body) for body, _ in parts) < 4 << 20


class Verbose(FakeResources):
    """Names any owner at length."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self._name = name

    def attributes(self, owner: int) -> dict[str, str | int]:
        return {"service.name": str(owner), **{f"{self._name}.{i}": self._name for i in range(20)}}
