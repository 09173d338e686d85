"""The workloads: each runs one slice and returns the CPU time that its processes took per operation, in ns."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.variants import BUILD
from tests.support.waiting import wait_until

LOAD_CPU, SERVER_CPU = 0, (os.cpu_count() or 1) - 1


def pingpong(port: int, turns: int) -> float:
    """A 64-byte RPC over loopback: client and server, both ends hooked."""
    done = subprocess.run(
        [BUILD / "pingpong", str(port), str(SERVER_CPU), "64", str(turns)], check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process, from schedstat."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


class Redis:
    """A Redis server on one CPU, redis-benchmark on another."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def get(self, requests: int) -> float:
        """CPU time of the server per GET: 8 connections, no pipelining, at saturation."""
        return self._benchmark(requests, "-c 8")

    def connect(self, requests: int) -> float:
        """CPU time of the server per connection with one GET on it."""
        return self._benchmark(requests, "-c 8 -k 0")

    def _benchmark(self, requests: int, options: str) -> float:
        before = cpu_ns(self.pid)
        words = f"redis-benchmark -p {self.port} {options} -n {requests} -t get -q".split()
        subprocess.run(
            ["taskset", "-c", str(LOAD_CPU), *words], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        return (cpu_ns(self.pid) - before) / requests


@contextmanager
def redis(port: int) -> Iterator[Redis]:
    """Start and stop the server."""
    words = ["redis-server", "--port", str(port), "--save", "", "--appendonly", "no", "--dir", str(BUILD)]
    server = subprocess.Popen(
        ["taskset", "-c", str(SERVER_CPU), *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        ping = ["redis-cli", "-p", str(port), "ping"]
        wait_until(lambda: not subprocess.run(ping, capture_output=True, check=False).returncode, "Redis answers")
        yield Redis(port, server.pid)
    finally:
        server.terminate()
        server.wait()


def machine_busy_s() -> float:
    """CPU time that the machine has spent on anything, from /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")
