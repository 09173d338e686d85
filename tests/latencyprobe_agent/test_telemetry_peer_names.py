"""Who is at the other end of waiting halves: named early, and not renamed."""

from collections.abc import Iterable
from typing import Any

import pytest

from latencyprobe.plan import Identity
from latencyprobe_agent.directory.past_owners import Ownership
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.telemetry.peer_names import MOST
from latencyprobe_agent.telemetry.span_rows import Peer
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.records import Role
from tests.latencyprobe_agent.waiting_halves import CART, everything, who


class AskingPeers(FakePeers):
    """Peers of an agent that has an operator."""

    asks = True

    def __init__(self, *known: Identity, past: Ownership | None = None) -> None:
        super().__init__(*known)
        self.past = past

    def past_owners(self, addresses: Iterable[str]) -> dict[str, Ownership]:
        return {one: self.past for one in addresses if self.past and self.past.identity.address == one}


@pytest.fixture
def room() -> WaitingRoom:
    return WaitingRoom(identity_wait_s=2.0, join_wait_s=0.25, capacity=100)


def test_a_half_waits_for_the_name_of_an_address_that_nobody_has_yet(room: WaitingRoom, make_halves: Any) -> None:
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
    peers = AskingPeers(Identity("10.0.0.2"))
    assert len(room.take_ready(peers, 11.0)) == 0
    peers.identities["10.0.0.2"] = Identity("10.0.0.2", namespace="shop", pod="web-1", workload="web")
    assert who(room.take_ready(peers, 11.2)) == [Peer("10.0.0.2", peers.identities["10.0.0.2"])]


def test_a_half_whose_peer_stays_nobody_goes_and_was_resolved(room: WaitingRoom, make_halves: Any) -> None:
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
    nobody = Identity("10.0.0.2")
    assert who(room.take_ready(AskingPeers(nobody), 12.0)) == [Peer("10.0.0.2", nobody)]
    assert room.unresolved == 0


def test_a_half_keeps_the_name_of_who_had_the_address_whoever_has_it_when_it_goes(
    room: WaitingRoom, make_halves: Any
) -> None:
    first, second = ({"role": Role.CLIENT, "request_seq": seq} for seq in (1, 90_000))
    before, after = (Identity("10.0.0.2", namespace="shop", pod=pod, uid=pod) for pod in ("old", "new"))
    peers, asking = AskingPeers(before), {0}
    room.admit(everything(make_halves(first)), {1: CART}, 10.0, by_process=False)
    asking = {int(room._rows["join_key"][0])}  # its other half may still come
    assert len(room.take_ready(peers, 10.1, asking)) == 0
    peers.identities["10.0.0.2"] = Identity("10.0.0.2")  # it has gone
    assert len(room.take_ready(peers, 10.2, asking)) == 0
    peers.identities["10.0.0.2"] = after
    room.admit(everything(make_halves(second)), {1: CART}, 10.3, by_process=False)
    assert [one.identity for one in who(room.take_ready(peers, 11.0))] == [before, after]


def test_a_half_is_named_long_before_it_goes(room: WaitingRoom, make_halves: Any) -> None:
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
    peers = AskingPeers(Identity("10.0.0.2", pod="web-1", uid="u"))
    room.name(peers, 10.0)
    peers.identities["10.0.0.2"] = Identity("10.0.0.2")  # it has gone
    assert [one.identity and one.identity.pod for one in who(room.take_ready(peers, 10.3))] == ["web-1"]


def test_what_is_learned_of_the_same_peer_meanwhile_is_taken(room: WaitingRoom, make_halves: Any) -> None:
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
    peers = AskingPeers(Identity("10.0.0.2", pod="web-1", uid="u"))
    assert len(room.take_ready(peers, 10.1)) == 0
    peers.identities["10.0.0.2"] = measured = Identity("10.0.0.2", pod="web-1", uid="u", measured=("shop/p/cart",))
    assert who(room.take_ready(peers, 10.3)) == [Peer("10.0.0.2", measured)]


OLD, NEW, NOBODY = (Identity("10.0.0.2", pod=pod, uid=pod) for pod in ("old", "new", ""))


@pytest.mark.parametrize("now", [NEW, NOBODY, None], ids=["another", "nobody", "nobody knows"])
@pytest.mark.parametrize(("until_ns", "found"), [(0, "old"), (-1, None)], ids=["while it was known", "later"])
def test_what_began_while_a_pod_had_the_address_has_its_name_though_it_comes_when_the_pod_has_gone(
    room: WaitingRoom, make_halves: Any, now: Identity | None, until_ns: int, found: str | None
) -> None:
    half = everything(make_halves({"role": Role.SERVER}))
    began_s, until_s = half.halves.start_ns[0] / 1e9, (half.halves.start_ns[0] + until_ns) / 1e9
    peers = AskingPeers(*([now] if now else []), past=Ownership(OLD, began_s - 5.0, until_s))
    room.admit(half, {1: CART}, 10.0, by_process=False)
    ((_, identity),) = who(room.take_ready(peers, 12.0))
    assert identity == (OLD if found else now)
    assert room.unresolved == (0 if found or now else 1)


def test_what_is_known_of_the_same_pod_now_is_better_than_what_was(room: WaitingRoom, make_halves: Any) -> None:
    measured = Identity("10.0.0.2", pod="old", uid="old", measured=("shop/p/cart",))
    room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
    peers = AskingPeers(measured, past=Ownership(OLD, 0.0, 1e9))
    assert who(room.take_ready(peers, 10.3)) == [Peer("10.0.0.2", measured)]


def test_what_has_a_name_keeps_it_beside_what_has_none(room: WaitingRoom, make_halves: Any) -> None:
    halves = [everything(make_halves({"role": Role.SERVER, "request_seq": seq})) for seq in (1, 90_000)]
    room.admit(halves[0], {1: CART}, 10.0, by_process=False)
    room.name(AskingPeers(NEW), 10.0)
    room.admit(halves[1], {1: CART}, 10.1, by_process=False)
    peers = AskingPeers(NOBODY, past=Ownership(OLD, 0.0, 1e9))
    assert [one.identity for one in who(room.take_ready(peers, 13.0))] == [NEW, OLD]


@pytest.mark.long
def test_names_are_forgotten_with_the_halves_that_had_them(room: WaitingRoom, make_halves: Any) -> None:
    for number in range(MOST + MOST // 2):
        peer = Identity("10.0.0.2", pod=f"web-{number}", uid=str(number))
        room.admit(everything(make_halves({"role": Role.SERVER})), {1: CART}, 10.0, by_process=False)
        assert who(room.take_ready(AskingPeers(peer), 11.0)) == [Peer("10.0.0.2", peer)]
    assert len(room.take_ready(FakePeers(), 12.0).peers) <= MOST + 2
