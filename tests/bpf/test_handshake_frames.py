"""Handshakes from packets, frame by frame: through BPF_PROG_TEST_RUN, and put on a wire by hand beside a capture."""

import contextlib
import errno
import time
from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.maps import possible_cpus
from latencyprobe_agent.kernel.packets import PacketPrograms, Place
from latencyprobe_agent.kernel.ring import Ring
from latencyprobe_agent.signals.table import HANDSHAKES_TC
from latencyprobe_agent.vocabulary.records import (
    CONFIG,
    HANDSHAKE,
    ConnectOutcome,
    HandshakeFlags,
    HandshakeTally,
    Lost,
    Role,
)
from tests.support.waiting import wait_until
from tests.truth import frames
from tests.truth.frames import ACK, FIN, RST, SYN, Segment, client_rtts, unreachable, wire
from tests.truth.handshaking import reported
from tests.truth.netns import INTERFACE, Namespace
from tests.truth.recorder import OBJECTS
from tests.truth.workload import receive_stamps

pytestmark = pytest.mark.root

NEXT = -1  # TCX_NEXT, TC_ACT_UNSPEC
SHORTEST = 15
S = 1_000_000_000
ALL_EXTENSIONS = (frames.HOP_BY_HOP, frames.DESTINATION, frames.ROUTING, frames.FRAGMENT, frames.AUTHENTICATION)

V4 = Segment("10.99.0.1", 40000, "10.99.0.2", 7000, seq=1000, timestamps=(500, 0))
V6 = replace(V4, src="fd99::1", dst="fd99::2")
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


class Table:
    """The programs, attached nowhere: frames are given to them one by one."""

    def __init__(self) -> None:
        self.object = Object(OBJECTS / "handshake_tc.bpf.o")
        self.programs = {program.name: program for program in self.object.programs()}
        self.object.load()
        ring = self.object.map("handshakes")
        self._ring = Ring.open(ring.fd, ring.max_entries, HANDSHAKE)
        self._sweeper = self.programs["flush"].attach(self.object.map("pending"))

    def clear(self, timeout_ns: int) -> None:
        """Know nothing, and have counted nothing."""
        config = np.zeros((), CONFIG)
        config["answer_timeout_ns"], config["wakeup_bytes"] = timeout_ns, 1 << 20
        self.object.map("config").update(bytes(4), config.tobytes())
        for name in ("pending", "ended"):
            for key in list(self.object.map(name).keys()):
                self.object.map(name).delete(key)
        for name in ("awaited", "tally", "lost"):
            counters = self.object.map(name)
            for i in range(counters.max_entries):
                counters.update(np.uint32(i).tobytes(), bytes(counters.value_size))
        self.records()

    def leave(self, *segments: Segment) -> None:
        """Let segments go out."""
        for segment in segments:
            self.run("outgoing__ethernet", segment.frame())

    def come(self, *segments: Segment) -> None:
        """Let segments come in."""
        for segment in segments:
            self.run("incoming__ethernet", segment.frame())

    def run(self, name: str, frame: bytes) -> None:
        """Run a program; whatever the frame is, it passes unchanged. The kernel may refuse a frame with half an IP
        header; those go over a wire, below."""
        try:
            passed = self.programs[name].run(frame)
        except OSError as e:
            if e.errno != errno.EINVAL or len(frame) >= 14 + 40:
                raise
            return
        assert (NEXT, frame) == passed

    def records(self) -> np.ndarray:
        """What was reported since the last call."""
        return self._ring.drain()

    def one(self) -> np.void:
        """The one handshake that was reported since the last call."""
        records = self.records()
        assert 1 == len(records)
        return records[0]

    def sweep(self) -> None:
        """Look for what nobody answers."""
        self._sweeper.read()

    def size(self) -> int:
        """How many handshakes go on."""
        size = len(list(self.object.map("pending").keys()))
        assert (size > 0) == (self.awaited()[0] > 0)
        return size

    def awaited(self) -> list[int]:
        """How many of them a packet may end; how many a plain ACK may."""
        found = np.zeros(2, np.uint64)
        self.object.map("awaited").lookup(bytes(4), found.view(np.uint8).data)
        return found.tolist()

    def counted(self, map_name: str, reason: int) -> int:
        """A counter of `tally` or `lost`."""
        per_cpu = np.zeros(possible_cpus(), np.uint64)
        self.object.map(map_name).lookup(np.uint32(reason).tobytes(), per_cpu.view(np.uint8).data)
        return int(per_cpu.sum())

    def close(self) -> None:
        """Free everything."""
        self._sweeper.close()
        self._ring.close()
        self.object.close()


