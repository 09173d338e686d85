"""`make bench-scale`: the operator, as a process of its own, under clusters of several sizes; docs/design/scale.md.

The API server (`api_server.py`, by `--api-server real` `real_api_server.py`) and the agents (`scale_agents.py`) are
played, in one process beside the operator's; between them is what is real: HTTP, watches, TLS, the directory's
protocol. What is told is what they saw, so what they themselves took is in it.
"""

import asyncio
import json
import signal
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from pathlib import Path

import click
from rich.console import Console

from benchmarks.api_server import ApiServer
from benchmarks.builds import BUILD
from benchmarks.made_cluster import CLUSTER_SCOPE, Cluster, Size, probes
from benchmarks.operator_process import LIMIT_S, Operator, operator
from benchmarks.real_api_server import RealApiServer, real
from benchmarks.scale_agents import Agent, Told
from benchmarks.scale_connection import cost
from benchmarks.scale_figures import Figures, rows, table
from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.waiting import until

NODES = (500, 1_000, 2_000, 5_000)
PODS_OF_NODE, NODES_OF_PROBE = 30, 5
CHANGES_PER_S_OF_NODE = 0.02  # 100 a second of 5,000 nodes
SECONDS = 60.0
RECENT_S = 20.0  # in which every agent has posted all that it posts
QUIET_S = 30.0  # in which nothing changes
LATE_S = 5.0
AFTER_S = 5.0  # what follows when all agents are back


class Bench:
    """One size. `folder`: for its files."""

    def __init__(self, size: Size, folder: Path, api: ApiServer | RealApiServer) -> None:
        self.api = api
        self.cluster = Cluster(size, self.api.put, self.api.drop)
        for probe in probes(size, CLUSTER_SCOPE):
            self.api.put("latencyprobes", probe)
        self.told = Told()
        self._size = size
        self._folder = folder
        make_certificate(folder, "tls")
        self._trust = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self._port = free_port()
        where = ("127.0.0.1", self._port, self._trust)
        nodes = [f"node-{i}" for i in range(size.nodes)]
        self._agents = [Agent(node, api.token(node), (*where, i), self.told) for i, node in enumerate(nodes)]

    async def run(self, seconds: float, say: Callable[[str], None]) -> Figures:
        """Measure everything. `seconds`: for how long pods are replaced."""
        async with self.api.serve() as kubeconfig:
            async with operator(kubeconfig, self._folder, self._port) as running:
                connection = await cost(running, self._port, self._trust)
            began_s = time.monotonic()
            async with operator(kubeconfig, self._folder, self._port) as running:
                first_plans_s = time.monotonic() - began_s
                await until(
                    lambda: self.api.labelled() == self._size.nodes, "all nodes are labelled", LIMIT_S, poll_s=0.1
                )
                await asyncio.sleep(2.0)
                alone = running.memory()
                say(f"plans after {first_plans_s:.1f} s, {alone / 1e6:.0f} MB")
                began_s = time.monotonic()
                with self._running() as tasks:
                    await until(lambda: running.runs() and self._all_have_plans(), "all agents have plans", LIMIT_S)
                    agents_s = time.monotonic() - began_s
                    await asyncio.sleep(RECENT_S)  # everybody has posted once
                    with_agents = running.memory()
                    say(f"agents after {agents_s:.1f} s, {with_agents / 1e6:.0f} MB")
                    quiet_cpu, quiet_per_s = await self._quiet(running)
                    written = Counter(self.api.writes)
                    self.told.answers_s.clear()
                    self.told.requests.clear()
                    sent, cpu_s, began_s = self.told.bytes_read, running.cpu_s(), time.monotonic()
                    changes = await self._change(seconds)
                    with suppress(AssertionError):  # what is later than that is late
                        await until(lambda: not self.told.waited, "all changes have arrived", LATE_S)
                    took_s = time.monotonic() - began_s
                    running.runs()
                    sent, cpu = self.told.bytes_read - sent, (running.cpu_s() - cpu_s) / took_s
                    late, writes, at_end = len(self.told.waited), self.api.writes - written, running.memory()
                    requests, answers_s = Counter(self.told.requests), list(self.told.answers_s)
                    steady_per_s = requests.total() / took_s
                    refused = sum(n for (what, status), n in requests.items() if what == "sli" and status != 200)
                    say(f"{changes} pods replaced: {dict(requests)}")
                    await running.stop()
                    for agent in self._agents:
                        agent.streaming = False
                    self.told.at.clear()
                    began_s = time.monotonic()
                    async with operator(kubeconfig, self._folder, self._port) as next_one:
                        await until(lambda: next_one.runs() and self._all_have_plans(), "all have them again", LIMIT_S)
                        restart_s = time.monotonic() - began_s
                        await asyncio.sleep(AFTER_S)
                    assert not any(task.done() for task in tasks), "an agent ended"
        return Figures(
            self._size,
            first_plans_s,
            agents_s,
            sorted(self.told.plans_s),
            late,
            self.told.differ,
            sorted(answers_s),
            refused,
            self._offered_per_s,
            changes,
            sent,
            cpu,
            quiet_cpu,
            quiet_per_s,
            writes,
            connection,
            alone,
            with_agents,
            at_end,
            restart_s,
            steady_per_s,
            max(self.told.at.values()),
        )

    async def _quiet(self, running: Operator) -> tuple[float, float]:
        """Return which part of a core the operator takes while nothing changes, and the requests in a second."""
        self.told.requests.clear()
        cpu_s, began_s = running.cpu_s(), time.monotonic()
        await asyncio.sleep(QUIET_S)
        took_s = time.monotonic() - began_s
        return (running.cpu_s() - cpu_s) / took_s, self.told.requests.total() / took_s

    @property
    def _offered_per_s(self) -> float:
        return self._size.nodes * CHANGES_PER_S_OF_NODE

    async def _change(self, seconds: float) -> int:
        """Replace pods at a steady rate, any of all; returns how many."""
        self.api.on_ready = self.told.ready
        began_s, count = time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            while count < passed_s * self._offered_per_s:
                number = count * 7_919 % self._size.pods
                await self.api.change(partial(self.cluster.replace, number))
                count += 1
            await asyncio.sleep(0.01)
        self.api.on_ready = lambda _: None
        return count

    def _all_have_plans(self) -> bool:
        return all(agent.streaming for agent in self._agents)

    @contextmanager
    def _running(self) -> Iterator[list[asyncio.Task[None]]]:
        tasks = [asyncio.create_task(agent.run()) for agent in self._agents]
        try:
            yield tasks
        finally:
            for task in tasks:
                task.cancel()


