"""The running operator: waits for the Lease, runs the loops until one ends or a signal comes.

`commands.py` calls `run`. Everything here is wiring: the directory serves from the first moment (health), plans flow
once every kind was listed, and losing the Lease ends the process, which the kubelet starts again.
"""

import asyncio
import datetime
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from latencyprobe_operator.handlers import kopf_registry  # isort: skip  # first: keeps the synchronous client out
import kopf
from aiohttp import web

from latencyprobe.errors import ClusterError, LatencyProbeError
from latencyprobe.store import SqliteStore
from latencyprobe_operator import agents, reconcile, reports, status
from latencyprobe_operator.api import Api, Backoff
from latencyprobe_operator.books import Books
from latencyprobe_operator.cluster import Cluster
from latencyprobe_operator.config import Config
from latencyprobe_operator.directory.auth import Authenticator
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.server import Directory
from latencyprobe_operator.directory.tls import Certificate, pair_key
from latencyprobe_operator.election import Lease
from latencyprobe_operator.informer import Informers
from latencyprobe_operator.metrics import Sources, exposition
from latencyprobe_operator.objects import Key
from latencyprobe_operator.planner import Planner
from latencyprobe_operator.registry import Registry
from latencyprobe_operator.state import ClusterState
from latencyprobe_operator.wanted import LAG_S, WantedTime, missing_nodes

log = logging.getLogger(__name__)

DEBOUNCE_S = 0.2
RETRY_S = 5.0  # label writes that failed
STATUS_S = 2.0  # statuses are written at most this often
RESYNC_S = 60.0
EVALUATE_S = 60.0  # when the counts of a minute are complete
FILES_S = 10.0


async def run(config: Config) -> None:
    """Run until cancelled. Raises LatencyProbeError when it cannot go on: the process must end then."""
    async with await Api.connect() as api:
        operator = Operator(config, api)
        runner = web.AppRunner(operator.directory.app(), access_log=None, shutdown_timeout=2.0)
        await runner.setup()
        try:
            tls = operator.certificate.context
            await web.TCPSite(runner, config.listen_host, config.listen_port, ssl_context=tls).start()
            lease = Lease(api, config.namespace, config.identity)
            await lease.acquire()
            try:
                await operator.lead(lease)
            finally:
                await lease.release()
        finally:
            await runner.cleanup()


