"""Handshakes where they are seen: whose they are at hosts, pods, bridges and bare devices, and who else is there."""

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.kernel.libbpf import (
    CLSACT_EGRESS,
    TCX_EGRESS,
    Link,
    Object,
    Program,
    make_clsact,
    remove_clsact,
)
from latencyprobe_agent.kernel.packets import VARIANTS, PacketPrograms, Place
from latencyprobe_agent.signals.table import HANDSHAKES_TC
from tests.support.waiting import wait_until
from tests.truth import frames
from tests.truth.handshaking import (
    CLIENT,
    IS_SYN,
    RESENT_NS,
    SERVER,
    S,
    a_socket,
    at_packets,
    dial,
    fails,
    listen,
    reported,
    size,
)
from tests.truth.netns import INTERFACE, ONCE, Namespace
from tests.truth.recorder import OBJECTS

pytestmark = [pytest.mark.root, pytest.mark.hideable]


def test_at_the_hosts_end_of_a_pods_pair_the_directions_are_the_pods(ends, port):
    """The server's namespace as the host of a pod that is the client, and the other way round."""
    client, server = ends
    with at_packets(client, port, pod=True) as of_server, at_packets(server, port, pod=True) as of_client:
        with listen(server, port):
            dial(client, port).close()
        for programs, role in ((of_client, CLIENT), (of_server, SERVER)):
            (record,) = reported(programs)
            assert (role, True) == (record["flow"]["role"], record["rtt_ns"] > 0)
            ports = [int(record["flow"][name]) for name in ("local_port", "peer_port")]
            assert port == ports[role == CLIENT]


@pytest.fixture
def routed() -> Iterator[tuple[Namespace, Namespace, Namespace]]:
    """A pod, its node, and another host: lp0 in the pod; pod0 and up0 in the node, which forwards; lp0 in the host."""
    made: list[Namespace] = []
    try:
        made.extend(Namespace(f"lp-{os.getpid()}-{name}") for name in ("pod", "node", "host"))
        pod, node, host = made
        for i, (end, far) in enumerate((("pod0", pod), ("up0", host))):
            node.run("ip", "link", "add", end, "type", "veth", "peer", INTERFACE, "netns", far.name)
            node.run("ip", "addr", "add", f"10.97.{i}.1/24", "dev", end)
            node.run("ip", "link", "set", end, "up")
            far.run("ip", "addr", "add", f"10.97.{i}.2/24", "dev", INTERFACE)
            far.run("ip", "link", "set", INTERFACE, "up")
            far.run("ip", "route", "add", "default", "via", f"10.97.{i}.1")
        node.sysctl("net.ipv4.ip_forward", 1)
        yield pod, node, host
    finally:
        for namespace in made:
            namespace.delete()


@pytest.mark.parametrize("role", [CLIENT, SERVER], ids=["client", "server"])
def test_what_passes_a_pods_pair_and_the_uplink_is_reported_once_from_the_pods(routed, port, role):
    pod, node, host = routed
    dialling, answering = (pod, host) if role == CLIENT else (host, pod)
    address = "10.97.1.2" if role == CLIENT else "10.97.0.2"
    with node.inside():
        places = [Place.find("up0", pod=False), Place.find("pod0", pod=True)]
        programs = PacketPrograms.alone(
            OBJECTS, HANDSHAKES_TC, Filter(port=port), places=places, timeout_ns=130 * S, variants=["tcx"]
        )
    answering.filter("input", f"tcp dport {port} {IS_SYN} {ONCE} drop")
    with programs, listen(answering, port, address):
        for _ in range(5):
            began_ns = time.monotonic_ns()
            dial(dialling, port, address).close()
            (record,) = reported(programs)
            took_ns = time.monotonic_ns() - began_ns
            assert (role, places[1].interface.ifindex) == (record["flow"]["role"], record["ifindex"])
            assert 0 < record["rtt_max_ns"] < took_ns - RESENT_NS * (record["n_syn"] > 1)
        assert 0 == size(programs)


def test_a_bridge_port_is_a_pods(pair):
    client, _ = pair
    client.run("ip", "link", "add", "br0", "type", "bridge")
    client.run("ip", "link", "add", "port0", "type", "veth", "peer", "port1")
    try:
        client.run("ip", "link", "set", "port0", "master", "br0")
        with client.inside():
            found = [Place.find(name, pod=False) for name in ("port0", "port1", "br0", INTERFACE)]
        assert [True, False, False, False] == [place.pod for place in found]
    finally:
        client.run("ip", "link", "del", "br0")
        client.run("ip", "link", "del", "port0")


