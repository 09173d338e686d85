from typing import Any

import msgspec
import numpy as np
import pytest

from latencyprobe.plan import Identity
from latencyprobe_agent.directory.peers import FakePeers, Peers
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure import unsent
from latencyprobe_agent.measure.call_links import LINK
from latencyprobe_agent.measure.evidence import Joined
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.measure.sampling import Sampled
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.signals.evidence import Evidence, Explains
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.signals.retransmits import EXPLAINS
from latencyprobe_agent.telemetry import span_encoder
from latencyprobe_agent.telemetry.span_rows import JOINED_HERE, JOINED_REMOTELY, NOT_JOINED, Peer
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import FLOW_HEADER, ExchangeFlags, Role, UnsentReason
from tests.latencyprobe_agent.waiting_halves import CART, everything, who
from tests.support.otlp import spans, values

WATCHED = msgspec.structs.replace(CART, evidence=("retransmits",))
RESENT = np.dtype([("flow", FLOW_HEADER), ("segs", "u4")])
LOST = Explains(
    event="lost",
    fields=lambda record: {"segs": int(record["segs"])},
    attributes=lambda records: {names.RETRANSMITS: int(records["segs"].sum())},
    samples=lambda _: [],
    describe=lambda record, new_ns: [("lost", int(record["segs"]), new_ns)],
    waits=EXPLAINS.waits,
)


@pytest.fixture
def room() -> WaitingRoom:
    return WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=100)


def test_a_named_half_waits_only_for_its_other_half(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    peers = FakePeers(Identity("10.0.0.2", service="web"))
    assert len(room.take_ready(peers, 10.1)) == 0
    assert who(room.take_ready(peers, 10.3)) == [Peer("10.0.0.2", Identity("10.0.0.2", service="web"))]
    assert len(room) == 0


def test_an_unnamed_half_goes_after_two_seconds_and_is_counted(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    assert len(room.take_ready(FakePeers(), 11.9)) == 0
    assert who(room.take_ready(FakePeers(), 12.0)) == [Peer("10.0.0.2", None)]
    assert room.unresolved == 1


@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "in two batches"])
def test_a_joined_pair_waits_for_nobody(room: WaitingRoom, make_halves: Any, apart: bool) -> None:
    client = {"role": Role.CLIENT, "stages": (5, 100, 5, 5), "writer_tgid": 30}
    server = {"role": Role.SERVER, "stages": (5, 5, 50, 5), "writer_tgid": 40, "request_seq": 0}
    join = LocalJoin()
    for batch in [make_halves(client), make_halves(server)] if apart else [make_halves(client, server)]:
        room.admit(everything(batch), {1: CART}, 10.0, by_process=True)
        room.note_pairs(join.join(batch), by_process=True)
    ready = room.take_ready(FakePeers(), 10.0)
    assert len(ready) == 2
    for row in ready.rows:
        assert (row["joined"], row["owner"], row["other_owner"]) in [(JOINED_HERE, 30, 40), (JOINED_HERE, 40, 30)]
        assert (115, 50) == (row["pair_stages"].sum(), row["pair_stages"][PAIR_STAGES.index("server_process")])


def test_a_half_that_asks_another_node_waits_for_the_answer(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.CLIENT, "stages": (5, 100, 5, 5)})
    server = make_halves({"role": Role.SERVER, "stages": (5, 5, 50, 5)})
    join_key = int(halves.join_key[0])
    peers = FakePeers(Identity("10.0.0.2", service="cart-svc"))
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    assert len(room.take_ready(peers, 11.0, {join_key})) == 0
    pairs = LocalJoin().join(Halves.concatenate([halves, server]))
    room.note_pairs(pairs, by_process=False, servers={join_key: ("cart", "shop")})
    ready = room.take_ready(peers, 11.1, set())
    assert ready.rows["joined"].tolist() == [JOINED_REMOTELY]
    assert ready.servers[ready.rows["server"][0]] == ("cart", "shop")


def test_a_half_whose_question_got_no_answer_goes(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.CLIENT})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    ready = room.take_ready(FakePeers(Identity("10.0.0.2", service="cart-svc")), 14.0, set())
    assert ready.rows["joined"].tolist() == [NOT_JOINED]


def test_a_stranger_s_pair_joins_nothing(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER, "request_seq": 1})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    room.note_pairs(LocalJoin().join(make_halves({"role": Role.CLIENT}, {"role": Role.SERVER})), by_process=True)
    assert len(room.take_ready(FakePeers(), 10.1)) == 0


