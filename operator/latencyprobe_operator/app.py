"""The running operator: waits for the Lease, runs the loops until one ends or it is cancelled.

`commands.py` calls `run`. Everything here is wiring: the directory serves from the first moment (health), plans flow
once every kind was listed, and losing the Lease ends the process, which the kubelet starts again.
"""

import asyncio
import datetime
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any

from latencyprobe_operator.handlers import kopf_registry  # isort: skip  # before kopf: no synchronous client
import kopf
from aiohttp import web

from latencyprobe.errors import ClusterError, LatencyProbeError
from latencyprobe.slo.objective import ObjectiveKey, objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator import agents, reports, status
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
from latencyprobe_operator.planner import Planner
from latencyprobe_operator.registry import Registry
from latencyprobe_operator.state import ClusterState
from latencyprobe_operator.wanted import LAG_S, WantedTime, missing_nodes
from latencyprobe_operator.writer import Writer

log = logging.getLogger(__name__)

DEBOUNCE_S = 0.2
RETRY_S = 5.0  # label writes that failed
STATUS_S = 2.0  # statuses are written at most this often
SETTLING_S = 20.0  # agents report every 15 s
RESYNC_S = 60.0
EVALUATE_S = 60.0  # when the counts of a minute are complete
FILES_S = 10.0


