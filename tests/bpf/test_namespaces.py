"""Two network namespaces joined by a veth pair: other interfaces, other namespaces, NAT between; the same truth."""

import os
import subprocess
from collections.abc import Iterator

import numpy as np
import pytest

from latencyprobe_agent.measure.stages import PAIR_STAGES
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.join import (
    CLIENT,
    SERVER,
    match,
    outside_calls,
    outside_stages,
    pair_stages,
    pairs_by_rpc,
)
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
DIALLED = free_port()  # measured on the whole machine: no port that downloads beside this test use
NETWORK = PAIR_STAGES.index("network")


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture
def namespaces() -> Iterator[dict[str, list[str]]]:
    """Command prefixes that run inside the namespaces "client" (10.99.0.1, fd99::1) and "server" (….2)."""
    names = {side: f"lp-{os.getpid()}-{side}" for side in ("client", "server")}
    try:
        for name in names.values():
            ip("netns", "add", name)
        ip("link", "add", "lp0", "netns", names["client"], "type", "veth", "peer", "lp0", "netns", names["server"])
        for host, name in enumerate(names.values(), start=1):
            ip("-n", name, "addr", "add", f"10.99.0.{host}/24", "dev", "lp0")
            ip("-n", name, "addr", "add", f"fd99::{host}/64", "dev", "lp0", "nodad")
            ip("-n", name, "link", "set", "lp0", "up")
        yield {side: ["ip", "netns", "exec", name] for side, name in names.items()}
    finally:
        for name in names.values():
            ip("netns", "del", name)


@pytest.mark.parametrize("host", ["10.99.0.2", "[fd99::2]"])
def test_rpcs_between_namespaces_are_one_pair_each(session, namespaces, tmp_path, host):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_apart(
        tmp_path / "log", namespaces["server"], namespaces["client"], address=f"{host}:{PORT}", total=5_000, seed=8
    )
    records = session.records(2 * len(truth))
    matched = match(truth, records)
    assert [len(matched.missing(role)) for role in (CLIENT, SERVER)] == [0, 0], matched.describe()
    halves, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0)
    assert len(set(records["netns_ino"])) == 2
    outside = outside_calls(truth, records, matched) | outside_stages(truth, halves.stages, matched)
    assert max(outside.values()) <= session.programs.lost()["recursion"], outside
    expected = pair_stages(*(halves.stages[matched.record[role]] for role in (CLIENT, SERVER)))
    apart = expected[:, NETWORK] >= 0
    np.testing.assert_array_equal(pairs.stages[position][apart], expected[apart])


def test_a_translated_destination_changes_nothing(session, namespaces, tmp_path):
    """Callers dial a Service address; both ends must still compute the same ids."""
    rules = "table ip lp { chain out { type nat hook output priority -100; ip daddr 10.99.1.1 dnat to 10.99.0.2\n}\n}\n"
    subprocess.run([*namespaces["client"], "nft", "-f", "-"], input=rules, text=True, check=True)
    subprocess.run([*namespaces["client"], "ip", "route", "add", "10.99.1.0/24", "dev", "lp0"], check=True)
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_apart(
        tmp_path / "log",
        namespaces["server"],
        namespaces["client"],
        address=f"10.99.0.2:{PORT}",
        dial=f"10.99.1.1:{PORT}",
        total=1_000,
        seed=9,
    )
    records = session.records(2 * len(truth))
    matched = match(truth, records)
    _, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0), matched.describe()
    peers = {bytes(address[-4:]) for address in records["peer_addr"][records["role"] == CLIENT]}
    assert peers == {bytes([10, 99, 1, 1])}, "the client knows the Service address only"


@pytest.fixture
def routed() -> Iterator[dict[str, list[str]]]:
    """Command prefixes for "client" (10.98.1.2) and "server" (10.98.2.2), whose router translates both addresses.

    The client dials 10.98.9.9:DIALLED; the server sees 10.98.2.1, as behind a NodePort.
    """
    names = {side: f"lp-{os.getpid()}-{side}" for side in ("client", "router", "server")}
    rules = f"""
        table ip lp {{
            chain in {{ type nat hook prerouting priority -100
                ip daddr 10.98.9.9 tcp dport {DIALLED} dnat to 10.98.2.2:{PORT}
            }}
            chain out {{ type nat hook postrouting priority 100; ip daddr 10.98.2.2 snat to 10.98.2.1
            }}
        }}
    """
    try:
        for name in names.values():
            ip("netns", "add", name)
        for number, side in ((1, "client"), (2, "server")):
            end, near, far = f"lp{number}", names["router"], names[side]
            ip("link", "add", end, "netns", near, "type", "veth", "peer", "lp0", "netns", far)
            ip("-n", near, "addr", "add", f"10.98.{number}.1/24", "dev", end)
            ip("-n", far, "addr", "add", f"10.98.{number}.2/24", "dev", "lp0")
            ip("-n", near, "link", "set", end, "up")
            ip("-n", far, "link", "set", "lp0", "up")
            ip("-n", far, "route", "add", "default", "via", f"10.98.{number}.1")
        prefixes = {side: ["ip", "netns", "exec", name] for side, name in names.items()}
        subprocess.run([*prefixes["router"], "sysctl", "-qw", "net.ipv4.ip_forward=1"], check=True)
        subprocess.run([*prefixes["router"], "nft", "-f", "-"], input=rules, text=True, check=True)
        yield prefixes
    finally:
        for name in names.values():
            ip("netns", "del", name)


def test_a_router_that_translates_both_addresses_changes_no_pair(session, routed, tmp_path):
    """Destination and port on the way there, source on the way back: sequence numbers and offsets pass unchanged."""
    session.measure(DIALLED, PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_apart(
        tmp_path / "log",
        routed["server"],
        routed["client"],
        address=f"10.98.2.2:{PORT}",
        dial=f"10.98.9.9:{DIALLED}",
        total=5_000,
        seed=12,
    )
    records = session.records(2 * len(truth))
    matched = match(truth, records)
    _, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    print(f"{len(pairs)} pairs, {wrong} wrong, {matched.describe()}")
    assert (wrong, int((position < 0).sum())) == (0, 0), matched.describe()
    seen = {role: set(records["peer_port"][records["role"] == role]) for role in (CLIENT, SERVER)}
    peers = {role: {bytes(a[-4:]) for a in records["peer_addr"][records["role"] == role]} for role in (CLIENT, SERVER)}
    assert seen[CLIENT] == {DIALLED}
    assert peers == {CLIENT: {bytes([10, 98, 9, 9])}, SERVER: {bytes([10, 98, 2, 1])}}
