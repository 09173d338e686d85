"""Handshakes of real sockets, by both methods, beside a capture: times, losses, outcomes, roles, neighbours."""

import contextlib
import fcntl
import os
import select
import socket
import struct
import subprocess
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import frames
import numpy as np
import pytest
import workload
from frames import client_rtts, server_rtts, wire
from netns import INTERFACE, Namespace, joined

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as PlanRole
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
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
from latencyprobe_agent.kernel.records import (
    HANDSHAKE,
    ConnectOutcome,
    HandshakeFlags,
    HandshakeMethod,
    Role,
)
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.table import HANDSHAKES, HANDSHAKES_TC

pytestmark = pytest.mark.root

OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
S, MS, US = 1_000_000_000, 1_000_000, 1_000
CLIENT, SERVER = Role.CLIENT, Role.SERVER
KERNEL, TC = HandshakeMethod.KERNEL, HandshakeMethod.TC
IPV6_DSTOPTS = 59  # linux/in6.h
ONCE = "numgen inc mod 1000000 == 0"  # the first packet that comes to this part of a rule
IS_SYN, IS_SYNACK, IS_ACK = (f"tcp flags & (fin | syn | rst | ack) == {flags}" for flags in ("syn", "syn | ack", "ack"))


class Watch:
    """Both methods at work, the packets' at each end, and what they report of one port."""

    def __init__(self, port: int, kernel: EvidencePrograms, tc: Sequence[PacketPrograms]) -> None:
        self.kernel = kernel
        self.tc = tc
        self._port = port
        self._batches = [np.empty(0, HANDSHAKE)]

    def records(self, role: Role | None = None, method: HandshakeMethod | None = None) -> np.ndarray:
        """What was reported so far."""
        for programs in (self.kernel, *self.tc):
            while len(batch := programs.drain()):
                flow = batch["flow"]
                self._batches.append(batch[(flow["local_port"] == self._port) | (flow["peer_port"] == self._port)])
        records = np.concatenate(self._batches)
        if role is not None:
            records = records[records["flow"]["role"] == role]
        return records if method is None else records[records["method"] == method]

    def one(self, role: Role, method: HandshakeMethod) -> np.void:
        """The one handshake that this end and method reports, as soon as it does."""
        workload.wait_until(lambda: len(self.records(role, method)), f"a handshake: {role!r}, {method!r}")
        records = self.records(role, method)
        assert 1 == len(records)
        return records[0]


@pytest.fixture(scope="module")
def pair() -> Iterator[tuple[Namespace, Namespace]]:
    with joined() as both:
        yield both


@pytest.fixture
def ends(pair: tuple[Namespace, Namespace]) -> Iterator[tuple[Namespace, Namespace]]:
    """The namespaces of client and server, which lose nothing yet."""
    yield pair
    for namespace in pair:
        namespace.unfilter()
        namespace.sysctl("net.ipv4.tcp_timestamps", 1)
        namespace.sysctl("net.ipv4.tcp_syncookies", 1)
        namespace.sysctl("net.ipv4.tcp_syn_retries", 6)
        namespace.sysctl("net.ipv4.tcp_fastopen", 1)


@pytest.fixture
def port() -> int:
    return workload.free_port()


@contextlib.contextmanager
def at_packets(
    namespace: Namespace, port: int = 0, *variants: str, pod: bool = False, timeout_ns: int = 130 * S
) -> Iterator[PacketPrograms]:
    """The tc method at a namespace's interface, by these variants and no other; none named: what the kernel has."""
    with namespace.inside():
        programs = PacketPrograms.alone(
            OBJECTS,
            HANDSHAKES_TC,
            Filter(port=port),
            places=[Place.find(INTERFACE, pod=pod)],
            timeout_ns=timeout_ns,
            ring_bytes=1 << 25,
            variants=variants or VARIANTS,
        )
    try:
        yield programs
    finally:
        with namespace.inside():
            programs.close()


@pytest.fixture(scope="module")
def attached(pair: tuple[Namespace, Namespace]) -> Iterator[tuple[EvidencePrograms, list[PacketPrograms]]]:
    """The programs of all ports: to load them takes a second."""
    with contextlib.ExitStack() as stack:
        kernel = EvidencePrograms.alone(OBJECTS, HANDSHAKES, Filter(), ring_bytes=1 << 26)
        yield stack.enter_context(kernel), [stack.enter_context(at_packets(namespace)) for namespace in pair]