@pytest.fixture(scope="module")
def loaded() -> Iterator[Table]:
    opened = Table()
    yield opened
    opened.close()


@pytest.fixture
def table(loaded: Table) -> Table:
    """An empty table; sweeping it takes out whatever is there."""
    loaded.clear(timeout_ns=0)
    return loaded


def outcome(record: np.void) -> tuple[str, str]:
    return Role(record["flow"]["role"]).name.lower(), ConnectOutcome(record["outcome"]).name.lower()


def ambiguous(record: np.void) -> bool:
    assert (record["rtt_ns"] == 0) >= (record["flags"] & HandshakeFlags.AMBIGUOUS != 0)
    return bool(record["flags"] & HandshakeFlags.AMBIGUOUS)


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


def test_a_resent_syn_is_matched_by_its_timestamp(table: Table):
    table.leave(V4, replace(V4, timestamps=(1500, 0)))
    table.come(V4.answer(9000, timestamps=(1, 1500)))
    record = table.one()
    assert (False, 2) == (ambiguous(record), record["n_syn"])
    assert record["flags"] & HandshakeFlags.TIMESTAMPS


@pytest.mark.parametrize("echo", [500, 77, None], ids=["of an earlier SYN", "of no SYN", "none"])
def test_an_answer_that_does_not_name_the_last_syn_is_ambiguous(table: Table, echo: int | None):
    """The echo of an earlier one may be a resent SYN-ACK, whose first sending was lost."""
    table.leave(V4, replace(V4, timestamps=(1500, 0)))
    table.come(V4.answer(9000, timestamps=(1, echo) if echo else None))
    record = table.one()
    assert ambiguous(record)
    assert 0 < record["rtt_min_ns"] < record["rtt_max_ns"] < S


def test_syns_with_equal_timestamps_are_ambiguous(table: Table):
    table.leave(V4, V4)
    table.come(V4.answer(9000, timestamps=(1, 500)))
    assert ambiguous(table.one())


def test_six_syns_keep_the_first_time_and_the_last_stamps(table: Table):
    for i in range(6):
        table.leave(replace(V4, timestamps=(500 + i, 0)))
    table.come(V4.answer(9000, timestamps=(1, 505)))
    record = table.one()
    assert (False, 6) == (ambiguous(record), record["n_syn"])


def test_a_server_with_resent_synacks_follows_the_same_rule(table: Table):
    synack = V4.answer(9000, timestamps=(70, 500))
    for echo, expected in ((71, False), (70, True)):
        syn = replace(V4, src_port=V4.src_port + echo)
        first = replace(synack, dst_port=syn.src_port)
        table.come(syn)
        table.leave(first, replace(first, timestamps=(71, 500)))
        table.come(first.answer(1001, ACK, timestamps=(501, echo)))
        record = table.one()
        assert (expected, 1) == (ambiguous(record), record["synack_retransmits"])


def test_an_ack_with_data_bounds_the_servers_rtt(table: Table):
    synack = V4.answer(9000)
    table.come(V4)
    table.leave(synack)
    table.come(replace(synack.answer(1001, ACK), payload=b"GET"))
    record = table.one()
    assert ambiguous(record)
    assert (0, True) == (record["rtt_min_ns"], record["rtt_max_ns"] > 0)


def test_a_repeated_synack_is_counted_once_reported(table: Table):
    table.leave(V4)
    table.come(V4.answer(9000), V4.answer(9000))
    table.one()
    assert 1 == table.counted("tally", HandshakeTally.SYNACK_RETRANSMITS)


def test_a_synack_without_syn_is_counted_and_kept_nowhere(table: Table):
    table.come(V4.answer(9000))
    table.leave(V4.answer(9000))
    assert (0, 0) == (len(table.records()), table.size())
    assert 2 == table.counted("tally", HandshakeTally.SYNACK_UNKNOWN)


def test_an_old_answer_does_not_match_a_reused_port(table: Table):
    table.leave(V4, replace(V4, seq=5000))
    table.come(V4.answer(9000))
    assert (0, 1) == (len(table.records()), table.size())
    assert 1 == table.counted("tally", HandshakeTally.REPLACED)
    assert 1 == table.counted("tally", HandshakeTally.SYNACK_MISMATCHED)
    table.come(replace(V4, seq=5000).answer(9500))
    record = table.one()
    assert (5000, 1, False) == (record["client_isn"], record["n_syn"], ambiguous(record))