async def run(config: Config, take_signals: Callable[[], None]) -> None:
    """Run until cancelled. Raises LatencyProbeError when it cannot go on: the process must end then.

    `take_signals` makes SIGTERM cancel this, again after kopf has taken the signals for itself.
    """
    async with await Api.connect() as api:
        operator = Operator(config, api, take_signals)
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

    def __init__(self, config: Config, api: Api, take_signals: Callable[[], None]) -> None:
        self._config, self._take_signals = config, take_signals
        self.certificate = Certificate(config.tls_dir)
        self._changed = asyncio.Event()
        self._planned = asyncio.Event()
        self._status_changed = asyncio.Event()
        self._state = ClusterState()
        self._agents = agents.Agents()
        self._planner = Planner(int(time.time() * 1000), pair_key(config.pair_key_file))
        self._registry = Registry(self._changed.set)
        self._informers = Informers(api, self._state, self._changed.set)
        self._cluster = Cluster(api)
        self._books = Books(partial(SqliteStore, config.store))
        self._ingest = Ingest(self._books, self._objectives)
        self._wanted = WantedTime()
        self._reports: dict[str, reports.Document] = {}
        self._writer = Writer(self._cluster)
        self._evaluations: Counter[str] = Counter()
        self._failures: Counter[str] = Counter()
        self._leading, self._began = False, time.monotonic()
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
                recalled=self.directory.switchboard.counts,
                writes=self._writer.counts,
                evaluations=self._evaluations,
                failures=self._failures,
            )
        )

    async def lead(self, lease: Lease) -> None:
        """Run everything until cancelled, the Lease is lost, or a part fails."""
        self._informers.reset()
        self._leading, self._began = True, time.monotonic()
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
                self.directory.close()
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
        await self._tried("evaluate", self._evaluate)
        self.directory.open()
        log.info(
            "serving: %d LatencyProbes, %d nodes to measure", len(self._registry.entries), len(self._planner.nodes)
        )
        async with asyncio.TaskGroup() as group:
            loops = [
                group.create_task(loop)
                for loop in (
                    self._plan_loop(),
                    self._label_loop(),
                    self._status_loop(),
                    self._every(lambda: EVALUATE_S - (time.time() - LAG_S) % EVALUATE_S, "evaluate", self._evaluate),
                    self._every(lambda: RESYNC_S, "resync", lambda: self._registry.resync(self._cluster.probes)),
                    self._every(lambda: FILES_S, "reload", self._reload),
                )
            ]
            try:
                await self._run_kopf()
            finally:
                for loop in loops:
                    loop.cancel()

    async def _run_kopf(self) -> None:
        """Run kopf until cancelled. It must not catch a signal: it would then wait 5 s for all tasks that are younger
        than itself, and these are the directory's connections."""
        older = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(registry=kopf_registry(self._registry), clusterwide=True, standalone=True)
        self._take_signals()
        await kopf.run_tasks(tasks, ignored=older)

    def _replan(self) -> None:
        """Bring plans up to date, and tell whom it concerns."""
        changed = self._planner.update(self._registry.probes, self._state, self._state.take_changes())
        self._agents.planned(changed, self._planner.nodes, time.monotonic())
        for node in changed:
            self._ingest.planned(self._planner.plan_of(node))
        self.directory.published(changed)
        self._planned.set()
        self._status_changed.set()

    async def _plan_loop(self) -> None:
        """Plan after each change, debounced."""
        while True:
            await self._changed.wait()
            await asyncio.sleep(DEBOUNCE_S)
            self._changed.clear()
            self._replan()

    async def _label_loop(self) -> None:
        """Set and remove node labels after each plan, again until it worked."""
        while True:
            self._planned.clear()
            worked = await self._writer.labels(self._planner.nodes, self._state)
            with suppress(TimeoutError):
                async with asyncio.timeout(None if worked else RETRY_S):
                    await self._planned.wait()

    async def _status_loop(self) -> None:
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(5 * STATUS_S):  # time alone changes states: an agent falls silent
                    await self._status_changed.wait()
            self._status_changed.clear()
            self._wanted.observe(self._planner.plans, self._agents, time.monotonic(), time.time())
            await self._tried("statuses", self._write_statuses)
            await asyncio.sleep(STATUS_S)

    async def _write_statuses(self) -> None:
        now = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        settling = time.monotonic() - self._began < SETTLING_S
        desired = {}
        for key, entry in self._registry.entries.items():
            resolved = self._planner.resolved.get(key)
            if entry.probe is not None and (resolved is None or resolved.probe != entry.probe):
                continue  # planned in a moment
            states = self._states(resolved.nodes) if resolved is not None else {}
            if settling and agents.NodeState.STARTING in states.values() and self._registry.written.get(key):
                continue  # it was ready before our restart, and its agents report again within moments
            results = self._reports.get(key[0], {}).get("results", ())
            desired[key] = status.status(
                entry,
                resolved if entry.probe is not None else None,
                states=states,
                agents=self._agents,
                figures=[r for r in results if r["probe"] == key[1]],
                previous=self._registry.written.get(key),
                now=now,
                store_ephemeral=self._config.store_ephemeral,
            )
        await self._writer.statuses(desired, self._registry, self._state)

    async def _evaluate(self) -> None:
        """Store the wanted time, evaluate, write the reports that changed."""
        now, probes = int(time.time()), list(self._registry.probes.values())
        for keys, minute, wanted_ms in self._wanted.finished(now):
            await self._books.run(self._books.store.want, keys, minute, wanted_ms)
        missing = missing_nodes(self._planner.plans, self._states(self._planner.nodes))
        self._reports = await self._books.run(reports.evaluate, self._books.store, probes, now, missing)
        for report in self._reports.values():
            self._evaluations.update("failed" if "reason" in result else "ok" for result in report["results"])
        self._status_changed.set()
        await self._writer.reports(self._reports, self._state)

    async def _reload(self) -> None:
        """Follow the mounted certificate and pairing key."""
        if self.certificate.refresh():
            log.info("the directory has a new certificate")
        changed = self._planner.use_pair_key(pair_key(self._config.pair_key_file))
        self.directory.published(changed)

    def _states(self, nodes: frozenset[str]) -> dict[str, agents.NodeState]:
        return {node: self._agents.state(node, self._planner.plan_of(node), time.monotonic()) for node in sorted(nodes)}

    def _objectives(self) -> frozenset[ObjectiveKey]:
        return frozenset(o.key for probe in self._registry.probes.values() for o in objectives(probe))

    def _node_of_agent(self, name: str, uid: str) -> str:
        pod = self._state.pod((self._config.agent_namespace, name))
        return pod.node if pod is not None and pod.uid == uid else ""

    async def _every(
        self, pause_s: Callable[[], float], name: str, work: Callable[[], Coroutine[Any, Any, None]]
    ) -> None:
        """Do something again and again."""
        while True:
            await asyncio.sleep(pause_s())
            await self._tried(name, work)

    async def _tried(self, name: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Do something; what fails, foreseen or not, is counted, logged and done at its next turn."""
        try:
            await work()
        except Exception as error:
            self._failures[name] += 1
            log.error("%s: %s", name, error, exc_info=not isinstance(error, LatencyProbeError))

    async def _retried(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        backoff = Backoff()
        while True:
            try:
                return await work()
            except ClusterError as error:
                log.warning("%s", error)
                await backoff.wait(error)