@pytest.fixture
def watch(attached: tuple[EvidencePrograms, list[PacketPrograms]], ends: object, port: int) -> Watch:
    one = Watch(port, *attached)
    one.records()
    return one


def listen(namespace: Namespace, port: int, host: str = "10.99.0.2", backlog: int = 100) -> socket.socket:
    with namespace.inside():
        return socket.create_server(
            (host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET, backlog=backlog
        )


def a_socket(namespace: Namespace, host: str, timeout_s: float | None = 10) -> socket.socket:
    with namespace.inside():
        made = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    made.settimeout(timeout_s)
    return made


def dial(namespace: Namespace, port: int, host: str = "10.99.0.2") -> socket.socket:
    made = a_socket(namespace, host)
    made.connect((host, port))
    return made


def fails(namespace: Namespace, port: int, timeout_s: float | None = None, host: str = "10.99.0.2") -> None:
    """Dial what cannot be reached."""
    with a_socket(namespace, host, timeout_s) as made, pytest.raises(OSError, match=r"Errno|timed out"):
        made.connect((host, port))


def ambiguous(record: np.void) -> bool:
    return bool(record["flags"] & HandshakeFlags.AMBIGUOUS)


@pytest.mark.parametrize(
    ("host", "option"),
    [
        ("10.99.0.2", None),
        ("fd99::2", None),
        ("::ffff:10.99.0.2", None),
        ("10.99.0.2", (socket.IPPROTO_IP, socket.IP_OPTIONS, b"\x01" * 8)),
        ("fd99::2", (socket.IPPROTO_IPV6, IPV6_DSTOPTS, b"\x00\x00\x01\x04" + bytes(4))),
    ],
    ids=["IPv4", "IPv6", "mapped", "IP options", "extension header"],
)
def test_both_methods_agree_with_a_capture_at_both_ends(ends, watch, port, host, option):
    count, listening = 60, host.removeprefix("::ffff:")
    client, server = ends
    with workload.receive_stamps(), wire(client) as near, wire(server) as far, listen(server, port, listening) as at:
        if option:
            at.setsockopt(*option)
        for _ in range(count):
            with a_socket(client, host) as made:
                if option:
                    made.setsockopt(*option)
                made.connect((host, port))
                at.accept()[0].close()
        workload.wait_until(lambda: len(watch.records()) == 4 * count, "each handshake, four times")
        truth = {CLIENT: client_rtts(near.seen(), port), SERVER: server_rtts(far.seen(), port)}
    for role, of_port in truth.items():
        for method, bar_ns in ((TC, 50 * US), (KERNEL, 200 * US)):
            records = watch.records(role, method)
            flow = records["flow"]
            assert {4 if "." in host else 6} == set(flow["family"])
            ports = flow["local_port" if role == CLIENT else "peer_port"]
            error = records["rtt_ns"].astype(np.int64) - [of_port[int(at)] for at in ports]
            print(f"{role.name} {method.name}: {np.median(np.abs(error)) / US:.1f} us from the capture in the median")
            assert np.median(np.abs(error)) <= bar_ns
    isns = {
        (r, m): dict(watch.records(r, m)[["client_isn", "server_isn"]].tolist()) for r in truth for m in (KERNEL, TC)
    }
    assert count == len(isns[CLIENT, KERNEL])
    assert all(isns[CLIENT, KERNEL] == others for others in isns.values())
    cookies = [set(watch.records(role, method)["flow"]["sock_cookie"]) for role in truth for method in (KERNEL, TC)]
    assert (cookies[0], cookies[2]) == (cookies[1], cookies[3]), "packets of our own sockets name them"


@pytest.mark.parametrize("timestamps", [1, 0], ids=["timestamps", "no timestamps"])
def test_a_lost_syn_never_counts_as_round_trip(ends, watch, port, timestamps):
    client, server = ends
    client.sysctl("net.ipv4.tcp_timestamps", timestamps)
    server.filter("input", f"tcp dport {port} {IS_SYN} {ONCE} drop")
    with workload.receive_stamps(), wire(client) as near, listen(server, port):
        dial(client, port).close()
        for method in (KERNEL, TC):
            record = watch.one(CLIENT, method)
            assert (2, not timestamps) == (record["n_syn"], ambiguous(record))
            assert bool(timestamps) == bool(record["flags"] & HandshakeFlags.TIMESTAMPS)
        (truth,) = client_rtts(near.seen(), port).values()
        assert watch.one(CLIENT, KERNEL)["connect_ns"] > 900 * MS
        for record in watch.records(CLIENT):
            assert record["rtt_min_ns"] < truth + MS
            assert record["rtt_max_ns"] > truth - MS
            assert record["rtt_ns"] < 500 * MS, "without the wait for the second SYN"


@pytest.mark.parametrize("timestamps", [1, 0], ids=["timestamps", "no timestamps"])
def test_a_lost_synack_never_counts_as_round_trip(ends, watch, port, timestamps):
    """The second SYN-ACK echoes the first SYN's timestamp: by that alone the RTT would be a second."""
    client, server = ends
    client.sysctl("net.ipv4.tcp_timestamps", timestamps)
    server.filter("output", f"tcp sport {port} {IS_SYNACK} {ONCE} drop")
    with listen(server, port):
        dial(client, port).close()
        for method in (KERNEL, TC):
            record = watch.one(CLIENT, method)
            assert (2, True, 0) == (record["n_syn"], ambiguous(record), record["rtt_ns"])
            assert record["rtt_min_ns"] < 500 * MS < record["rtt_max_ns"]
        kernel, tc = watch.one(SERVER, KERNEL), watch.one(SERVER, TC)
    assert kernel["synack_retransmits"] > tc["synack_retransmits"], "the lost one did not reach the interface"
    assert max(kernel["rtt_ns"], tc["rtt_ns"]) < 500 * MS


def test_a_lost_ack_never_counts_as_the_servers_round_trip(ends, watch, port):
    client, server = ends
    server.filter("input", f"tcp dport {port} {IS_ACK} {ONCE} drop")
    with listen(server, port), dial(client, port):
        kernel = watch.one(SERVER, KERNEL)
    assert (True, 0, True) == (ambiguous(kernel), kernel["rtt_ns"], kernel["rtt_max_ns"] > 500 * MS)
    tc = watch.one(SERVER, TC)
    assert (False, True) == (ambiguous(tc), tc["rtt_ns"] < 500 * MS), "the lost one did reach the interface"


def test_a_syn_cookie_leaves_the_server_its_packets_only(ends, watch, port):
    client, server = ends
    server.sysctl("net.ipv4.tcp_syncookies", 2)
    with listen(server, port):
        dial(client, port).close()
        kernel = watch.one(SERVER, KERNEL)
        tc = watch.one(SERVER, TC)
    assert (True, 0) == (ambiguous(kernel), kernel["rtt_ns"])
    assert (False, True) == (ambiguous(tc), 0 < tc["rtt_ns"] < 500 * MS)


def test_a_deferred_accept_waits_for_data_and_is_no_round_trip(ends, watch, port):
    client, server = ends
    with listen(server, port) as at:
        at.setsockopt(socket.IPPROTO_TCP, socket.TCP_DEFER_ACCEPT, 5)
        with dial(client, port) as made:
            time.sleep(0.2)  # what the application takes to think of its request
            made.sendall(b"request")
            kernel = watch.one(SERVER, KERNEL)
        assert (True, 0, True) == (ambiguous(kernel), kernel["rtt_ns"], kernel["rtt_max_ns"] > 150 * MS)
        assert watch.one(SERVER, TC)["rtt_ns"] < 150 * MS


def test_fast_open_is_matched_with_its_data(ends, watch, port):
    client, server = ends
    for namespace in ends:
        namespace.sysctl("net.ipv4.tcp_fastopen", 0x207 | 0x400)  # both sides, without cookies
    with listen(server, port) as at:
        at.setsockopt(socket.IPPROTO_TCP, socket.TCP_FASTOPEN, 10)
        with a_socket(client, "10.99.0.2") as made:
            made.sendto(b"request", socket.MSG_FASTOPEN, ("10.99.0.2", port))
            with at.accept()[0] as accepted:
                assert b"request" == accepted.recv(100)
                records = [watch.one(role, method) for role in (CLIENT, SERVER) for method in (KERNEL, TC)]
    assert 1 == len({(r["client_isn"], r["server_isn"]) for r in records})
    assert all(0 < r["rtt_ns"] < S for r in records if r["flow"]["role"] == CLIENT)


def outcome(record: np.void) -> str:
    return ConnectOutcome(record["outcome"]).name.lower()


def test_a_closed_port_refuses(ends, watch, port):
    fails(ends[0], port)
    kernel, tc = watch.one(CLIENT, KERNEL), watch.one(CLIENT, TC)
    assert ("refused", "refused", "refused") == (outcome(kernel), outcome(tc), outcome(watch.one(SERVER, TC)))
    assert (True, True) == (kernel["connect_ns"] > 0, tc["rtt_ns"] > 0)
    assert kernel["client_isn"] == tc["client_isn"]


@pytest.mark.parametrize("timeout_s", [None, 5], ids=["blocking", "non-blocking"])
@pytest.mark.parametrize("host", ["10.99.0.2", "fd99::2"])
def test_an_icmp_error_is_unreachable(ends, watch, port, host, timeout_s):
    """One that comes while connect() holds the socket is told and taken off it before the socket is closed."""
    ends[1].filter("input", f"tcp dport {port} reject with icmpx type host-unreachable")
    fails(ends[0], port, timeout_s, host)
    records = [watch.one(CLIENT, method) for method in (KERNEL, TC)]
    assert ["unreachable"] * 2 == [outcome(record) for record in records]
    assert {4 if "." in host else 6} == {int(record["flow"]["family"]) for record in records}


def test_an_address_that_nobody_has_is_unreachable_for_the_kernel(ends, watch, port):
    """The ICMP error is the host's own: it does not pass the interface."""
    ends[0].sysctl(f"net.ipv4.neigh.{INTERFACE}.retrans_time_ms", 50)
    fails(ends[0], port, host="10.99.0.77")
    assert "unreachable" == outcome(watch.one(CLIENT, KERNEL))


def test_silence_times_out(ends, watch, port):
    client, server = ends
    server.filter("input", f"tcp dport {port} drop")
    with at_packets(client, port, timeout_ns=1) as near, at_packets(server, port, timeout_ns=1) as far:
        with a_socket(client, "10.99.0.2", None) as made:
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, 500)
            with pytest.raises(TimeoutError):
                made.connect(("10.99.0.2", port))
        kernel = watch.one(CLIENT, KERNEL)
        for programs in (near, far):
            programs.flush()
        tc = [programs.drain()[0] for programs in (near, far)]
        assert ["timeout"] * 3 == [outcome(record) for record in (kernel, *tc)]
        assert [CLIENT, SERVER] == [record["flow"]["role"] for record in tc]
        assert kernel["n_syn"] == tc[0]["n_syn"] >= 1
        assert kernel["connect_ns"] > 500 * MS
        assert [0, 0] == [size(programs) for programs in (near, far)]


