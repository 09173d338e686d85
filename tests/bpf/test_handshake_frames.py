"""Handshakes from packets, frame by frame: through BPF_PROG_TEST_RUN, and put on a wire by hand beside a capture."""

import contextlib
import time
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.kernel.packets import PacketPrograms, Place
from latencyprobe_agent.signals.table import HANDSHAKES_TC
from tests.support.waiting import wait_until
from tests.truth import frames
from tests.truth.frames import ACK, RST, Segment, client_rtts, unreachable, wire
from tests.truth.handshake_table import V4, V6, Table, outcome
from tests.truth.handshaking import S, reported
from tests.truth.netns import INTERFACE, Namespace
from tests.truth.recorder import OBJECTS
from tests.truth.workload import receive_stamps

pytestmark = pytest.mark.root

SHORTEST = 15
ALL_EXTENSIONS = (frames.HOP_BY_HOP, frames.DESTINATION, frames.ROUTING, frames.FRAGMENT, frames.AUTHENTICATION)

SHAPES = {
    "IPv4": V4,
    "IPv4 with options": replace(V4, ip_options=b"\x01" * 8),
    "IPv4 in a VLAN": replace(V4, vlan=(frames.VLAN,)),
    "IPv4 in two VLANs": replace(V4, vlan=(frames.SERVICE_VLAN, frames.VLAN)),
    "IPv6": V6,
    "IPv6 with extension headers": replace(V6, extensions=ALL_EXTENSIONS),
    "IPv6 with eight extension headers": replace(V6, extensions=(frames.HOP_BY_HOP, *[frames.DESTINATION] * 7)),
    "IPv6 in a VLAN": replace(V6, vlan=(frames.VLAN,), extensions=(frames.DESTINATION,)),
}


@pytest.mark.parametrize("syn", SHAPES.values(), ids=SHAPES)
def test_every_shape_of_a_frame_is_read_at_both_ends(table: Table, syn: Segment):
    synack = syn.answer(9000, timestamps=(1, 500))
    ack = synack.answer(1001, ACK, timestamps=(501, 1))
    began_ns = time.monotonic_ns()
    table.leave(syn)
    table.come(synack)
    client = table.one()
    table.come(syn)
    table.leave(synack)
    table.come(ack)
    server = table.one()
    took_ns = time.monotonic_ns() - began_ns
    assert (("client", "ok"), ("server", "ok")) == (outcome(client), outcome(server))
    for record in (client, server):
        assert (1000, 9000) == (record["client_isn"], record["server_isn"])
        assert 0 < record["rtt_ns"] < took_ns
        assert 4 + 2 * (syn.ip_version == 6) == record["flow"]["family"]
    assert (40000, 7000) == (client["flow"]["local_port"], client["flow"]["peer_port"])
    assert (7000, 40000) == (server["flow"]["local_port"], server["flow"]["peer_port"])
    assert (0, [0, 0]) == (table.size(), table.awaited())


def test_frames_pulled_into_one_piece_are_read_alike(table: Table):
    for i, shape in enumerate(SHAPES.values()):
        syn = replace(shape, src_port=i + 1)
        table.run("outgoing__ethernet_pull", syn.frame())
        table.run("incoming__ethernet_pull", syn.answer(9000).frame())
    assert [("client", "ok")] * len(SHAPES) == list(map(outcome, table.records()))


def test_the_second_fragment_and_a_ninth_extension_header_hide_what_they_carry(table: Table):
    table.leave(
        replace(V4, fragment_offset=5),
        replace(V6, extensions=(frames.FRAGMENT,), fragment_offset=5),
        replace(V6, extensions=(frames.HOP_BY_HOP, *[frames.DESTINATION] * 8)),
    )
    assert 0 == table.size()


PROGRAMS = ("outgoing__ethernet", "incoming__ethernet", "outgoing__bare", "incoming__bare")
PULLING = ("outgoing__ethernet_pull", "incoming__ethernet_pull")


@st.composite
def broken_frames(draw: st.DrawFn) -> bytes:
    """Frames with bytes changed, cut short, or both; or noise."""
    syn = draw(st.sampled_from(list(SHAPES.values())))
    made = [syn.frame(), syn.answer(1).frame(), syn.answer(1, RST | ACK).frame(), unreachable(syn, syn.dst)]
    frame = bytearray(draw(st.sampled_from([*made, draw(st.binary(min_size=SHORTEST, max_size=200))])))
    for at in draw(st.lists(st.integers(12, len(frame) - 1), max_size=6)):
        frame[at] = draw(st.integers(0, 255))
    return bytes(frame[: draw(st.integers(SHORTEST, len(frame)))])


@settings(max_examples=1500)
@given(frame=broken_frames(), name=st.sampled_from(PROGRAMS + PULLING))
def test_broken_frames_pass_unchanged(loaded: Table, frame: bytes, name: str):
    loaded.run(name, frame)
    loaded.records()


@pytest.mark.parametrize("syn", SHAPES.values(), ids=SHAPES)
def test_every_length_of_a_frame_passes_unchanged(loaded: Table, syn: Segment):
    for frame in (syn.frame(), unreachable(syn, syn.dst)):
        for length in range(SHORTEST, len(frame)):
            for name in PROGRAMS:
                loaded.run(name, frame[:length])
    loaded.records()


@pytest.mark.parametrize("syn", [V4, SHAPES["IPv6 with extension headers"]], ids=["IPv4", "IPv6"])
def test_frames_cut_short_cross_a_wire_unchanged(pair: tuple[Namespace, Namespace], syn: Segment):
    with contextlib.ExitStack() as stack:
        for namespace in pair:
            with namespace.inside():
                place = Place.find(INTERFACE, pod=False)
                stack.enter_context(
                    PacketPrograms.alone(OBJECTS, HANDSHAKES_TC, Filter(), places=[place], timeout_ns=S)
                )
        near, far = (stack.enter_context(wire(namespace)) for namespace in pair)
        sent = {syn.frame()[:length] for length in range(SHORTEST, len(syn.frame()))}
        for frame in sent:
            near.send(frame)
        came: set[bytes] = set()
        wait_until(lambda: came.update(far.frames()) or sent <= came, "all frames")


@pytest.mark.parametrize("syn", SHAPES.values(), ids=SHAPES)
def test_times_are_those_of_a_capture(pair: tuple[Namespace, Namespace], syn: Segment):
    """Frames by hand over a veth pair, one handshake after the other.

    What leaves is captured behind our program and what comes before it, and all of it while the test waits.
    """
    client, server = pair
    with client.inside():
        place = Place.find(INTERFACE, pod=False)
        programs = PacketPrograms.alone(OBJECTS, HANDSHAKES_TC, Filter(port=7001), places=[place], timeout_ns=60 * S)
    measured: dict[int, int] = {}
    took_ns: dict[int, int] = {}
    with programs, receive_stamps(), wire(client) as near, wire(server) as far:
        for at in range(20_000, 20_040):
            one, began_ns = replace(syn, src_port=at, dst_port=7001), time.monotonic_ns()
            near.send(one.frame())
            far.send(one.answer(9000).frame())
            (record,) = reported(programs)
            took_ns[at] = time.monotonic_ns() - began_ns
            measured[int(record["flow"]["local_port"])] = int(record["rtt_ns"])
        captured = client_rtts(near.seen(), 7001)
    assert sorted(took_ns) == sorted(measured) == sorted(captured)
    assert all(captured[at] <= rtt_ns <= took_ns[at] for at, rtt_ns in measured.items())
