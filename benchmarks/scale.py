"""`make bench-scale`: the operator, as a process of its own, under clusters of several sizes; docs/design/scale.md.

The API server (`api_server.py`) and the agents (`scale_agents.py`) are played, in one process beside the operator's;
between them is what is real: HTTP, watches, TLS, the directory's protocol. What is told is what they saw, so what they
themselves took is in it.
"""

import asyncio
import json
import ssl
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

import click
from aiohttp import web
from rich.console import Console
from rich.table import Table

from benchmarks.api_server import ApiServer
from benchmarks.builds import BUILD
from benchmarks.made_cluster import Cluster, Size, probes
from benchmarks.operator_process import LIMIT_S, Operator, operator
from benchmarks.scale_agents import Agent, Told
from benchmarks.scale_connection import cost
from tests.support.certificates import make_certificate
from tests.support.ports import free_port
from tests.support.waiting import until

NODES = (500, 1_000, 2_000, 5_000)
PODS_OF_NODE, NODES_OF_PROBE = 30, 5
CLUSTER_SCOPE = 10
CHANGES_PER_S_OF_NODE = 0.02  # 100 a second of 5,000 nodes
SECONDS = 60.0
RECENT_S = 20.0  # in which every agent has posted all that it posts
QUIET_S = 30.0  # in which nothing changes
LATE_S = 5.0
AFTER_S = 5.0  # what follows when all agents are back


class Figures(NamedTuple):
    """What was seen of one size; times in s, memory in bytes.

    `connection`: memory of an idle connection; `alone`: without agents; `with_agents`: with them, before anything
    changed; `at_end`: after. `quiet_per_s`: requests of all agents while nothing changes, `quiet_cpu`: the operator's
    CPU of a core then. `changes`: pods that were replaced; `writes`: to the API server meanwhile, by kind; `sent`:
    bytes of plan streams; `late`: pods that were in no plan 5 s after the last change. `restart_s`: from the start of
    another operator until every agent has its plan; `steady_per_s`, `restart_per_s`: requests of all agents while pods
    are replaced, and the most in one second of a restart.
    """

    size: Size
    first_plans_s: float
    agents_s: float
    plans_s: list[float]
    late: int
    differ: int
    answers_s: list[float]
    refused: int
    changes: int
    sent: int
    cpu: float
    quiet_cpu: float
    quiet_per_s: float
    writes: dict[str, int]
    connection: float
    alone: int
    with_agents: int
    at_end: int
    restart_s: float
    steady_per_s: float
    restart_per_s: int


class Bench:
    """One size. `folder`: for its files."""

    def __init__(self, size: Size, folder: Path) -> None:
        self.api = ApiServer()
        self.cluster = Cluster(size, self.api.put, self.api.drop)
        for probe in probes(size, CLUSTER_SCOPE):
            self.api.put("latencyprobes", probe)
        self.told = Told()
        self._size = size
        self._folder = folder
        make_certificate(folder, "tls")
        self._trust = ssl.create_default_context(cafile=str(folder / "tls.crt"))
        self._port = free_port()
        self._agents = [Agent(f"node-{i}", "127.0.0.1", self._port, self._trust, self.told) for i in range(size.nodes)]

    async def run(self, seconds: float, say: Callable[[str], None]) -> Figures:
        """Measure everything. `seconds`: for how long pods are replaced."""
        async with self._served() as server:
            async with operator(server, self._folder, self._port) as running:
                connection = await cost(running, self._port, self._trust)
            began_s = time.monotonic()
            async with operator(server, self._folder, self._port) as running:
                first_plans_s = time.monotonic() - began_s
                await until(lambda: self.api.labelled() == self._size.nodes, "all nodes are labelled", LIMIT_S)
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
                    self.api.writes.clear()
                    self.told.answers_s.clear()
                    self.told.requests.clear()
                    sent, cpu_s, began_s = self.told.bytes_read, running.cpu_s(), time.monotonic()
                    changes = await self._change(seconds)
                    with suppress(AssertionError):  # what is later than that is late
                        await until(lambda: not self.told.waited, "all changes have arrived", LATE_S)
                    took_s = time.monotonic() - began_s
                    running.runs()
                    sent, cpu = self.told.bytes_read - sent, (running.cpu_s() - cpu_s) / took_s
                    late, writes, at_end = len(self.told.waited), dict(self.api.writes), running.memory()
                    requests, answers_s = Counter(self.told.requests), list(self.told.answers_s)
                    steady_per_s = requests.total() / took_s
                    refused = sum(n for (what, status), n in requests.items() if what == "sli" and status != 200)
                    say(f"{changes} pods replaced: {dict(requests)}")
                    await running.stop()
                    for agent in self._agents:
                        agent.streaming = False
                    self.told.at.clear()
                    began_s = time.monotonic()
                    async with operator(server, self._folder, self._port) as next_one:
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

    async def _change(self, seconds: float) -> int:
        """Replace pods at a steady rate, any of all; returns how many."""
        per_s, began_s, count = self._size.nodes * CHANGES_PER_S_OF_NODE, time.monotonic(), 0
        while (passed_s := time.monotonic() - began_s) < seconds:
            while count < passed_s * per_s:
                number = count * 7_919 % self._size.pods
                self.told.waited[self.cluster.replace(number)] = time.monotonic()
                count += 1
            await asyncio.sleep(0.01)
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

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[str]:
        app = web.Application(client_max_size=64 << 20)
        app.router.add_route("*", "/{path:.*}", self.api.answer)
        runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        try:
            yield f"http://127.0.0.1:{runner.addresses[0][1]}"
        finally:
            await runner.cleanup()