def test_an_application_that_gives_up_aborts(ends, watch, port):
    ends[1].filter("input", f"tcp dport {port} drop")
    fails(ends[0], port, timeout_s=0.1)
    assert "aborted" == outcome(watch.one(CLIENT, KERNEL))


def test_two_ends_that_dial_each_other_open_simultaneously(ends, watch, port):
    addresses = ("10.99.0.1", "10.99.0.2")
    with contextlib.ExitStack() as stack:
        made = [stack.enter_context(a_socket(end, at, 0)) for end, at in zip(ends, addresses, strict=True)]
        for namespace in ends:  # both have sent one before either comes
            namespace.filter("input", f"tcp dport {port} {IS_SYN} {ONCE} drop")
        for one, address in zip(made, addresses, strict=True):
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            one.bind((address, port))
        for one, address in zip(made, reversed(addresses), strict=True):
            with contextlib.suppress(BlockingIOError):
                one.connect((address, port))
        workload.wait_until(lambda: len(watch.records()) >= 4, "both ends, by both methods")
    records = watch.records()
    assert {CLIENT} == set(records["flow"]["role"])
    by_end = [sorted(map(outcome, records[records["flow"]["netns_ino"] == inode(end)])) for end in ends]
    # an end whose own second SYN is later sees the other's first; that one may then see nothing but an answer
    assert ["simultaneous"] * 2 in by_end
    assert [2, 2] == [len(outcomes) for outcomes in by_end]
    assert all(outcomes in (["ok"] * 2, ["simultaneous"] * 2) for outcomes in by_end), "both methods agree"
    assert (records["rtt_ns"] < 500 * MS).all()


