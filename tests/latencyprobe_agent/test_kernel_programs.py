"""The real programs, driven as the agent drives them: a plan goes in, halves and counts of real sockets come out."""

import socket
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import NodePlan, Role, SpanPolicy, Target
from latencyprobe_agent.kernel.programs import IN_RING, Programs, share_records
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import NO_RULES, Rules, TargetSet, compile_rules
from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded
from latencyprobe_agent.vocabulary.records import Role as End
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

OBJECT = Path(__file__).parents[2] / "build" / "bpf" / "exchange.bpf.o"
POLICY = SpanPolicy(slower_than_ns=10**9, ratio=0, max_per_second=1)
DEADLINE_S = 60


class Measuring:
    """Programs with the rules of ports on this host, and every record so far."""

    def __init__(self, programs: Programs) -> None:
        self.programs, self.rules, self.records = programs, NO_RULES, np.empty(0, EXCHANGE)

    def measure(self, *ports: int) -> None:
        targets = tuple(
            Target(id=f"n/p/{port}", namespace="n", probe="p", probe_uid="", name=str(port), role=Role.SERVER,
                   thresholds_ns=(10**9,), setup_turns=0, spans=POLICY, ports=(port,), clients=True)
            for port in ports
        )  # fmt: skip
        plan = NodePlan(node="", generation=1, digest="", targets=targets, objectives=(), host=True)
        self.rules = compile_rules(plan, {}, self.rules)
        self.programs.apply(self.rules, idle_timeout_ns=10**8, own_tgid=0, owner_by_process=False)

    def drain(self, until: int) -> np.ndarray:
        """Drain and flush until there are so many records in all."""

        def drained() -> bool:
            self.programs.flush()
            self.records = np.concatenate([self.records, self.programs.drain()])
            return len(self.records) >= until

        wait_until(drained, f"{until} records", seen=lambda: f"{len(self.records)}, lost: {self.programs.lost()}")
        return self.records


@pytest.fixture
def measuring():
    with Programs.open(OBJECT, ring_bytes=1 << 20) as programs:
        yield Measuring(programs)


