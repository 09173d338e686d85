"""The loads: a ping-pong of two processes, a Redis at saturation, messages between many processes (hackbench), and
requests at given times (openloop.c)."""

import json
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

from benchmarks.builds import BUILD
from benchmarks.machine import LOAD_CPU, SERVER_CPU, cpu_ns
from benchmarks.processes import ended_children_ns, finished, on, started
from tests.support.servers import listens


def pingpong(port: int, turns: int, cpu: int = SERVER_CPU) -> float:
    """CPU time of a 64-byte RPC over loopback, both ends, in ns: client and server take turns on one processor."""
    return float(finished(BUILD / "pingpong", port, cpu, 64, turns, cpu=cpu))


def pingpongs(ports: list[int], turns: int) -> float:
    """The same on as many processors as there are ports, all at once: the mean over them."""
    commands = [on(cpu, BUILD / "pingpong", port, cpu, 64, turns) for cpu, port in enumerate(ports)]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for command in commands]
    told = [process.communicate()[0] for process in running]
    assert not any(process.returncode for process in running), "a ping-pong failed"
    return sum(map(float, told)) / len(told)


def hackbench(cpus: int, loops: int) -> float:
    """CPU time of a message of `perf bench sched messaging`, 400 processes on so many processors, in ns: fixed work."""
    words = f"taskset -c 0-{cpus - 1} perf bench sched messaging -g 10 -l {loops} -p".split()
    before_ns = ended_children_ns()
    subprocess.run(words, check=True, capture_output=True)
    return (ended_children_ns() - before_ns) / (20 * 20 * 10 * loops)


class Redis:
    """A Redis server on one CPU, redis-benchmark on another."""

    def __init__(self, port: int, pid: int) -> None:
        self.port = port
        self.pid = pid

    def get(self, requests: int, connections: int = 8) -> float:
        """CPU time of the server per GET, in ns: no pipelining, at saturation."""
        return self._benchmark(requests, f"-c {connections}")

    def saturation(self, requests: int) -> float:
        """GETs per second with 16 connections."""
        began = time.monotonic()
        self._benchmark(requests, "-c 16")
        return requests / (time.monotonic() - began)

    def connect(self, requests: int) -> float:
        """CPU time of the server per connection with one GET on it, in ns."""
        return self._benchmark(requests, "-c 8 -k 0")

    def _benchmark(self, requests: int, options: str) -> float:
        before = cpu_ns(self.pid)
        words = f"redis-benchmark -p {self.port} {options} -n {requests} -t get -q".split()
        finished(*words, cpu=LOAD_CPU)
        return (cpu_ns(self.pid) - before) / requests


@contextmanager
def redis(port: int) -> Iterator[Redis]:
    """Start and stop the server."""
    words = f"redis-server --port {port} --appendonly no --dir {BUILD} --save".split()
    with started(*words, "", cpu=SERVER_CPU, log=BUILD / "redis.log", ready=lambda _: listens(port)) as pid:
        yield Redis(port, pid)


class Nginx:
    """An nginx that speaks HTTP/2 on one CPU, h2load on another."""

    def __init__(self, port: int, pid: int) -> None:
        self._url = f"http://127.0.0.1:{port}/"
        self._pid = pid

    def ask(self, requests: int, at_once: int) -> float:
        """CPU time of both ends per request, in ns: one connection with so many streams open."""
        before = cpu_ns(self._pid) + ended_children_ns()
        finished("h2load", "-n", requests, "-c", 1, "-m", at_once, self._url, cpu=LOAD_CPU)
        return (cpu_ns(self._pid) + ended_children_ns() - before) / requests


@contextmanager
def nginx(port: int) -> Iterator[Nginx]:
    """Start and stop the server."""
    (BUILD / "nginx.conf").write_text(
        f"daemon off; master_process off; pid {BUILD}/nginx.pid; error_log stderr; events {{}} http {{ access_log off; "
        f"keepalive_requests 1000000000; server {{ listen {port} http2; location / {{ return 200 ok; }} }} }}"
    )
    words = ("nginx", "-e", "stderr", "-c", BUILD / "nginx.conf")
    with started(*words, cpu=SERVER_CPU, log=BUILD / "nginx.log", ready=lambda _: listens(port)) as pid:
        yield Nginx(port, pid)


@contextmanager
def echo(port: int, delay_ms: int = 0) -> Iterator[int]:
    """A server of 64-byte messages (echo.c) on a processor of its own; yields its id."""
    words = (BUILD / "echo", port, delay_ms)
    with started(*words, cpu=SERVER_CPU, log=BUILD / "echo.log", ready=lambda _: listens(port)) as pid:
        yield pid


class Offered(msgspec.Struct, frozen=True):
    """What openloop.c tells: counts of requests, and times from when each was meant to be sent, in ns. `slow`: asked
    for a late answer; `over`: answered later than 25 ms after they were sent."""

    sent: int
    answered: int
    slow: int
    over: int
    seconds: float
    p50_ns: float
    p90_ns: float
    p99_ns: float
    p999_ns: float
    longest_ns: float

    @property
    def per_second(self) -> float:
        """How many were answered per second."""
        return self.answered / self.seconds


class Generator:
    """openloop.c beside its server, on a processor of its own; `kind` is `redis` or `echo`."""

    def __init__(
        self, port: int, kind: str, connections: int, *, per_second: float, seconds: float, slow_every: int = 0
    ) -> None:
        words = (BUILD / "openloop", port, kind, connections, per_second, seconds, slow_every)
        self._process = subprocess.Popen(on(LOAD_CPU, *words), stdout=subprocess.PIPE, text=True)

    @property
    def running(self) -> bool:
        """Whether it still sends, or waits for answers."""
        return self._process.poll() is None

    def result(self) -> Offered:
        """Wait for its end. Under more than the server can do, some requests stay without an answer."""
        told = self._process.communicate()[0]
        assert not self._process.returncode, "openloop failed"
        return msgspec.convert(json.loads(told), Offered)

    def end(self) -> None:
        """End it, if it still runs."""
        if self.running:
            self._process.kill()
            self._process.wait()