def test_no_port_left_is_no_timeout(ends, watch, port):
    """No SYN is sent, and nobody is to blame but the host."""
    client, server = ends
    client.sysctl("net.ipv4.ip_local_port_range", "40000 40001")
    try:
        with listen(server, port), dial(client, port), dial(client, port):
            fails(client, port)
            workload.wait_until(lambda: len(watch.records(CLIENT, KERNEL)) == 3, "three attempts")
            last = watch.records(CLIENT, KERNEL)[-1]
            assert ("other", 0, 0) == (outcome(last), last["n_syn"], last["flow"]["local_port"])
    finally:
        client.sysctl("net.ipv4.ip_local_port_range", "32768 60999")


def size(programs: PacketPrograms) -> int:
    return len(list(programs.map("going_on").keys()))


def test_100000_short_connections_are_each_reported_once(ends, attached, port):
    client, server = ends
    count, sizes, done = 100_000, [0], threading.Event()
    program = workload.build("short")
    with at_packets(client, port) as near, at_packets(server, port) as far:

        def look() -> None:
            while not done.wait(0.2):
                sizes.extend(map(size, (near, far)))

        watch = Watch(port, attached[0], [near, far])
        looking = threading.Thread(target=look)
        looking.start()
        with listen(server, port) as at:
            serving = subprocess.Popen([program, "serve", str(count)], stdin=at)
        try:
            client.run(str(program), "call", "10.99.0.2", str(port), str(count))
            assert 0 == serving.wait(10)
        finally:
            serving.kill()
            serving.wait()
            done.set()
            looking.join()
        # a tracing program that would interrupt itself is skipped; a burst may find no memory to follow an attempt by
        before = watch.kernel.lost()
        skipped, partial = before["recursion"], before["storage"]
        workload.wait_until(lambda: len(watch.records()) >= 4 * count - skipped, "four records of each")
        assert skipped + partial == sum(before.values())
        assert not any(n for programs in (near, far) for n in programs.lost().values())
        print(f"at most {max(sizes)} at a time; {skipped} runs skipped, {partial} attempts seen in part")
        assert max(sizes) < 100
        assert [0, 0] == [size(programs) for programs in (near, far)]
        found = {(role, method): watch.records(role, method) for role in (CLIENT, SERVER) for method in (KERNEL, TC)}
    for (role, method), records in found.items():
        assert {ConnectOutcome.OK} == set(records["outcome"])
        assert len(records) == len(np.unique(records["flow"]["sock_cookie"]))
        assert count - (skipped if method == KERNEL else 0) <= len(records) <= count
        in_part = int((records["flags"] & HandshakeFlags.PARTIAL != 0).sum())
        assert in_part <= (skipped + partial if (role, method) == (CLIENT, KERNEL) else 0)