def test_a_syn_that_the_network_kept_starts_nothing(table: Table):
    table.leave(V4)
    table.come(V4.answer(9000))
    table.leave(V4)
    assert (1, 0) == (len(table.records()), table.size())


def test_fast_open_matches_with_and_without_its_data(table: Table):
    syn = replace(V4, payload=b"x" * 100)
    for port, ack in ((1, 1101), (2, 1001)):
        one = replace(syn, src_port=port)
        table.leave(one)
        table.come(replace(one.answer(9000), ack=ack))
        assert ("client", "ok") == outcome(table.one())


def test_a_refusal_is_timed_for_the_client_only(table: Table):
    refusal = V4.answer(0, RST | ACK)
    table.leave(V4)
    table.come(replace(refusal, ack=5), refusal)
    client = table.one()
    table.come(V4)
    table.leave(refusal)
    server = table.one()
    assert (("client", "refused"), ("server", "refused")) == (outcome(client), outcome(server))
    assert (True, 0) == (client["rtt_ns"] > 0, server["rtt_ns"])


@pytest.mark.parametrize("syn", [V4, V6], ids=["IPv4", "IPv6"])
def test_an_icmp_error_that_quotes_the_syn_is_reported_once(table: Table, syn: Segment):
    router = "10.99.0.9" if syn is V4 else "fd99::9"
    table.leave(syn)
    table.run("incoming__ethernet", unreachable(replace(syn, seq=4), router))
    assert 0 == len(table.records()), "of another SYN"
    table.run("incoming__ethernet", unreachable(syn, router))
    assert ("client", "unreachable") == outcome(table.one())
    table.leave(syn)
    table.run("incoming__ethernet", unreachable(syn, router))
    assert (0, 0) == (len(table.records()), table.size())


def test_a_client_that_goes_away_before_it_acknowledged_is_aborted(table: Table):
    synack = V4.answer(9000)
    table.come(V4)
    table.leave(synack)
    table.come(synack.answer(1001, RST))
    assert ("server", "aborted") == outcome(table.one())


def test_syns_that_cross_are_one_simultaneous_open(table: Table):
    other = replace(V4.answer(8000, SYN), ack=0)
    table.leave(V4)
    table.come(other)
    table.leave(replace(V4, flags=SYN | ACK, ack=8001))
    assert 0 == len(table.records())
    table.come(V4.answer(8000))
    record = table.one()
    assert ("client", "simultaneous") == outcome(record)
    assert (1000, 8000, True) == (record["client_isn"], record["server_isn"], record["rtt_ns"] > 0)
    assert (0, [0, 0]) == (table.size(), table.awaited())


def test_a_simultaneous_open_may_end_by_a_plain_ack(table: Table):
    table.leave(V4)
    table.come(replace(V4.answer(8000, SYN), ack=0), V4.answer(8001, ACK))
    assert ("client", "simultaneous") == outcome(table.one())


def test_what_nobody_answers_times_out_and_leaves(table: Table):
    table.leave(V4)
    table.come(replace(V4, src_port=1), replace(V4, src_port=2))
    table.leave(replace(V4, src_port=2).answer(9000))
    assert 3 == table.size()
    table.sweep()
    assert {("client", "timeout"), ("server", "timeout")} == set(map(outcome, table.records()))
    assert (0, [0, 0]) == (table.size(), table.awaited())


def test_nothing_times_out_before_its_time(table: Table):
    table.clear(timeout_ns=60 * S)
    table.leave(V4)
    table.sweep()
    assert (0, 1) == (len(table.records()), table.size())


def test_a_full_table_refuses_and_counts(table: Table):
    room = table.object.map("pending").max_entries
    program, base = table.programs["outgoing__ethernet"], bytearray(V4.frame())
    for i in range(room + 10):
        base[26:30] = (0x0A000000 | i).to_bytes(4)  # the source address; no checksum is looked at
        program.run(bytes(base))
    assert (room, 10) == (table.size(), table.counted("lost", Lost.STATE))


def test_packets_of_open_connections_are_looked_up_only_while_a_server_waits(table: Table):
    table.come(replace(V4, flags=ACK), replace(V4, flags=RST), replace(V4, flags=FIN | ACK))
    assert (0, [0, 0]) == (len(table.records()), table.awaited())
    table.come(V4)
    assert [1, 1] == table.awaited()


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