def measured(size: Size, seconds: float, say: Callable[[str], None] = lambda _: None) -> Figures:
    """Measure one size."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            return asyncio.run(Bench(size, Path(folder)).run(seconds, say))
        except BaseException:
            log = Path(folder) / "operator.log"
            say(log.read_text()[-4_000:] if log.exists() else "the operator did not start")
            raise


def size_of(nodes: int) -> Size:
    """Return what a cluster of so many nodes has."""
    return Size(nodes, nodes * PODS_OF_NODE, max(nodes // NODES_OF_PROBE, 1))


def quantile(sorted_: Sequence[float], share: float) -> float:
    """Return a quantile, NaN of nothing."""
    return sorted_[min(int(share * len(sorted_)), len(sorted_) - 1)] if sorted_ else float("nan")


def rows(found: Figures) -> list[tuple[str, str]]:
    """Return what is told of a size: names and figures."""
    size, per_change = found.size, max(found.changes, 1)
    probes_ = f"{size.probes:,} + {min(CLUSTER_SCOPE, size.probes)}"
    answers = (f"{quantile(found.answers_s, share) * 1e3:.0f}" for share in (0.5, 0.99))
    per_agent = (found.with_agents - found.alone) / size.nodes
    of_agent = f"{per_agent / 1e3:.0f} kB, of which two connections {2 * found.connection / 1e3:.0f} kB"
    cpu_of_change = (found.cpu - found.quiet_cpu) / (size.nodes * CHANGES_PER_S_OF_NODE)
    cpu_of_request = found.quiet_cpu / max(found.quiet_per_s, 1)
    writes = f"{sum(found.writes.values()) / per_change:.2f}"
    kinds = ", ".join(f"{n} {kind}" for kind, n in sorted(found.writes.items()))
    return [
        ("pods / LatencyProbes + of Cluster scope", f"{size.pods:,} / {probes_}"),
        ("first plans after", f"{found.first_plans_s:.1f} s"),
        ("all agents have theirs after", f"{found.agents_s:.1f} s more"),
        ("pods replaced, per s", f"{found.changes:,}, {size.nodes * CHANGES_PER_S_OF_NODE:.0f}"),
        ("pod ready → plan at its agent, p50", f"{quantile(found.plans_s, 0.5):.2f} s"),
        ("... p99", f"{quantile(found.plans_s, 0.99):.2f} s"),
        ("... not within 5 s of the last", f"{found.late}"),
        ("changes that were not the operator's plan", f"{found.differ}"),
        ("plan streams, per change", f"{found.sent / per_change / 1e3:.0f} kB"),
        ("counts of 20 objectives, answers p50 / p99", f"{' / '.join(answers)} ms"),
        ("... not taken", f"{found.refused} of {len(found.answers_s)}"),
        ("operator's CPU meanwhile; before", f"{found.cpu:.0%} of a core; {found.quiet_cpu:.0%}"),
        ("... for each change; request of an agent", f"{cpu_of_change * 1e3:.1f}; {cpu_of_request * 1e3:.2f} ms"),
        ("operator's memory alone", f"{found.alone / 1e6:.0f} MB"),
        ("... with agents", f"{found.with_agents / 1e6:.0f} MB"),
        ("... of each", of_agent),
        ("... at the end", f"{found.at_end / 1e6:.0f} MB"),
        ("writes to the API server, per change", f"{writes} ({kinds})" if kinds else writes),
        ("restart until all agents have their plans", f"{found.restart_s:.1f} s"),
        (
            "requests per s: quiet / steady / most at a restart",
            f"{found.quiet_per_s:.0f} / {found.steady_per_s:.0f} / {found.restart_per_s}",
        ),
    ]


@click.command()
@click.option(
    "--nodes", multiple=True, type=int, help="Only clusters of this size; repeatable.  [default: 500 to 5000]"
)
@click.option("--seconds", default=SECONDS, show_default=True, help="For how long pods are replaced.")
def main(*, nodes: tuple[int, ...], seconds: float) -> None:
    """Measure the operator under clusters of several sizes. It needs two cores and, for 5,000 nodes, about 4 GB."""
    console, found, failed = Console(width=160), [], ""
    for size in map(size_of, nodes or NODES):
        console.rule(f"{size.nodes:,} nodes")
        try:
            found.append(measured(size, seconds, console.print))
        except (AssertionError, OSError) as error:  # the smaller ones have their say
            failed = f"{size.nodes:,} nodes: {error}"
            console.print(failed)
            break
        console.print(_table(found))
    BUILD.mkdir(parents=True, exist_ok=True)
    summary = [{"nodes": one.size.nodes, **dict(rows(one))} for one in found]
    (BUILD / "scale.json").write_text(json.dumps(summary, indent=2, ensure_ascii=False) + "\n")
    console.print(BUILD / "scale.json")
    if failed:
        raise click.ClickException(failed)


def _table(found: Sequence[Figures]) -> Table:
    table = Table("nodes", *(f"{one.size.nodes:,}" for one in found))
    for lines in zip(*map(rows, found), strict=True):
        table.add_row(lines[0][0], *(figure for _, figure in lines))
    return table


if __name__ == "__main__":
    main()
