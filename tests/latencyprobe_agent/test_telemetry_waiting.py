from typing import Any

import numpy as np
import pytest

from latencyprobe import plan
from latencyprobe.plan import Identity, SpanPolicy, Target
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.addresses import address
from latencyprobe_agent.vocabulary.records import Role

CART = Target("shop/p/cart", "shop", "p", "uid", "cart", plan.Role.SERVER, (), 0, SpanPolicy(1, 1.0, 100))


def everything(halves: Halves) -> Sampled:
    n = len(halves)
    return Sampled(halves, np.full(n, Reason.RATIO, np.uint8), np.ones(n))


@pytest.fixture
def room() -> WaitingRoom:
    return WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=100)


def test_a_named_half_waits_only_for_its_other_half(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0)
    peers = FakePeers(Identity("10.0.0.2", service="web"))
    assert room.take_ready(peers, 10.1) == []
    (ready,) = room.take_ready(peers, 10.3)
    assert ready.identity == Identity("10.0.0.2", service="web")
    assert len(room) == 0


def test_an_unnamed_half_goes_after_two_seconds_and_is_counted(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0)
    assert room.take_ready(FakePeers(), 11.9) == []
    (ready,) = room.take_ready(FakePeers(), 12.0)
    assert ready.identity is None
    assert room.unresolved == 1


@pytest.mark.parametrize("apart", [False, True], ids=["in one batch", "in two batches"])
def test_a_joined_pair_waits_for_nobody(room: WaitingRoom, make_halves: Any, apart: bool) -> None:
    client = {"role": Role.CLIENT, "stages": (5, 100, 5, 5), "writer_tgid": 30}
    server = {"role": Role.SERVER, "stages": (5, 5, 50, 5), "writer_tgid": 40, "request_seq": 0}
    join = LocalJoin()
    for batch in [make_halves(client), make_halves(server)] if apart else [make_halves(client, server)]:
        room.admit(everything(batch), {1: CART}, 10.0)
        room.note_pairs(join.join(batch), by_process=True)
    ready = room.take_ready(FakePeers(), 10.0)
    assert len(ready) == 2
    for chosen in ready:
        assert chosen.join is not None
        assert (chosen.join.client_owner, chosen.join.server_owner) == (30, 40)
        assert (115, 50) == (sum(chosen.join.stages_ns), chosen.join.stages_ns[PAIR_STAGES.index("server_process")])
        assert chosen.join.server is None


def test_a_half_that_asks_another_node_waits_for_the_answer(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.CLIENT, "stages": (5, 100, 5, 5)})
    server = make_halves({"role": Role.SERVER, "stages": (5, 5, 50, 5)})
    low = int(halves.trace_id[0, 1])
    peers = FakePeers(Identity("10.0.0.2", service="cart-svc"))
    room.admit(everything(halves), {1: CART}, 10.0)
    assert room.take_ready(peers, 11.0, {low}) == []
    pairs = LocalJoin().join(Halves.concatenate([halves, server]))
    room.note_pairs(pairs, by_process=False, servers={low: ("cart", "shop")})
    (ready,) = room.take_ready(peers, 11.1, set())
    assert ready.join is not None
    assert ready.join.server == ("cart", "shop")


def test_a_half_whose_question_got_no_answer_goes(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.CLIENT})
    room.admit(everything(halves), {1: CART}, 10.0)
    (ready,) = room.take_ready(FakePeers(Identity("10.0.0.2", service="cart-svc")), 14.0, set())
    assert ready.join is None


def test_a_stranger_s_pair_joins_nothing(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER, "request_seq": 1})
    room.admit(everything(halves), {1: CART}, 10.0)
    room.note_pairs(LocalJoin().join(make_halves({"role": Role.CLIENT}, {"role": Role.SERVER})), by_process=True)
    assert room.take_ready(FakePeers(), 10.1) == []


def test_a_full_room_and_a_target_that_has_gone_are_counted(make_halves: Any) -> None:
    room = WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=2)
    halves = make_halves(*({"role": Role.SERVER, "request_seq": i} for i in range(5)))
    room.admit(everything(halves), {}, 10.0)
    assert room.left_out == 5
    room.admit(everything(halves), {1: CART}, 10.0)
    assert (len(room), room.left_out) == (2, 8)


def test_what_the_budget_left_out_is_counted_too(room: WaitingRoom, make_halves: Any) -> None:
    nobody = Sampled(make_halves(), np.empty(0, np.uint8), np.empty(0), over_budget=3)
    room.admit(nobody, {1: CART}, 10.0)
    assert room.left_out == 3


def test_at_the_end_nobody_waits(room: WaitingRoom, make_halves: Any) -> None:
    halves = make_halves({"role": Role.SERVER})
    room.admit(everything(halves), {1: CART}, 10.0)
    assert len(room.take_ready(FakePeers(), 10.0, all_of_them=True)) == 1


def test_addresses_read_as_people_write_them() -> None:
    assert address(b"\0" * 10 + b"\xff\xff" + bytes([10, 0, 0, 1])) == "10.0.0.1"
    assert address(b"\xfd" + b"\0" * 14 + b"\1") == "fd00::1"
