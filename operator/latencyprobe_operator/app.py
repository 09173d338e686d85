"""The running operator: its parts, what each of them needs, and the order in which they begin."""

import asyncio
import gc
import time
from collections import Counter
from contextlib import AsyncExitStack
from functools import partial

from aiohttp import web

from latencyprobe.slo.windows import DAY_S, HOUR_S
from latencyprobe.store import SqliteStore
from latencyprobe_operator import handlers
from latencyprobe_operator.cluster import memory
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.election import Claim, Lease, Term
from latencyprobe_operator.cluster.informer import Informers
from latencyprobe_operator.cluster.loops import Every, Gated, Loop, Loops, Seldom, Trigger, until_one_ends
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.config import Config
from latencyprobe_operator.directory.asked import SAVE_S
from latencyprobe_operator.directory.auth import Authenticator
from latencyprobe_operator.directory.connections import Connections
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.planning import Planning
from latencyprobe_operator.directory.server import Directory
from latencyprobe_operator.directory.tls import FILES_S, Certificate, follow, pair_key
from latencyprobe_operator.metrics import OperatorCollector, Sources, delivery_times, exposition
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.deliveries import Deliveries
from latencyprobe_operator.plan.identities import agents_at, is_pod_of, node_of_pod
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.suspension import suspended_by
from latencyprobe_operator.reports.evaluation import OBSERVE_S, Edits, Evaluation
from latencyprobe_operator.reports.mirror import Mirror
from latencyprobe_operator.reports.reports import Reports
from latencyprobe_operator.reports.shared_store import SharedStore
from latencyprobe_operator.reports.store_file import volume_bytes
from latencyprobe_operator.reports.store_thread import StoreThread
from latencyprobe_operator.reports.writer import ReportWriter
from latencyprobe_operator.rules.rules import Rules
from latencyprobe_operator.rules.writer import RuleWriter
from latencyprobe_operator.status.conditions import StoreState
from latencyprobe_operator.status.labels import Labels
from latencyprobe_operator.status.objective_room import ObjectiveRoom, most
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.registry import RESYNC_S, Registry
from latencyprobe_operator.status.status import why_not_measured
from latencyprobe_operator.status.statuses import UNCHANGED_S, Statuses, Told
from latencyprobe_operator.status.writer import StatusWriter
from latencyprobe_operator.telemetry import Telemetry, telemetry

# What is new when Python's collector looks at the youngest; then how often until it looks at those that stayed, and at
# all: some two million. By default it took an eighth of the processor at 2,000 nodes, and as long as half a second.
COLLECTED_AFTER = (5_000, 20, 20)


async def run(config: Config) -> None:
    """Run until cancelled. Raises LatencyProbeError when it cannot begin: the process must end then."""
    claim = Claim(config.namespace, config.identity)
    async with await Api.connect() as api, Lease(Api.connect, claim) as lease:
        while True:
            await serve(config, api, lease.term())


async def serve(config: Config, api: Api, term: Term) -> None:
    """Lead from when the Lease is ours until another process has it. Then all begins anew, as that one's plans are
    newer than what we know."""
    async with AsyncExitStack() as ending:
        own = telemetry(config.namespace)
        ending.push_async_callback(asyncio.to_thread, own.close)
        operator = Operator(config, api, term, own)
        runner = operator.directory.runner(operator.metrics)
        ending.push_async_callback(runner.cleanup)
        await runner.setup()
        tls = operator.certificate.context
        await web.TCPSite(runner, config.listen_host, config.listen_port, ssl_context=tls).start()
        await term.begin()
        await until_one_ends(term.over(), operator.lead())