def test_a_full_room_and_a_target_that_has_gone_are_counted(make_halves: Any) -> None:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=2)
    halves = make_halves(*({"role": Role.SERVER, "request_seq": i} for i in range(5)))
    room.admit(everything(halves), {}, 10.0, by_process=False)
    assert room.left_out == 5
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    assert (len(room), room.left_out) == (2, 8)


def test_what_the_budget_left_out_is_counted_too(room: WaitingRoom, make_halves: Any) -> None:
    nobody = Sampled(make_halves(), np.empty((0, 2), np.uint64), np.empty(0, np.uint8), np.empty(0), over_budget=3)
    room.admit(nobody, {1: CART}, 10.0, by_process=False)
    assert room.left_out == 3


def test_at_the_end_nobody_waits(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    assert len(room.take_ready(FakePeers(), 10.0, all_of_them=True)) == 1


@pytest.fixture
def answered(make_halves: Any) -> Halves:
    """A server half that sent bytes 100..200 and then closed."""
    stamps = {"stages": (10, 20, 30, 40), "response_seq": 100, "response_bytes": 100, "sock_cookie": 7}
    found: Halves = make_halves({"role": Role.SERVER, "flags": ExchangeFlags.CLOSED, **stamps})
    return found


def explained(half: Halves, segs: int, boot_ns: int) -> Joined:
    """That some of its bytes were sent again."""
    record = np.zeros(1, RESENT)
    record["segs"], flow = segs, record["flow"]
    flow["sock_cookie"], flow["role"], flow["target_set"], flow["boot_ns"] = 7, Role.SERVER, 1, boot_ns
    join = EvidenceJoin(RecentHalves(), SENT_BYTES, LOST.waits)
    join.recent.keep(half)
    found = join.join(Evidence(record, SENT_BYTES.of(flow, seq=100, end_seq=150), np.ones(1, np.bool_)), 2 * 10**9)
    assert found is not None
    return found


def test_the_span_shows_when_what_was_resent_and_how_long_it_waited(room: WaitingRoom, answered: Halves) -> None:
    room.admit(everything(answered), {1: WATCHED}, 1.0, by_process=False)

    room.note_evidence(LOST, explained(answered, segs=2, boot_ns=1_200_000_100))
    ready = room.take_ready(Peers(None), 9.0)

    requests = span_encoder.requests(ready, span_encoder.Context(FakeResources(), 10**18))
    ((_, span),) = spans(body for body, _ in requests)
    event = span.events[-1]
    assert (event.name, event.time_unix_nano) == ("lost", 10**18 + 1_200_000_100)
    assert values(event.attributes) == {"segs": 2, names.WAIT: pytest.approx(0.2)}
    assert values(span.attributes)[names.RETRANSMITS] == 2


def test_both_spans_of_a_pair_show_what_one_end_held_and_no_event(room: WaitingRoom, make_halves: Any) -> None:
    held = {"unsent_reason": UnsentReason.NAGLE, "unsent_bytes": 500, "held_ns": 20}
    halves = make_halves(
        {"role": Role.CLIENT, "stages": (5, 100, 5, 5)}, {"role": Role.SERVER, "stages": (5, 5, 50, 5), **held}
    )
    pairs = LocalJoin().join(halves)
    room.admit(everything(halves), {1: CART}, 1.0, by_process=False)
    mine = unsent.of_halves(halves, pairs)
    for batch in (mine, *unsent.of_pairs(pairs)):
        assert batch is not None
        assert batch.joined is not None
        room.note_evidence(batch.explains, batch.joined)
    requests = span_encoder.requests(room.take_ready(Peers(None), 9.0), span_encoder.Context(FakeResources(), 0))
    both = [span for _, span in spans(body for body, _ in requests)]
    assert [3, 3] == [len(span.events) for span in both], "those of the stages"
    expected = {
        names.UNSENT_REASON: "nagle",
        names.UNSENT_HOLDER: "server",
        names.UNSENT_SIZE: 500,
        names.UNSENT_HELD: pytest.approx(20e-9),
        names.UNSENT_BOUND: "exact",
    }
    for span in both:
        said = values(span.attributes)
        assert expected == {name: said[name] for name in expected}


def test_a_server_that_closed_after_its_answer_waits_a_second_for_evidence(answered: Halves) -> None:
    room = WaitingRoom(identity_wait_s=0.1, join_wait_s=0.1, capacity=10)
    room.admit(everything(answered), {1: WATCHED}, 1.0, by_process=False)
    room.admit(everything(answered), {1: CART}, 1.0, by_process=False)
    assert len(room.take_ready(Peers(None), 1.9)) == 1
    assert len(room.take_ready(Peers(None), 2.0)) == 1


def test_evidence_that_finds_no_room_is_counted(answered: Halves) -> None:
    room = WaitingRoom(identity_wait_s=0.1, join_wait_s=0.1, capacity=1)
    room.admit(everything(answered), {1: WATCHED}, 1.0, by_process=False)
    for _ in range(3):
        room.note_evidence(LOST, explained(answered, segs=2, boot_ns=1_200_000_100))
    ready = room.take_ready(Peers(None), 9.0)
    assert (sum(len(noted.records) for noted in ready.evidence), room.evidence.unshown) == (1, 2)


def test_evidence_stays_with_its_own_span_until_that_leaves(make_halves: Any) -> None:
    room = WaitingRoom(identity_wait_s=0.1, join_wait_s=0.1, capacity=10)
    kinds = ({"role": Role.SERVER, "request_offset": i, "response_bytes": 1, "sock_cookie": i} for i in range(3))
    halves = make_halves(*kinds)
    room.admit(everything(halves), {1: CART}, 1.0, by_process=False)
    record = np.zeros(3, RESENT)
    record["segs"] = [10, 11, 12]
    half = np.zeros(3, [("join_key", "u8"), ("role", "u1")])
    half["join_key"], half["role"] = halves.join_key, Role.SERVER
    nothing = np.zeros(3, np.int64)
    found = Evidence(record, SENT_BYTES.of(record["flow"], seq=nothing, end_seq=nothing), np.ones(3, np.bool_))
    room.note_evidence(LOST, Joined(found, half, nothing, nothing, nothing == 0))
    assert len(room.take_ready(Peers(None), 1.05, set(halves.join_key.tolist()))) == 0
    seen = {}
    for now_s, asking in ((2.0, halves.join_key[1:].tolist()), (3.0, [])):
        ready = room.take_ready(Peers(None), now_s, set(asking))
        told = {n: s for noted in ready.evidence for n, s in zip(noted.number, noted.records["segs"], strict=True)}
        seen |= {int(row["join_key"]): told.get(row["number"]) for row in ready.rows}
    assert seen == dict(zip(halves.join_key.tolist(), [10, 11, 12], strict=True))


@pytest.mark.long
def test_targets_and_servers_that_no_row_has_are_forgotten_and_others_keep_their_names(make_halves: Any) -> None:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=1.0, capacity=10)
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 0.0, by_process=False)
    for i in range(3000):
        later = msgspec.structs.replace(CART, name=f"cart-{i}")
        batch = make_halves({"role": Role.SERVER, "request_offset": i})
        room.admit(everything(batch), {1: later}, 0.0, by_process=False)
    ready = room.take_ready(Peers(None), 5.0)
    assert [ready.targets[code].name for code in ready.rows["target"]] == ["cart", *(f"cart-{i}" for i in range(9))]
    assert len(ready.targets) < 2000