def measured(
    size: Size, seconds: float, say: Callable[[str], None] = lambda _: None, *, by_real: bool = False
) -> Figures:
    """Measure one size. `by_real`: with a real API server."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        try:
            api = stack.enter_context(real(folder / "api")) if by_real else ApiServer(folder)
            return asyncio.run(Bench(size, folder, api).run(seconds, say))
        except BaseException:
            log = folder / "operator.log"
            say(log.read_text()[-4_000:] if log.exists() else "the operator did not start")
            raise


def size_of(nodes: int) -> Size:
    """Return what a cluster of so many nodes has."""
    return Size(nodes, nodes * PODS_OF_NODE, max(nodes // NODES_OF_PROBE, 1))


@click.command()
@click.option(
    "--nodes", multiple=True, type=int, help="Only clusters of this size; repeatable.  [default: 500 to 5000]"
)
@click.option("--seconds", default=SECONDS, show_default=True, help="For how long pods are replaced.")
@click.option(
    "--api-server",
    type=click.Choice(["played", "real"]),
    default="played",
    show_default=True,
    help="real: etcd and kube-apiserver on loopback, compiled at first; it takes a processor of its own.",
)
def main(*, nodes: tuple[int, ...], seconds: float, api_server: str) -> None:
    """Measure the operator under clusters of several sizes. It needs two cores and, for 5,000 nodes, about 4 GB."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which a shell in the background has ignored
    signal.signal(signal.SIGTERM, lambda *_: signal.raise_signal(signal.SIGINT))  # unwinds: the operator ends
    console, found, failed = Console(width=160), [], ""
    for size in map(size_of, nodes or NODES):
        console.rule(f"{size.nodes:,} nodes")
        try:
            found.append(measured(size, seconds, console.print, by_real=api_server == "real"))
        except (AssertionError, OSError) as error:  # the smaller ones have their say
            failed = f"{size.nodes:,} nodes: {error}"
            console.print(failed)
            break
        console.print(table(found))
    BUILD.mkdir(parents=True, exist_ok=True)
    summary = [{"nodes": one.size.nodes, **dict(rows(one))} for one in found]
    (BUILD / "scale.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    console.print(BUILD / "scale.json")
    if failed:
        raise click.ClickException(failed)


if __name__ == "__main__":
    main()