def inode(namespace: Namespace) -> int:
    return Path("/run/netns", namespace.name).stat().st_ino


def test_a_server_host_reports_no_rtt_of_a_client(ends, watch, port):
    client, server = ends
    with listen(server, port):
        for _ in range(20):
            dial(client, port).close()
    workload.wait_until(lambda: len(watch.records()) == 80, "all handshakes")
    assert {inode(client)} == set(watch.records(CLIENT)["flow"]["netns_ino"])
    assert {inode(server)} == set(watch.records(SERVER)["flow"]["netns_ino"])


def test_at_the_hosts_end_of_a_pods_pair_the_directions_are_the_pods(ends, port):
    """The server's namespace as the host of a pod that is the client, and the other way round."""
    client, server = ends
    with at_packets(client, port, pod=True) as of_server, at_packets(server, port, pod=True) as of_client:
        with listen(server, port):
            dial(client, port).close()
        for programs, role in ((of_client, CLIENT), (of_server, SERVER)):
            (record,) = programs.drain()
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
            dial(dialling, port, address).close()
        records = programs.drain()
        assert 0 == size(programs)
    assert [role] * 5 == records["flow"]["role"].tolist()
    assert {places[1].interface.ifindex} == set(records["ifindex"])
    assert (records["rtt_ns"] < 500 * MS).all()
    assert 0 < records["rtt_ns"].min()


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
            with contextlib.suppress(BlockingIOError):
                made.connect(("10.96.0.2", port))
            syn = read_syn(tun, port)
            os.write(tun, syn.answer(9000).packet())
            workload.wait_until(lambda: select.select([], [made], [], 0)[1], "the connection opens")
            (record,) = programs.drain()
        assert (syn.seq, 9000, CLIENT) == (record["client_isn"], record["server_isn"], record["flow"]["role"])
        assert 0 < record["rtt_ns"] < S
    finally:
        os.close(tun)