@pytest.fixture
def echo():
    """A server that answers what it gets, at `echo.port`, and a client connection to it."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with connection:
                while data := connection.recv(65536):
                    connection.sendall(data)

    thread = threading.Thread(target=serve)
    thread.start()
    yield listener.getsockname()[1]
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join()


def call(connection: socket.socket, times: int) -> None:
    for i in range(times):
        message = bytes(i % 100 + 1)
        connection.sendall(message)
        assert connection.recv(len(message), socket.MSG_WAITALL) == message


def test_every_exchange_of_a_planned_port_is_two_halves_of_one_pair(measuring, echo):
    measuring.measure(echo)
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        call(connection, 500)

    half = halves(measuring.drain(until=1000))
    pairs = LocalJoin().join(half)

    assert (1000, 500) == (len(half), len(pairs))
    assert half.counted.all()
    assert (half.duration_ns > 0).all()
    assert sorted(i % 100 + 1 for i in range(500)) == sorted(pairs.client.rec["request_bytes"].tolist())
    assert (pairs.client.duration_ns >= pairs.server.stages[:, 2]).all()


def test_counts_say_the_same_as_records_and_only_grow(measuring, echo):
    measuring.measure(echo)
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        call(connection, 50)
        measuring.drain(until=98)
        earlier = measuring.programs.counts()[1]["outcomes"].sum()
        call(connection, 50)
    measuring.drain(until=200)

    keys, totals = measuring.programs.counts()

    assert 98 <= earlier <= 100
    by_role = dict(zip(keys["role"].tolist(), totals["outcomes"].sum(axis=1).tolist(), strict=True))
    assert {End.CLIENT: 100, End.SERVER: 100} == by_role
    assert [100, 100] == totals["histogram"].sum(axis=1).tolist()
    assert [100, 100] == totals["within"][:, 0].tolist()
    assert totals["duration_sum_ns"].sum() == halves(measuring.records).duration_ns.sum()
    lost = measuring.programs.lost()
    assert {lost[reason] for reason in lost if reason != "recursion"} == {0}, "the kernel may skip a program"


def test_counts_that_were_forgotten_start_again(measuring, echo):
    measuring.measure(echo)
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        call(connection, 3)
    measuring.drain(until=6)
    keys, before = measuring.programs.counts()
    measuring.programs.forget(keys)
    assert len(measuring.programs.counts()[0]) == 0
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        call(connection, 2)
    measuring.drain(until=10)

    after = measuring.programs.counts()[1]

    assert (6, 4, 4) == (before["classes"].sum(), after["classes"].sum(), after["histogram"].sum())


def test_a_new_plan_begins_and_ends_the_measuring_of_open_connections(measuring, echo):
    measuring.measure(1)
    with socket.create_connection(("127.0.0.1", echo)) as connection:
        call(connection, 10)
        measuring.measure(echo)
        call(connection, 10)
        taken_up = measuring.drain(until=20)
        measuring.measure(1)
        call(connection, 10)
        measuring.programs.flush()
        after = measuring.programs.drain()

    assert 20 == len(taken_up)
    assert {Excluded.PARTIAL: 2, Excluded.NONE: 18} == dict(
        zip(*(x.tolist() for x in np.unique(taken_up["excluded"], return_counts=True)), strict=True)
    )
    assert (after["excluded"] != Excluded.NONE).all()


def test_rules_that_are_gone_leave_the_maps(measuring):
    measuring.measure(1001, 1002)
    measuring.measure(1002, 1003)
    rules = measuring.programs._loaded.object.map("rules")

    ports = {int.from_bytes(key[20:22], "little") for key in rules.keys()}  # noqa: SIM118  # a map is no dict

    assert {1002, 1003} == ports


def test_more_rules_than_the_map_holds_are_refused_before_anything_changes(measuring):
    measuring.measure(1001)
    too_many = Rules(
        rules={(bytes(16), group, 80, 0): 1 for group in range(140_000)},
        sets={1: TargetSet(("n/p/t",), (1,), 0, POLICY, "n/p")},
    )

    with pytest.raises(Unsupported, match="140000 rules, there is room for 131072") as caught:
        measuring.programs.apply(too_many, idle_timeout_ns=1, own_tgid=0, owner_by_process=False)

    assert "PlanTooLarge" == caught.value.reason
    assert 2 == len(list(measuring.programs._loaded.object.map("rules").keys()))


def test_waiting_ends_when_the_ring_fills_and_not_at_every_record(echo):
    with Programs.open(OBJECT, ring_bytes=1 << 16) as programs:
        measuring = Measuring(programs)
        measuring.measure(echo)
        with socket.create_connection(("127.0.0.1", echo)) as connection:
            caller = threading.Thread(target=call, args=(connection, 100))
            caller.start()
            programs.wait(DEADLINE_S)
            woken_at = programs.waiting()
            caller.join()

    assert (1 << 16) // 4 <= woken_at * IN_RING


def test_a_missing_type_information_file_is_unsupported(monkeypatch, tmp_path):
    monkeypatch.setenv("LATENCYPROBE_BTF", str(tmp_path / "vmlinux"))

    with pytest.raises(Unsupported, match="vmlinux") as caught:
        Programs.open(OBJECT)

    assert "KernelBtfMissing" == caught.value.reason


@pytest.mark.parametrize(
    ("capabilities", "said"),
    [
        ("-all,+bpf,+perfmon", "attached"),
        ("-all,+bpf", "MissingCapability: this process lacks CAP_PERFMON: run as root, or add BPF and PERFMON"),
    ],
)
def test_bpf_and_perfmon_are_the_capabilities_it_needs(capabilities, said):
    script = f"""
from pathlib import Path
from latencyprobe.errors import Unsupported
from latencyprobe_agent.kernel.programs import Programs, share_records
try:
    with Programs.open(Path({str(OBJECT)!r})) as programs:
        programs.flush()
        programs.counts()
        programs.lost()
    print("attached")
except Unsupported as e:
    print(f"{{e.reason}}: {{e}}")
"""
    drop = ["setpriv", "--bounding-set", capabilities, "--inh-caps", capabilities]

    assert said in subprocess.check_output([*drop, sys.executable, "-c", script], text=True)


@pytest.mark.parametrize("namespaces", [2, 3, 50, 1000])
def test_shares_of_all_namespaces_fit_between_two_looks_of_the_reader(namespaces: int) -> None:
    ring = 4 << 20
    share = share_records(ring, namespaces)
    assert 0 < 3 * namespaces * share * (EXCHANGE.itemsize + 8) <= ring // 2


def test_who_measures_for_one_namespace_shares_nothing() -> None:
    assert share_records(4 << 20, 1) == share_records(4 << 20, 0) == 0