class Operator:
    """The parts, and the loops of the one process that holds the Lease."""

    def __init__(self, config: Config, api: Api) -> None:
        self._config = config
        self.certificate = Certificate(config.tls_dir)
        self._changed = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._state = ClusterState()
        self._agents = agents.Agents()
        self._planner = Planner(int(time.time() * 1000), pair_key(config.pair_key_file))
        self._registry = Registry(self._changed.set)
        self._informers = Informers(api, self._state, self._changed.set)
        self._cluster = Cluster(api)
        self._books = Books(partial(SqliteStore, config.store))
        self._ingest = Ingest(self._books)
        self._wanted = WantedTime()
        self._reports: dict[str, reports.Document] = {}
        self._written_reports: dict[str, reports.Document] = {}
        self._writes: Counter[tuple[str, str]] = Counter()
        self._leading = False
        auth = Authenticator(self._cluster, config.agent_namespace, config.agent_service_account, self._node_of_agent)
        self.directory = Directory(
            self._planner,
            self._agents,
            self._state,
            self._ingest,
            auth,
            deaf=lambda: self._informers.deaf() if self._leading else [],
            heard=self._status_changed.set,
        )
        self.directory.metrics = exposition(
            Sources(
                informers=self._informers.of.values,
                node_states=lambda: self._states(self._planner.nodes).values(),
                probes=lambda: len(self._registry.entries),
                streams=lambda: len(self.directory.streams),
                requests=self.directory.requests,
                rows_accepted=lambda: self._ingest.accepted,
                rows_dropped=self._ingest.dropped,
                writes=self._writes,
            )
        )

    async def lead(self, lease: Lease) -> None:
        """Run everything until the Lease is lost, a part fails, or kopf has caught a signal."""
        self._informers.reset()
        self._leading = True
        async with self._books:
            tasks = {
                asyncio.create_task(work, name=name)
                for name, work in {
                    "lease": self._hold(lease),
                    "informers": self._informers.run(),
                    "main": self._main(),
                }.items()
            }
            try:
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    async def _hold(self, lease: Lease) -> None:
        await lease.hold()
        raise ClusterError("the Lease is lost: ending, so that only its holder writes")

    async def _main(self) -> None:
        """List everything, plan, open the directory; then watch and loop until kopf ends."""
        await self._informers.synced()
        await self._retried(lambda: self._registry.resync(self._cluster.probes))
        self._replan()
        await self._tried(self._evaluate)
        self.directory.open()
        log.info(
            "serving: %d LatencyProbes, %d nodes to measure", len(self._registry.entries), len(self._planner.nodes)
        )
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(loop)
                for loop in (
                    self._plan_loop(),
                    self._status_loop(),
                    self._every(lambda: EVALUATE_S - (time.time() - LAG_S) % EVALUATE_S, self._evaluate),
                    self._every(lambda: RESYNC_S, lambda: self._registry.resync(self._cluster.probes)),
                    self._every(lambda: FILES_S, self._reload),
                )
            ]
            try:
                await kopf.operator(registry=kopf_registry(self._registry), clusterwide=True, standalone=True)
            finally:
                for loop in loops:
                    loop.cancel()

    def _replan(self) -> None:
        """Bring plans up to date, and tell whom it concerns."""
        changed = self._planner.update(self._registry.probes, self._state, self._state.take_changes())
        self._agents.planned(changed, self._planner.nodes, time.monotonic())
        for node in changed:
            self._ingest.planned(self._planner.plan_of(node))
        self.directory.published(changed)
        self._status_changed.set()

    async def _plan_loop(self) -> None:
        """Plan after each change, debounced; set and remove node labels, again until it worked."""
        while True:
            self._changed.clear()
            self._replan()
            failed = False
            for change in reconcile.label_changes(self._planner.nodes, self._state.nodes()):
                failed |= not await self._write("label", self._cluster.label_node(*change))
            with suppress(TimeoutError):
                async with asyncio.timeout(RETRY_S if failed else None):
                    await self._changed.wait()
            await asyncio.sleep(DEBOUNCE_S)

    async def _status_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(5 * STATUS_S):  # time alone changes states: an agent falls silent
                    await self._status_changed.wait()
            self._status_changed.clear()
            self._wanted.observe(self._planner.plans, self._agents, time.monotonic(), time.time())
            await self._write_statuses()
            await asyncio.sleep(STATUS_S)

    async def _write_statuses(self) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        desired = {}
        for key, entry in self._registry.entries.items():
            resolved = self._planner.resolved.get(key)
            if entry.probe is not None and (resolved is None or resolved.probe != entry.probe):
                continue  # planned in a moment
            results = self._reports.get(key[0], {}).get("results", ())
            desired[key] = status.status(
                entry,
                resolved if entry.probe is not None else None,
                states=self._states(resolved.nodes) if resolved is not None else {},
                agents=self._agents,
                figures=[r for r in results if r["probe"] == key[1]],
                previous=self._registry.written.get(key),
                now=now,
                store_ephemeral=self._config.store_ephemeral,
            )
        for key in reconcile.status_writes(desired, self._registry.written):
            await self._write_status(key, desired[key])

    async def _write_status(self, key: Key, new: reconcile.Status) -> None:
        """Write one status, and the events that its change is worth."""
        if key not in self._registry.entries:
            return  # deleted while others were written
        uid, old = self._registry.entries[key].uid, self._registry.written.get(key)
        if await self._write("status", self._cluster.write_status(*key, uid, new)):
            self._registry.written[key] = new
            for kind, reason, note in reconcile.transitions(new, old):
                about = {"namespace": key[0], "name": key[1], "uid": uid}
                await self._write("event", self._cluster.post_event(about, kind, reason, note))

    async def _evaluate(self) -> None:
        """Store the wanted time, evaluate, write the reports that changed."""
        now, probes = int(time.time()), list(self._registry.probes.values())
        for keys, minute, wanted_ms in self._wanted.finished(now):
            await self._books.run(self._books.store.want, keys, minute, wanted_ms)
        missing = missing_nodes(self._planner.plans, self._states(self._planner.nodes))
        self._reports = await self._books.run(reports.evaluate, self._books.store, probes, now, missing)
        self._status_changed.set()
        for namespace, report in self._reports.items():
            known = self._state.namespace(namespace)
            if known is None or known.terminating or not reports.differs(report, self._written_reports.get(namespace)):
                continue
            if await self._write("report", self._cluster.write_report(namespace, report)):
                self._written_reports[namespace] = report
        for namespace in self._written_reports.keys() - self._reports.keys():
            del self._written_reports[namespace]

    async def _reload(self) -> None:
        """Follow the mounted certificate and pairing key."""
        if self.certificate.refresh():
            log.info("the directory has a new certificate")
        changed = self._planner.use_pair_key(pair_key(self._config.pair_key_file))
        self.directory.published(changed)

    def _states(self, nodes: frozenset[str]) -> dict[str, agents.NodeState]:
        return {node: self._agents.state(node, self._planner.plan_of(node), time.monotonic()) for node in sorted(nodes)}

    def _node_of_agent(self, name: str, uid: str) -> str:
        pod = self._state.pod((self._config.agent_namespace, name))
        return pod.node if pod is not None and pod.uid == uid else ""

    async def _write(self, kind: str, call: Awaitable[None]) -> bool:
        """Do one write; returns whether it worked. One that failed is asked for again by the level that needs it."""
        try:
            await call
        except ClusterError as error:
            self._writes[kind, "error"] += 1
            log.warning("%s", error)
            return False
        self._writes[kind, "ok"] += 1
        return True

    async def _every(self, pause_s: Callable[[], float], work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something again and again."""
        while True:
            await asyncio.sleep(pause_s())
            await self._tried(work)

    async def _tried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something; what fails is logged and done at its next turn."""
        try:
            await work()
        except LatencyProbeError as error:
            log.error("%s", error)

    async def _retried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        backoff = Backoff()
        while True:
            try:
                return await work()
            except ClusterError as error:
                log.warning("%s", error)
                await backoff.wait(error)