def read_syn(tun: int, port: int) -> frames.Segment:
    """The SYN to a port, as soon as it comes out of the device."""
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        select.select([tun], [], [], 1)
        packet = os.read(tun, 2048)
        if packet[0] == 0x45 and packet[9] == 6:
            src, dst = (socket.inet_ntoa(packet[at : at + 4]) for at in (12, 16))
            src_port, dst_port, seq = struct.unpack_from("!HHI", packet, 20)
            if dst_port == port:
                return frames.Segment(src, src_port, dst, dst_port, seq)
    raise AssertionError("no SYN came")


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


def test_a_connection_older_than_the_watch_is_partial(ends, port):
    client, server = ends
    server.filter("input", f"tcp dport {port} {IS_SYN} {ONCE} drop")
    with listen(server, port), a_socket(client, "10.99.0.2", 0) as made:
        with contextlib.suppress(BlockingIOError):
            made.connect(("10.99.0.2", port))
        with EvidencePrograms.alone(OBJECTS, HANDSHAKES, Filter(port=port)) as programs:
            record = Watch(port, programs, []).one(CLIENT, KERNEL)
    assert record["flags"] & HandshakeFlags.PARTIAL
    assert (True, 0) == (ambiguous(record), record["connect_ns"])
    assert record["rtt_max_ns"] == 0 or record["rtt_max_ns"] < 500 * MS


def test_beside_a_plan_only_its_targets_are_reported_and_join(session, ends, port):
    client, server = ends
    other = workload.free_port()
    targets = [target("wanted", port, ("handshakes",)), target("plain", other, ())]
    plan = NodePlan(node="", generation=1, digest="", targets=tuple(targets), objectives=(), host=True)
    rules = compile_rules(plan, {}, session.rules)
    session.programs.apply(rules, quiet_ns=S, own_tgid=0, owner_by_process=False)
    with EvidencePrograms.beside(session.programs, OBJECTS, HANDSHAKES) as programs:
        for at in (port, other):
            with listen(server, at) as listener, dial(client, at) as made, listener.accept()[0] as accepted:
                made.sendall(b"request")
                accepted.sendall(accepted.recv(100))
                made.recv(100)
        fails(client, port)
        exchanges = session.records(4)
        records = programs.drain()
    wanted = {index for index, one in rules.sets.items() if "wanted" in one.targets}
    assert wanted == set(records["flow"]["target_set"])
    assert [("ok", CLIENT), ("ok", SERVER), ("refused", CLIENT)] == [(outcome(r), r["flow"]["role"]) for r in records]
    of_port = exchanges[np.isin(exchanges["target_set"], list(wanted))]
    assert set(of_port["sock_cookie"]) == set(records["flow"]["sock_cookie"][:2])


def test_the_agents_own_connections_are_no_evidence(session, ends, port):
    client, server = ends
    plan = NodePlan(
        node="", generation=1, digest="", targets=(target("wanted", port, ("handshakes",)),), objectives=(), host=True
    )
    rules = compile_rules(plan, {}, session.rules)
    session.programs.apply(rules, quiet_ns=S, own_tgid=os.getpid(), owner_by_process=False)
    with EvidencePrograms.beside(session.programs, OBJECTS, HANDSHAKES) as programs, listen(server, port):
        dial(client, port).close()
        assert [SERVER] == programs.drain()["flow"]["role"].tolist()


def target(name: str, port: int, evidence: tuple[str, ...]) -> Target:
    spans = SpanPolicy(slower_than_ns=25 * MS, ratio=0.01, max_per_second=1000)
    return Target(
        id=name,
        namespace="default",
        probe="handshakes",
        probe_uid="",
        name=name,
        role=PlanRole.SERVER,
        thresholds_ns=(25 * MS,),
        setup_turns=0,
        spans=spans,
        ports=(port,),
        clients=True,
        evidence=evidence,
    )