def test_a_device_without_a_header_is_read_from_its_first_byte(ends, port):
    """A tun device, whose other end is this test."""
    client, _ = ends
    with client.inside():
        tun = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
        request = struct.pack("16sH22x", b"tun0", 0x1001)  # linux/if_tun.h: IFF_TUN | IFF_NO_PI
        fcntl.ioctl(tun, 0x400454CA, request)  # TUNSETIFF
    try:
        client.run("ip", "addr", "add", "10.96.0.1/24", "dev", "tun0")
        client.run("ip", "link", "set", "tun0", "up")
        with client.inside():
            place = Place.find("tun0", pod=False)
            programs = PacketPrograms.alone(
                OBJECTS, HANDSHAKES_TC, Filter(port=port), places=[place], timeout_ns=130 * S
            )
        assert place.bare
        with programs, a_socket(client, "10.96.0.2", 0) as made:
            began_ns = time.monotonic_ns()
            with contextlib.suppress(BlockingIOError):
                made.connect(("10.96.0.2", port))
            syn = read_syn(tun, port)
            os.write(tun, syn.answer(9000).packet())
            wait_until(lambda: select.select([], [made], [], 0)[1], "the connection opens")
            (record,) = programs.drain()
            took_ns = time.monotonic_ns() - began_ns
        assert (syn.seq, 9000, CLIENT) == (record["client_isn"], record["server_isn"], record["flow"]["role"])
        assert 0 < record["rtt_max_ns"] < took_ns
    finally:
        os.close(tun)


def read_syn(tun: int, port: int) -> frames.Segment:
    """The SYN to a port, as soon as it comes out of the device."""

    def syn() -> frames.Segment | None:
        packet = os.read(tun, 2048)
        if packet[0] == 0x45 and packet[9] == 6:
            src, dst = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
            src_port, dst_port, seq = struct.unpack_from("!HHI", packet, 20)
            if dst_port == port:
                return frames.Segment(src, src_port, dst, dst_port, seq)
        return None

    return wait_until(syn, "a SYN", unready=BlockingIOError)


@pytest.fixture(scope="module")
def drop(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Program]:
    """Somebody else's program, which drops all."""
    made = tmp_path_factory.mktemp("bpf") / "drop.o"
    flags = ["-O2", "-g", "-target", "bpf", *(f"-I{path}" for path in Path("/usr/include").glob("*-linux-gnu"))]
    source = Path(__file__).with_name("drop.bpf.c")
    subprocess.run(["clang-19", *flags, "-c", source, "-o", made], check=True)
    opened = Object(made)
    opened.load()
    yield opened.programs()[0]
    opened.close()


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_program_behind_ours_has_its_say_and_stays(ends, port, variant, drop):
    """It was there first, drops all that leaves the client, and is what the packet meets after us."""
    client, server = ends
    with listen(server, port):
        dial(client, port).close()  # or no SYN would come as far: who has the address is asked first, and dropped
    with client.inside():
        place = Place.find(INTERFACE, pod=False).interface.ifindex
        if variant == "tcx":
            other: Link = drop.attach_tcx(place, TCX_EGRESS)
        else:
            make_clsact(place)
            other = drop.attach_clsact(place, CLSACT_EGRESS)
    try:
        with at_packets(client, port, variant) as near, at_packets(server, port, variant) as far:
            fails(client, port, timeout_s=0.1)
            assert [1, 0] == [size(programs) for programs in (near, far)]
        fails(client, port, timeout_s=0.1)
        assert (variant == "clsact") == ("clsact" in client.run("tc", "qdisc", "show", "dev", INTERFACE))
    finally:
        with client.inside():
            other.close()
            remove_clsact(place)


@pytest.mark.parametrize("variant", VARIANTS)
def test_two_of_us_on_one_interface_both_see_all(ends, port, variant):
    client, server = ends
    with at_packets(client, port, variant) as one, at_packets(client, port, variant) as other, listen(server, port):
        for _ in range(5):
            dial(client, port).close()
        assert [5, 5] == [len(programs.drain()) for programs in (one, other)]
    assert "clsact" not in client.run("tc", "qdisc", "show", "dev", INTERFACE), "what was made for it is gone"


# The tool, ended by a signal when it has made what clsact programs are attached to.
ENDED_WHILE_ATTACHING = """
import os, signal
from latencyprobe.cli import main
from latencyprobe_agent.kernel import packets

make_clsact = packets.make_clsact

def ended(ifindex):
    made = make_clsact(ifindex)
    os.kill(os.getpid(), signal.SIGTERM)
    return made

packets.make_clsact = ended
packets.PacketPrograms.alone.__func__.__kwdefaults__["variants"] = ["clsact"]
main()
"""


def test_what_clsact_attaches_does_not_outlive_a_tool_that_a_signal_ends(ends):
    client, _ = ends
    words = ("handshakes", "--method", "tc", "--interface", INTERFACE)
    client.run(sys.executable, "-c", ENDED_WHILE_ATTACHING, *words)
    assert "clsact" not in client.run("tc", "qdisc", "show", "dev", INTERFACE)
