"""Real cgroups with real limits: what the reader tells is what the kernel says; a report names the quota."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from latencyprobe.plan import Container, NodePlan, Pod
from latencyprobe_agent.identity.cgroups import CgroupTree, find_root
from latencyprobe_agent.identity.pressure import tells_pressure
from latencyprobe_agent.identity.resources import PodResources, ProcessResources, Resources
from latencyprobe_agent.loop.pressure import PressureReader
from latencyprobe_agent.measure.pressure import Stall
from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.cgroup_trees import ID, UID
from tests.support.cgroups import OwnCgroup, own_cgroup
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

SPIN = "while True: pass"
REREAD = """
import os, sys
while True:
    with open(sys.argv[1], "rb") as file:
        while file.read(1 << 20): pass
"""
BUSY_SERVER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            until = time.thread_time() + 0.004
            while time.thread_time() < until: pass
            connection.sendall(data)
"""
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: busy}}
spec:
  targets: [{{name: busy, ports: [{port}]}}]
  clients: {{scope: None}}
  objectives: [{{name: fast, target: busy, threshold: 40ms, goal: "99", minEvents: 1}}]
"""


@pytest.fixture
def cgroup() -> Iterator[OwnCgroup]:
    with own_cgroup() as made:
        yield made


@pytest.fixture
def reader() -> Iterator[PressureReader]:
    with closing(PressureReader()) as made:
        yield made


@contextmanager
def running(cgroup: OwnCgroup, code: str, *arguments: str) -> Iterator[int]:
    """Run a program in a cgroup, and end it."""
    waiting = f"import sys; sys.stdin.readline(); {chr(10)}{code}"
    process = subprocess.Popen([sys.executable, "-c", waiting, *arguments], stdin=subprocess.PIPE)
    assert process.stdin
    try:
        cgroup.join(process.pid)
        process.stdin.write(b"go\n")
        process.stdin.flush()
        yield process.pid
    finally:
        process.kill()
        process.communicate()


def followed(reader: PressureReader, owner: int, resources: Resources, enough: Callable[[], bool]) -> list[Stall]:
    """Read now and then until there is enough to be told, and once more."""
    stalls: list[Stall] = []

    def read() -> bool:
        done = enough()
        stalls.extend(reader.read([owner], resources).values())
        return done and bool(stalls)

    wait_until(read, "enough to be told", DEADLINE_S, poll_s=0.5)
    return stalls


def test_what_a_quota_throttled_is_told_as_cpu_stat_has_it(cgroup: OwnCgroup, reader: PressureReader) -> None:
    cgroup.limit_cpu(20_000)
    with running(cgroup, SPIN) as pid:
        resources = ProcessResources("host")
        stalls = followed(reader, pid, resources, lambda: cgroup.cpu_stat()["nr_throttled"] >= 20)
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not (cgroup.folder / "cgroup.procs").read_text().strip(), "the process is gone")
        (last,) = reader.read([pid], resources).values()
    quota = last.total.quotas[0]
    assert quota.throttled_us <= cgroup.throttled_us()
    held_us = sum(stall.us["throttled"] for stall in (*stalls, last))
    assert 0 < held_us <= quota.throttled_us
    print(f"throttled {held_us / 1e6:.3f} s of {sum(s.elapsed_us for s in stalls) / 1e6:.3f} s")


def test_every_us_that_a_new_cgroup_was_throttled_is_in_the_total(cgroup: OwnCgroup, reader: PressureReader) -> None:
    """Read before it begins and after it has ended, so that nobody races with the kernel."""
    cgroup.limit_cpu(20_000)
    with running(cgroup, "import signal; signal.pause()") as pid:
        resources = ProcessResources("host")
        assert reader.read([pid], resources) == {}
        before = cgroup.cpu_stat()
        with running(cgroup, SPIN):
            wait_until(lambda: cgroup.cpu_stat()["nr_throttled"] >= 10, "it is throttled", DEADLINE_S)
        stable = [cgroup.cpu_stat()]
        wait_until(lambda: stable.append(cgroup.cpu_stat()) or stable[-1] == stable[-2], "all is told", poll_s=0.3)
        (stall,) = reader.read([pid], resources).values()
        told, quota = cgroup.cpu_stat(), stall.total.quotas[0]
    assert quota.throttled_periods == told["nr_throttled"] - before["nr_throttled"] >= 10
    assert quota.throttled_us == cgroup.throttled_us() > 0
    assert stall.us["throttled"] <= min(stall.elapsed_us, quota.throttled_us)


def test_the_quota_of_a_pod_holds_up_its_container(reader: PressureReader) -> None:
    with own_cgroup("kubepods") as parent:
        pod = parent / f"pod{UID}"
        container = pod / ID
        pod.limit_cpu(20_000)
        tree = CgroupTree(find_root())
        tree.survey()
        plan = NodePlan("n", 1, "", (), (), pods=(Pod(UID, "shop", "cart", (), (Container("web", ID),), {}),))
        resources, owner = PodResources(plan, tree.scan()), container.folder.stat().st_ino
        with running(container, SPIN):
            stalls = followed(reader, owner, resources, lambda: pod.cpu_stat()["nr_throttled"] >= 10)
    own, above = stalls[-1].total.quotas
    assert own.throttled_us == 0
    assert above.throttled_us > 0
    assert stalls[-1].container == container.path
    assert any(stall.us["throttled"] > 0 for stall in stalls)


@pytest.mark.skipif(not tells_pressure(find_root()), reason="the kernel keeps no pressure (PSI)")
def test_what_a_process_waits_for_at_its_memory_limit_is_told(
    cgroup: OwnCgroup, reader: PressureReader, tmp_path: Path
) -> None:
    cgroup.limit_memory(16 << 20)
    large = tmp_path / "large"
    large.write_bytes(bytes(64 << 20))
    with large.open("rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)  # else it is this process that keeps it
    with running(cgroup, REREAD, str(large)) as pid:
        pressure = cgroup.folder / "memory.pressure"

        def waited_us() -> int:
            return int(pressure.read_text().split("total=")[1].split()[0])

        stalls = followed(reader, pid, ProcessResources("host"), lambda: waited_us() > 50_000)
    memory_us = sum(stall.us["memory"] for stall in stalls)
    assert memory_us > 0
    assert stalls[-1].total.some_us["memory"] <= waited_us()
    print(f"waited for memory {memory_us / 1e6:.3f} s of {sum(s.elapsed_us for s in stalls) / 1e6:.3f} s")


def test_a_cgroup_that_is_removed_is_let_go(reader: PressureReader) -> None:
    with (
        own_cgroup("lp-a") as one,
        own_cgroup("lp-b") as other,
        running(one, SPIN) as ended,
        running(other, SPIN) as living,
    ):
        resources = ProcessResources("host")
        reader.read([ended, living], resources)
        assert reader.read([ended, living], resources).keys() == {ended, living}
        os.kill(ended, signal.SIGKILL)
        wait_until(lambda: not (one.folder / "cgroup.procs").read_text().strip(), "the process is gone")
        one.remove()
        assert reader.read([ended, living], resources).keys() == {living}
        assert reader.read([ended, living], resources).keys() == {living}
        assert reader.unread == {"no_cgroup": 1}


def test_a_server_at_its_quota_is_named_in_the_report(cgroup: OwnCgroup, tmp_path: Path) -> None:
    port, store = free_port(), str(tmp_path / "sli.db")
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=port))
    cgroup.limit_cpu(2_000)  # so little that a busy machine's share of a CPU is more
    server = subprocess.Popen([sys.executable, "-c", BUSY_SERVER, str(port)], stdout=subprocess.PIPE)
    try:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        cgroup.join(server.pid)
        agent = started("run", "-f", str(tmp_path / "probe.yaml"), "--store", store, "-o", "json")
        assert agent.stderr
        assert "measuring busy" in agent.stderr.readline()
        with socket.create_connection(("127.0.0.1", port)) as connection:

            def ask() -> bool:
                connection.sendall(b"12345678")
                assert connection.recv(100)
                return cgroup.throttled_us() > 4_000_000

            wait_until(ask, "the server was throttled for 4 s", DEADLINE_S)
        agent.send_signal(signal.SIGINT)
        out, err = agent.communicate(timeout=DEADLINE_S)
        assert agent.returncode == 0, err
    finally:
        server.kill()
        server.communicate()
    (result,) = json.loads(out)["results"]
    held_up = {one["kind"]: one for one in result["pressure"]}
    print(result["bad"], result["events"], result["badByStage"], held_up)
    assert result["bad"] > 0
    assert float(held_up["throttled"]["badShare"]) >= 10
    time = re.fullmatch(r"([\d.]+)(m?s)", held_up["throttled"]["time"])
    assert time
    assert float(time[1]) * {"ms": 1e-3, "s": 1}[time[2]] <= cgroup.throttled_us() / 1e6 + 0.01
    table = started("report", "--store", store).communicate(timeout=DEADLINE_S)[0]
    print(table)
    assert "raise limits.cpu" in " ".join(table.split())
