"""What replicas say to each other is class `peer` at both ends, on their target's ports and nowhere else.

The replicas are 127.0.0.1 and 127.0.0.2, both of this process.
"""

import socket
from pathlib import Path

import pytest

from latencyprobe.plan import Endpoint, NodePlan, Replicas, Role, SpanPolicy, Target, TargetPod
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded
from latencyprobe_agent.vocabulary.records import Role as End
from tests.support.ports import free_port

pytestmark = pytest.mark.root

PORT, OTHER_PORT = free_port(), free_port()
ADDRESSES = ("127.0.0.1", "127.0.0.2")
BOTH = (End.CLIENT, End.SERVER)


def endpoints(port: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(address, port) for address in ADDRESSES)


def measure(session, *, peers: bool, callers: bool = True, port: int = PORT) -> None:
    """Measure a target of `PORT` whose pod is this process's cgroup. `port`: that of what replicas say."""
    root = find_root()
    cgroup = root / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    target = Target(
        id="default/truth/server",
        namespace="default",
        probe="truth",
        probe_uid="",
        name="server",
        role=Role.SERVER,
        thresholds_ns=(10**9,),
        setup_turns=0,
        spans=SpanPolicy(slower_than_ns=10**9, ratio=1, max_per_second=1000),
        pods=(TargetPod("pod", (PORT,)),),
        callers=("pod",) if callers else (),
        endpoints=endpoints(PORT),
        replicas=() if peers else (Replicas(("pod",), endpoints(port)),),
    )
    plan = NodePlan(node="", generation=1, digest="", targets=(target,), objectives=())
    session.rules = compile_rules(plan, {"pod": [cgroup.stat().st_ino]}, session.rules)
    session.programs.apply(session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False)


class Connection:
    """One from `source` to 127.0.0.1."""

    def __init__(self, source: str) -> None:
        with socket.create_server((ADDRESSES[0], PORT)) as listener:
            self.client = socket.create_connection(listener.getsockname(), source_address=(source, 0))
            self.server, _ = listener.accept()

    def turns(self, count: int) -> None:
        for _ in range(count):
            for sender, receiver in ((self.client, self.server), (self.server, self.client)):
                sender.sendall(b"message")
                assert receiver.recv(7, socket.MSG_WAITALL) == b"message"

    def close(self) -> None:
        self.client.close()
        self.server.close()


def verdicts(records) -> list[tuple[int, str, str]]:
    """(Role, class, reason) of each record."""
    return [
        (int(one["role"]), ExchangeClass(int(one["conn_class"])).name, Excluded(int(one["excluded"])).name)
        for one in records
    ]


def reasons(records, role: End) -> list[str]:
    mine = records[records["role"] == role]
    return [reason for _, _, reason in verdicts(mine[mine["request_offset"].argsort()])]


def test_what_replicas_say_is_peer_at_both_ends_and_counted(session):
    measure(session, peers=False)
    connection = Connection(ADDRESSES[1])
    connection.turns(3)
    connection.close()
    records = session.records_of_closed(2)
    assert sorted(verdicts(records)) == sorted((role, "PEER", "PEER") for role in BOTH for _ in range(3))
    _, counts = session.programs.counts()
    assert (counts["classes"][:, ExchangeClass.PEER].sum(), counts["excluded"][:, Excluded.PEER].sum()) == (6, 6)
    assert counts["outcomes"].sum() == 0


def test_a_target_that_counts_peers_counts_them(session):
    measure(session, peers=True)
    connection = Connection(ADDRESSES[1])
    connection.turns(3)
    connection.close()
    records = session.records_of_closed(2)
    assert [reasons(records, role) for role in BOTH] == 2 * [3 * ["NONE"]]


def test_a_caller_that_is_no_replica_is_measured(session):
    measure(session, peers=False, callers=False)
    connection = Connection("127.0.0.9")
    connection.turns(3)
    connection.close()
    assert reasons(session.records_of_closed(1), End.SERVER) == 3 * ["NONE"]


@pytest.mark.parametrize(("port", "expected"), [(0, "PEER"), (OTHER_PORT, "NONE")], ids=["any", "another"])
def test_replicas_are_such_on_the_ports_of_their_target(session, port, expected):
    measure(session, peers=False, port=port)
    connection = Connection(ADDRESSES[1])
    connection.turns(1)
    connection.close()
    records = session.records_of_closed(2)
    assert [reasons(records, role) for role in BOTH] == 2 * [[expected]]


def test_an_edit_of_peers_holds_for_open_connections_and_ends_no_exchange(session):
    measure(session, peers=True)
    connection = Connection(ADDRESSES[1])
    for peers in (False, True):
        connection.turns(2)
        measure(session, peers=peers)
    connection.turns(2)
    connection.close()
    records = session.records_of_closed(2)
    # an exchange ends with the next request, and is judged by the plan of then
    expected = ["NONE", "PEER", "PEER", "NONE", "NONE", "NONE"]
    assert [reasons(records, role) for role in BOTH] == 2 * [expected]
