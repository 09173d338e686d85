"""The whole agent is killed again and again under load: what it counted arrives once, what died with it is a told gap.

What is played is the operator's directory. KILLS: how many.
"""

import os
import random
import socket
import subprocess
import sys
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from benchmarks.directory import Directory, directory
from latencyprobe import parsing
from latencyprobe.plan import Role
from latencyprobe_agent.identity.local import local_plan
from tests.latencyprobe_agent.processes import PROBE, Echo
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.root, pytest.mark.timeout(3600)]

BPF = Path(__file__).parents[2] / "build" / "bpf"
KILLS = int(os.environ.get("KILLS", "3"))
LONGEST_S = 12.0  # from measuring to the next kill: counts are kept each 5 s
PAUSE_S = 0.002
MOST_PER_S = 1 / PAUSE_S
READY_S = 60


class Caller(threading.Thread):
    """One RPC after the other on one connection. `made`: by minute in which they ended."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.made: Counter[int] = Counter()
        self._ended = threading.Event()
        self._socket = socket.create_connection(("127.0.0.1", port))

    def run(self) -> None:
        with self._socket as connection:
            while not self._ended.wait(PAUSE_S):
                connection.sendall(b"12345678")
                assert connection.recv(100) == b"12345678"
                self.made[int(time.time() // 60 * 60)] += 1

    def end(self) -> None:
        self._ended.set()
        self.join()


class Agent:
    """`latencyprobe agent` with one state for all its lives."""

    def __init__(self, folder: Path, server: Directory, ca_file: Path) -> None:
        self._health = free_port()
        (folder / "token").write_text("t")
        self._log = folder / "log"
        self._environment = os.environ | {
            "LATENCYPROBE_DIRECTORY": server.url,
            "LATENCYPROBE_NODE": "n1",
            "LATENCYPROBE_TOKEN_FILE": str(folder / "token"),
            "LATENCYPROBE_CA_FILE": str(ca_file),
            "LATENCYPROBE_STATE_DIR": str(folder / "state"),
            "LATENCYPROBE_HEALTH_PORT": str(self._health),
            "LATENCYPROBE_BPF_DIR": str(BPF),
        }

    @contextmanager
    def life(self) -> Iterator[subprocess.Popen[bytes]]:
        """Start it, wait until it measures. Whoever leaves it running ends it as Kubernetes does."""
        with self._log.open("ab") as log:
            process = subprocess.Popen(
                [Path(sys.executable).with_name("latencyprobe"), "agent"], stderr=log, env=self._environment
            )
        try:
            wait_until(lambda: self._measures(process), "it measures", READY_S, unready=OSError, poll_s=0.05)
            yield process
        finally:
            process.terminate()
            process.wait(30)

    def _measures(self, process: subprocess.Popen[bytes]) -> bool:
        assert process.poll() is None, self._log.read_text()
        with urllib.request.urlopen(f"http://127.0.0.1:{self._health}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)


def test_an_agent_that_is_killed_again_and_again_counts_once_and_tells_its_gaps(tmp_path: Path) -> None:
    port = free_port()
    probe = parsing.parse(yaml.safe_load(PROBE.format(port=port)))
    plan = local_plan([probe], "n1", b"k" * 32).plan
    echo = Echo(port)
    caller = Caller(port)
    with directory(plan, tmp_path) as (server, ca_file):
        agent = Agent(tmp_path, server, ca_file)
        began_s = time.monotonic()
        for kill in range(KILLS):
            with agent.life() as process:
                if not kill:
                    caller.start()
                time.sleep(random.uniform(0, LONGEST_S))
                process.kill()
        with agent.life():
            caller.end()
            echo.close()
        took_s = time.monotonic() - began_s
        wait_until(lambda: server.rows, "counts have arrived")

    counted: Counter[int] = Counter()
    for row in server.rows:
        assert row.perspective is Role.SERVER
        counted[row.minute] += row.coverage.seen + row.coverage.lost
    minutes = sorted(caller.made | counted)
    made, arrived = (list(accumulate(one[minute] for minute in minutes)) for one in (caller.made, counted))
    missing = made[-1] - arrived[-1]
    unmeasured_s = took_s - sum(row.coverage.measured_ms for row in server.rows) / 1e3
    print(f"{KILLS} kills, {made[-1]} RPCs, {missing} not seen, {unmeasured_s:.1f} of {took_s:.1f} s not measured")
    assert all(now <= of + 1 for now, of in zip(arrived, made, strict=True)), (counted, caller.made)
    assert arrived[-1] > 0
    assert 0 <= missing <= unmeasured_s * MOST_PER_S, "what is missing is more than the told gaps explain"