def linked(halves: Halves, *, linked: bool = True) -> Any:
    """A call by the second half, which the first one waited for."""
    links = np.zeros(1, LINK)
    links["server_key"], links["client_key"], links["linked"] = halves.join_key[0], halves.join_key[1], linked
    return links


def test_spans_wait_until_it_is_known_whom_they_called_and_say_so(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER}, {"role": Role.CLIENT, "request_seq": 5})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    peers = FakePeers(Identity("10.0.0.2", service="web"))
    assert len(room.take_ready(peers, 14.0, (), halves.join_key)) == 0
    room.note_calls(linked(halves))
    ready = room.take_ready(peers, 14.1, (), halves.join_key[:1])
    assert (ready.rows["role"].tolist(), [one.server for one in ready.calls]) == ([Role.CLIENT], [False])
    ready = room.take_ready(peers, 14.2)
    assert (ready.rows["role"].tolist(), [one.server for one in ready.calls]) == ([Role.SERVER], [True])
    assert [one.number.tolist() for one in ready.calls] == ready.rows["number"].reshape(1, 1).tolist()


def test_a_call_that_is_no_span_is_told_by_its_server_alone(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER}, {"role": Role.CLIENT, "request_seq": 5})
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    room.note_calls(linked(halves, linked=False))
    ready = room.take_ready(FakePeers(), 20.0)
    assert [one.server for one in ready.calls] == [True]


def test_calls_of_spans_that_have_gone_are_nobody_s_and_what_finds_no_room_is_counted(make_halves: Any) -> None:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=2)
    halves = make_halves({"role": Role.SERVER}, {"role": Role.CLIENT, "request_seq": 5})
    room.note_calls(linked(halves))
    room.admit(everything(halves), {1: CART}, 10.0, by_process=False)
    room.note_calls(np.repeat(linked(halves, linked=False), 3))
    ready = room.take_ready(FakePeers(), 20.0)
    assert (sum(len(one.links) for one in ready.calls), room.calls.unshown) == (2, 1)
