"""A cluster of two network namespaces: a pod of callers and a pod that serves, an agent each, a real directory."""

import asyncio
import os
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

from aiohttp import web
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe import parsing
from latencyprobe.sli import SliRow
from latencyprobe.store import SqliteStore
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator, FakeReviewer
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.server import Directory
from latencyprobe_operator.directory.tls import Certificate
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.expected import objective_keys
from latencyprobe_operator.reports.store_thread import StoreThread
from tests.support.otlp import spans
from tests.support.waiting import until
from tests.truth import workload
from tests.truth.join import Truth

PORT = 8123
DOCUMENT = {
    "apiVersion": "latencyprobe.dev/v1alpha1",
    "kind": "LatencyProbe",
    "metadata": {"name": "p", "namespace": "shop", "uid": "probe-uid", "generation": 1},
    "spec": {
        "targets": [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": [PORT]}],
        "objectives": [{"name": "f", "target": "cart", "threshold": "25ms", "goal": "99", "perspective": "Client"}],
        "spans": {"ratio": "0", "maxPerSecond": 1000},
    },
}


class Host(NamedTuple):
    """A node: its pod, and the command prefix that runs something in that."""

    node: str
    pod: Pod
    prefix: list[str]


def two_hosts() -> Iterator[dict[str, Host]]:
    """The pods `web` (10.97.0.1) on node n1 and `cart` (10.97.0.2) on n2: a network namespace and a cgroup each."""
    root, made, namespaces = find_root(), {}, []
    slice_of_pods = root / f"lp-{os.getpid()}-kubepods"
    try:
        for number, app in enumerate(("web", "cart"), start=1):
            uid = f"00000000-0000-4000-8000-{os.getpid():08x}000{number}"
            container = f"{os.getpid():063x}{number}"  # of this run: agents of another one see its cgroups too
            folder = slice_of_pods / f"pod{uid}" / container
            folder.mkdir(parents=True)
            namespaces.append(f"lp-{os.getpid()}-{app}")
            ip("netns", "add", namespaces[-1])
            enter = ["sh", "-c", f'echo $$ > {folder}/cgroup.procs && exec "$@"', "sh"]
            containers = (Container("main", container),)
            pod = Pod(uid, "shop", f"{app}-1", f"n{number}", {"app": app}, (f"10.97.0.{number}",), containers)
            made[app] = Host(f"n{number}", pod, [*enter, "ip", "netns", "exec", namespaces[-1]])
        ip("link", "add", "lp1", "netns", namespaces[0], "type", "veth", "peer", "lp1", "netns", namespaces[1])
        for number, name in enumerate(namespaces, start=1):
            ip("-n", name, "addr", "add", f"10.97.0.{number}/24", "dev", "lp1")
            ip("-n", name, "link", "set", "lp1", "up")
        service = (
            "table ip lp { chain out { type nat hook output priority -100; ip daddr 10.96.0.7 dnat to 10.97.0.2\n}\n}\n"
        )
        subprocess.run([*made["web"].prefix, "nft", "-f", "-"], input=service, text=True, check=True)
        ip("-n", namespaces[0], "route", "add", "10.96.0.0/16", "dev", "lp1")
        yield made
    finally:
        for name in namespaces:
            ip("netns", "del", name)
        for folder in sorted(slice_of_pods.rglob("*/"), reverse=True):
            if folder.is_dir():
                folder.rmdir()
        slice_of_pods.rmdir()


def slow_rpcs(hosts: dict[str, Host], log: Path, total: int, cause: str) -> Truth:
    """Let `web` call `cart` through its Service, 400 times a second; each tenth takes 40 ms, for this cause."""
    return workload.run_apart(
        *(log, hosts["cart"].prefix, hosts["web"].prefix),
        address=f"10.97.0.2:{PORT}",
        dial=f"10.96.0.7:{PORT}",
        total=total,
        rate=400,
        every=10,
        cause=cause,
        cause_ms=40,
        max_size=20_000,
    )


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


class Cluster:
    """The directory's world and everything that it and the collector were told."""

    def __init__(self, hosts: dict[str, Host], books: StoreThread) -> None:
        state = ClusterState()
        pods = [host.pod for host in hosts.values()]
        cart = hosts["cart"].pod
        endpoints = (SliceEndpoint(cart.uid, cart.addresses),)
        objects: dict[str, list[Any]] = {
            "nodes": [Node(f"uid-{pod.node}", pod.node) for pod in pods],
            "namespaces": [Namespace("shop")],
            "pods": pods,
            "services": [Service("shop", "cart", ("10.96.0.7",), (("rpc", PORT),))],
            "endpointslices": [Slice("shop", "cart-abc", "cart", (("rpc", PORT),), endpoints)],
        }
        for kind, items in objects.items():
            for item in items:
                state.put(kind, item)
        self.agents, self.planner = Agents(), Planner(1000, os.urandom(32))
        ingest = self.ingest = Ingest(books)
        users = {pod.node: Reviewed("system:serviceaccount:a:agent", extra={NODE_CLAIM: [pod.node]}) for pod in pods}
        auth = Authenticator(FakeReviewer(users), "a", "agent", lambda *_: "")
        self.directory = Directory(self.planner, self.agents, state, ingest, auth)
        probe = parsing.parse(DOCUMENT)
        for node in self.planner.update({("shop", "p"): probe}, state, state.take_changes()):
            ingest.asked.planned(self.planner.plan_of(node))
        self.directory.open()
        self.books = books
        self.spans: list[Span] = []

    async def collect(self, request: web.Request) -> web.Response:
        """Play the collector."""
        self.spans += [span for _, span in spans([await request.read()])]
        return web.Response()

    async def read_row(self) -> SliRow:
        """The client's counts so far, also as `row`."""
        (key,) = objective_keys(self.planner.plan_of("n1"))
        now = int(time.time())
        await self.books.run(self.books.store.settle)
        self.row = await self.books.run(self.books.store.read, key, now - 3600, now + 60)
        return self.row

    def state(self) -> tuple[SliRow, dict[str, int]]:
        """The counts last read, and what became of the keys so far."""
        return self.row, dict(self.directory.streams.switchboard.counts)


@asynccontextmanager
async def cluster(hosts: dict[str, Host], tls_files: tuple[Path, ...], folder: Path) -> AsyncIterator[Cluster]:
    """A directory, a collector, and an agent on each node that has applied its plan."""
    shutil.copy(tls_files[0], folder / "tls.crt")
    shutil.copy(tls_files[1], folder / "tls.key")
    async with StoreThread(lambda: SqliteStore(folder / "sli.db")) as books:
        it = Cluster(hosts, books)
        await it.ingest.asked.save()
        collecting = web.Application()
        collecting.add_routes([web.post("/v1/traces", it.collect), web.post("/v1/metrics", it.collect)])
        runners = [it.directory.runner(shutdown_timeout=0.1), web.AppRunner(collecting, shutdown_timeout=0.1)]
        agents = []
        try:
            for runner, tls in zip(runners, (Certificate(folder).context, None), strict=True):
                await runner.setup()
                await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
            directory, collector = (runner.addresses[0][1] for runner in runners)
            for host in hosts.values():
                agents.append(start_agent(host.node, directory, collector, folder))
            await until(lambda: len(it.agents.applied) == 2, f"both agents measure; their logs are in {folder}", 120)
            yield it
            for agent in agents:
                print(resident(agent.pid))
        finally:
            for agent in agents:
                agent.terminate()
            for agent in agents:
                await asyncio.to_thread(agent.wait, 60)
            for runner in runners:
                await runner.cleanup()


def start_agent(node: str, directory_port: int, collector_port: int, folder: Path) -> subprocess.Popen[bytes]:
    (folder / node).write_text(node)
    environment = {
        **os.environ,
        "LATENCYPROBE_NODE": node,
        "LATENCYPROBE_DIRECTORY": f"https://localhost:{directory_port}",
        "LATENCYPROBE_TOKEN_FILE": str(folder / node),
        "LATENCYPROBE_CA_FILE": str(folder / "tls.crt"),
        "LATENCYPROBE_CGROUP_ROOT": str(find_root()),
        "LATENCYPROBE_STATE_DIR": str(folder / f"state-{node}"),
        "LATENCYPROBE_HEALTH_PORT": "0",
        "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{collector_port}",
        "OTEL_METRICS_EXPORTER": "none",
    }
    command = [str(Path(sys.executable).with_name("latencyprobe")), "agent"]
    with (folder / f"{node}.log").open("w") as log:
        return subprocess.Popen(command, env=environment, stderr=log)


def resident(pid: int) -> str:
    status = Path(f"/proc/{pid}/status").read_text()
    return next(line for line in status.splitlines() if line.startswith("VmRSS"))