class Operator:
    """The parts of the process. The directory serves health and metrics from the first moment, agents once we lead."""

    def __init__(self, config: Config, api: Api, term: Term, own: Telemetry) -> None:
        changed, edited, planned, status_changed = Trigger(), Trigger(), Trigger(), Trigger()
        rules_edited, evaluated = Trigger(), Trigger()
        cluster, writes, agents = Cluster(api), Writes(term.left_s), Agents(lambda: ingest.pacing.status_s)
        room = memory.room(memory.limit())
        state = ClusterState(room)
        planner = Planner(int(time.time() * 1000), pair_key(config.pair_key_file))
        registry = Registry(
            *(changed.set, edited.set, rules_edited.set),
            room=room // 2,
            objectives=ObjectiveRoom(
                lambda: most(volume_bytes(config.store), config.store_limit_bytes),
                limited=config.store_limit_bytes is not None,
            ),
        )
        self._loops = Loops()
        self._informers = Informers(api, state, changed.set)
        dropped = Counter[str]()
        self._store_thread = StoreThread(
            partial(SqliteStore, config.store, move_damaged=True, lost=dropped),
            partial(SqliteStore, config.store, readonly=True),
        )
        self._kopf = partial(handlers.watching, registry.happened, self._loops.failed)
        is_agent = partial(is_pod_of, state, config.agent_namespace)
        connections = Connections(is_agent, lambda address: bool(state.node_at(address)))
        self.certificate = Certificate(config.tls_dir, connections)

        ingest = Ingest(self._store_thread, nodes=lambda: len(planner.plans), dropped=dropped)
        auth = Authenticator(
            cluster,
            config.agent_namespace,
            config.agent_service_account,
            partial(node_of_pod, state),
            is_agent=is_agent,
        )
        delivery = delivery_times()
        deliveries = Deliveries(delivery.observe, own.observe, delivered=own.delivered)
        self.directory = Directory(
            *(planner, agents, state, ingest, auth),
            unconfirmed_s=self._informers.unconfirmed_s,
            on_report=status_changed.set,
            connections=connections,
            deliveries=deliveries,
            agents_at=partial(agents_at, state, config.agent_namespace),
        )
        planning = Planning(
            planner,
            agents,
            registry,
            state,
            ingest.asked,
            changed=changed,
            streams=self.directory,
            planned=(lambda: self.directory.keep(state.nodes().keys()), planned.set, status_changed.set),
            deliveries=deliveries,
            suspended_by=partial(suspended_by, state, config.namespace, chart=config.suspend),
        )
        shared = _shared_store(config, self._store_thread.failures)
        report_writer = ReportWriter(cluster, writes, state)
        evaluation = Evaluation(
            planner,
            agents,
            self._store_thread,
            probes=lambda: registry.probes,
            upload_s=lambda: ingest.pacing.usual_s,
            evaluated=(status_changed, evaluated),
            shared=shared,
            why_not=lambda: why_not_measured(registry.written),
        )
        mirror = Mirror(report_writer, cluster, writes, state) if config.open_reports else report_writer
        reports = Reports(mirror, lambda: evaluation.reports, lambda: registry.refused, evaluated)
        rule_writer = RuleWriter(cluster, writes, state, config.rule_labels or {})
        rules = Rules(cluster, rule_writer, probes=lambda: registry.probes, edited=rules_edited, told=status_changed)
        statuses = Statuses(
            registry,
            planner,
            agents,
            StatusWriter(cluster, writes, state),
            told=Told(
                evaluation.figures,
                placement=partial(Placement, state, config.agent_namespace, config.agent_tolerations),
                store=partial(_store_state, self._store_thread, evaluation, shared, ephemeral=config.store_ephemeral),
                rules=rules.problem,
            ),
            changed=status_changed,
            loops=self._loops,
            return_s=lambda: ingest.pacing.return_s,
        )
        files = partial(follow, self.certificate, config.pair_key_file, planning.use_pair_key)
        self._first: tuple[Loop, ...] = (Every("resync", RESYNC_S, partial(registry.resync, cluster.probes)), planning)
        self._then: tuple[Loop, ...] = (
            Gated(Every("asked", SAVE_S, ingest.asked.save), self._store_thread.works),
            Gated(Every("compaction", HOUR_S, self._store_thread.compact), self._store_thread.works),
            evaluation,
            Edits(evaluation, edited),
            Gated(Seldom(statuses, UNCHANGED_S), term.may_write),
        )
        self._others: tuple[Loop, ...] = (
            Gated(Labels(cluster, writes, state, planner, planned), term.may_write),
            Gated(reports, term.may_write),
            Every("expected", OBSERVE_S, evaluation.observe),
            Every("files", FILES_S, files),
        )
        if config.rule_labels is not None:
            self._others += (Gated(rules, term.may_write),)
        figures = OperatorCollector(
            Sources(
                informers=self._informers.of.values,
                node_states=lambda: agents.states(planner.nodes, planner.plan_of, time.monotonic()).values(),
                probes=lambda: len(registry.entries),
                without_room=lambda: planner.without_room + registry.without_room,
                suspended=lambda: bool(registry.suspended_by),
                left_out=state.room.count,
                streams=lambda: len(self.directory.streams.of),
                connections=lambda: len(connections),
                connections_cut=lambda: connections.cut,
                requests=self.directory.requests,
                rows_accepted=lambda: ingest.accepted,
                rows_dropped=dropped,
                lookups=self.directory.answers.lookups.counts,
                commits=lambda: ingest.intake.commits,
                upload_s=lambda: ingest.pacing.next_s,
                remote_joins=self.directory.streams.switchboard.counts,
                writes=writes.counts,
                evaluations=evaluation.counts,
                loop_failures=self._loops.failures,
                store_works=lambda: self._store_thread.problem is None,
                store_failures=self._store_thread.failures,
                damaged_files=lambda: len(self._store_thread.file.moved),
                expected_forgotten=lambda: evaluation.expected.waiting.forgotten,
                may_write=lambda: term.left_s() > 0,
                unconfirmed_s=self._informers.unconfirmed_s,
            )
        )
        self.metrics = exposition(figures, delivery)
        own.export(figures)

    async def lead(self) -> None:
        """Run everything until cancelled."""
        await until_one_ends(self._informers.run(self._loops), self._keep_store(), self._begin())

    async def _keep_store(self) -> None:
        """Open the store, which may take longer than agents can wait, and mend it whenever it fails."""
        async with self._store_thread:
            await self._store_thread.keep()

    async def _begin(self) -> None:
        """List everything and plan; then answer agents, and run all loops."""
        await self._informers.synced()
        for loop in self._first:
            await self._loops.insist(loop.name, loop.turn)
        gc.unfreeze()  # of an earlier term
        gc.collect()
        gc.freeze()  # what is here now stays: each pass of the collector over it takes half a second at 1,000 nodes
        gc.set_threshold(*COLLECTED_AFTER)
        loops = (self._loops.run(loop) for loop in (*self._first, *self._others))
        async with self._kopf():
            await until_one_ends(self.directory.serve(), self._report(), *loops)

    async def _report(self) -> None:
        """Ask the store and evaluate; then go on with it, and write statuses, which have figures from the first on."""
        await self._store_thread.tried()
        for loop in self._then:
            await self._loops.attempt(loop.name, loop.turn)
        await until_one_ends(*(self._loops.run(loop) for loop in self._then))


def _shared_store(config: Config, failures: Counter[str]) -> SharedStore | None:
    if config.shared_store is None:
        return None
    return SharedStore(config.shared_store, partial(SqliteStore, config.store, readonly=True), failures)


def _store_state(
    thread: StoreThread, evaluation: Evaluation, shared: SharedStore | None, *, ephemeral: bool
) -> StoreState:
    """Return how the store is, as statuses tell it."""
    problem, recent = thread.problem, [one.path.name for one in thread.file.moved if time.time() - one.at < DAY_S]
    return StoreState(
        reason=problem.reason if problem else "",
        problem=str(problem or ""),
        incomplete=evaluation.incomplete,
        moved=recent[0] if recent else "",
        shared=shared.problem if shared else "",
        ephemeral=ephemeral,
    )
