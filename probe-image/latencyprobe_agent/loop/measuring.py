"""Measuring while the programs are attached: one object per load, driven by the loop of `app.py`.

`drain()` turns records into halves, pairs and spans; `tick()` does once a second what cannot be done per batch: end
quiet exchanges, read counts, follow plan and cgroups. Every call returns soon; nothing waits for another host.
"""

import logging
import os
import time
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe.plan import NodePlan
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory import peers
from latencyprobe_agent.identity.cgroups import Cgroup, CgroupTree, find_root
from latencyprobe_agent.identity.resources import PodResources, ProcessResources, Resources
from latencyprobe_agent.kernel.clock import Clock, Sleeps
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.loop.control import Control
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.loop.remote_join import RemoteJoiner
from latencyprobe_agent.measure.counts import Ended
from latencyprobe_agent.measure.halves import flag_suspended, halves
from latencyprobe_agent.measure.pairing import LocalJoin
from latencyprobe_agent.measure.rules import NO_RULES, Rules, compile_rules
from latencyprobe_agent.sli.slicing import Slicer

if TYPE_CHECKING:
    from latencyprobe_agent.telemetry.pipeline import Pipeline

_log = logging.getLogger(__name__)
_BATCH = 1024  # records: 0.2 MiB, and about five times that while they are measured
# Halves that have not met their other half, also for other nodes to ask for: 165 bytes each, 2.7 MB. That is
# 30 s of 546 such halves a second; a caller asks about 1 s after its exchange, so 16,000 a second find theirs.
_WAITING = 16_384
_BATCHES_AT_ONCE = 256  # then the clock is looked at again


_FORGET_INTERVAL_S = 60.0


class Moment(NamedTuple):
    """How measuring stands at a tick. `keys`, `totals` and `lost` as `Programs` gives them, followed by the counts of
    owners that have ended: the first `living` rows are of others. The rest counts since attach."""

    plan: NodePlan
    rules: Rules
    keys: NDArray[np.void]
    totals: NDArray[np.void]
    living: int
    lost: Mapping[str, int]
    records: int
    pairs: int


class Measuring(AbstractContextManager["Measuring"]):
    """Attached programs and everything that their records go through. Raises Unsupported when they cannot attach."""

    def __init__(self, config: Config, control: Control) -> None:
        self.pipeline: Pipeline | None = None
        self.problem: Unsupported | None = None
        self.programs = Programs.open(config.bpf_object, ring_bytes=config.ring_bytes)
        self._config = config
        self._control = control
        self._clock = Clock()
        self._sleeps = Sleeps()
        self._join = LocalJoin(_WAITING)
        self._joiner = RemoteJoiner(control.remote_join, config) if control.remote_join else None
        self._explaining = EvidenceSignals(partial(EvidencePrograms.beside, self.programs, config.bpf_dir))
        self._slicer = Slicer(self._clock.now_ns())
        self._ended = Ended()
        self._forgot = time.monotonic()
        self._plan: NodePlan | None = None
        self._rules: Rules = NO_RULES
        self._tree: CgroupTree | None = None
        self._cgroups: Mapping[int, Cgroup] = {}
        self._surveyed = 0.0
        self._resources: Resources | None = None
        self._records = self._pairs = 0
        self._drained = time.monotonic()
        self._lag_s = 0.0

    def __exit__(self, *_: object) -> None:
        self._explaining.__exit__()
        self.programs.close()

    @property
    def variants(self) -> Mapping[str, str]:
        """Attach variant in use by event, those of evidence under their signal's name."""
        return {**self.programs.variants, **self._explaining.variants}

    def follow(self) -> None:
        """Put the control's plan in force, if it or the cgroups of its pods have changed."""
        plan = self._control.plan()
        if plan is None:
            return
        cgroups = {} if plan.host else self._scan()
        if plan is self._plan and cgroups == self._cgroups:
            return
        resources: Resources
        if plan.host:
            resources, pods = self._resources or ProcessResources(plan.node), {}
        else:
            before = self._resources if isinstance(self._resources, PodResources) else None
            resources = PodResources(plan, cgroups, before)
            pods = resources.pod_cgroups()
        rules = compile_rules(plan, pods, self._rules)
        self._count()
        try:
            self._apply(plan, rules, plan.idle_timeout_ns)
        except Unsupported as error:
            if self.problem is None or str(error) != str(self.problem):
                _log.error("%s; measuring goes on with the plan before", error)
            self.problem = error
            return
        for target, reason in rules.refused.items():
            _log.error("target %s is not measured: %s", target, reason)
        if plan != self._plan:
            _log.info("plan in force", extra={"generation": plan.generation, "targets": len(plan.targets)})
        self.problem, self._plan, self._rules = None, plan, rules
        self._cgroups, self._resources = cgroups, resources
        self._slicer.apply(plan, rules)
        if self.pipeline:
            self.pipeline.use(plan, rules)

    def export_to(self, pipeline: "Pipeline | None") -> None:
        """Export from now on."""
        self.pipeline = pipeline
        if pipeline and self._plan:
            pipeline.use(self._plan, self._rules)

    def drain(self, *, to_the_end: bool = False) -> None:
        """Take what is in the ring, and send the spans that need not wait any longer."""
        now_s = time.monotonic()
        self._lag_s, self._drained = max(self._lag_s, now_s - self._drained), now_s
        for batch in self._batches():
            if self._plan is None:
                continue
            measured = halves(batch, self._plan.pair_key)
            self._sleeps.watch()  # after these have ended
            flag_suspended(measured, self._sleeps.known)
            if self.pipeline:
                self.pipeline.choose(measured, self._clock.now_ns())
            pairs = self._join.join(measured)
            self._records += len(batch)
            self._pairs += len(pairs)
            offset_ns, now_ns = self._clock.offset_ns, self._clock.now_ns()
            self._slicer.add_records(measured, pairs, offset_ns, now_ns + offset_ns)
            if self.pipeline:
                self.pipeline.measure(measured, pairs, now_ns)
            self._explaining.keep(measured)
            if self._joiner:
                self._joiner.consider(measured, pairs, self._rules.sets, now_ns)
        self._explain()
        if self._resources is None:
            return
        self._recall(self._resources)
        if self.pipeline:
            asking = self._joiner.asking if self._joiner else ()
            now_ns, offset_ns = self._clock.now_ns(), self._clock.offset_ns
            self.pipeline.send_spans(self._resources, now_ns, offset_ns, asking, all_of_them=to_the_end)

    def tick(self) -> Moment | None:
        """Do what is due once a second. Return how measuring stands, None without a plan."""
        self.programs.flush()
        if step_ns := self._clock.resample():
            _log.warning("the wall clock stepped by %.3f s; durations are not affected", step_ns / 1e9)
        self.follow()
        self._explaining.follow(self._rules)  # here and not in follow(): measuring begins before
        self._explaining.tick()
        if self.pipeline:
            self.pipeline.name_peers(self._clock.now_ns())
        return self._count()

    def upload(self) -> None:
        """Hand over the SLI rows so far."""
        if rows := self._slicer.take(self._peer_name):
            self._control.take(rows)

    def export(self, moment: Moment) -> None:
        """Queue the metrics as they stand."""
        if self.pipeline is None or self._resources is None:
            return
        from latencyprobe_agent.telemetry.metrics import Counts  # noqa: PLC0415 - loaded with the pipeline

        remote_joins = self._joiner.counts if self._joiner else {}
        from latencyprobe_agent.telemetry.selfmetrics import AgentStats  # noqa: PLC0415 - same

        own = AgentStats(
            self._records,
            moment.lost,
            self._control.plan_age_s(),
            self._lag_s,
            remote_joins,
            sampled_out=int(moment.totals["sampled_out_records"].sum()),
            evidence=self._explaining.outcomes,
            evidence_lost=self._explaining.lost,
        )
        now_unix_ns = self._clock.now_ns() + self._clock.offset_ns
        living = Counts(moment.keys[: moment.living], moment.totals[: moment.living])
        self.pipeline.export(living, self._resources, own, now_unix_ns)
        self._lag_s = 0.0

    def end(self) -> Moment | None:
        """Take everything in that is complete, hand it over, and say how it stands at last."""
        if self._plan:
            # Nothing is waited for any more: what is complete now is ended by the flush, however recent.
            self._apply(self._plan, self._rules, 0)
        self.programs.flush()
        self.drain(to_the_end=True)
        self._explaining.give_up()
        moment = self._count()
        self.upload()
        if self.pipeline and moment:
            self.pipeline.name_peers(self._clock.now_ns(), all_of_them=True)
            self.export(moment)
        return moment

    def _explain(self) -> None:
        """Join what TCP did to the exchanges of this drain and of those before."""
        now_ns = self._clock.now_ns()
        for batch in self._explaining.drain(now_ns):
            if self.pipeline:
                self.pipeline.explained(batch.explains, batch.records, batch.joined, now_ns)
            for found in (batch.joined, batch.shared):
                if found is not None:
                    unix_ns = now_ns + self._clock.offset_ns
                    self._slicer.add_evidence(batch.signal.switch, batch.explains, found, unix_ns)

    def _recall(self, resources: Resources) -> None:
        """Ask other nodes for what is due, answer what they ask, and take in what they told."""
        if self._joiner is None:
            return
        now_ns, offset_ns = self._clock.now_ns(), self._clock.offset_ns
        turn = self._joiner.turn(self._join, resources, self._explaining.of, now_ns / 1e9)
        self._explaining.remote(turn.answers)
        if len(turn.pairs):
            self._pairs += len(turn.pairs)
            self._slicer.add_recalled(turn.pairs, offset_ns, now_ns + offset_ns)
        if self.pipeline and (len(turn.pairs) or len(turn.lone)):
            self.pipeline.recalled(turn.pairs, turn.peers, turn.lone, now_ns)

    def _apply(self, plan: NodePlan, rules: Rules, idle_timeout_ns: int) -> None:
        own = os.getpid() if plan.host else 0  # in a pod our cgroup is in no scope, and our number another one
        self.programs.apply(
            rules,
            idle_timeout_ns=idle_timeout_ns,
            own_tgid=own,
            owner_by_process=plan.host,
            records_per_second=self._config.records_per_second,
        )

    def _batches(self) -> Iterator[NDArray[np.void]]:
        for _ in range(_BATCHES_AT_ONCE):
            batch = self.programs.drain(_BATCH)
            if len(batch):
                yield batch
            if len(batch) < _BATCH:
                return

    def _count(self) -> Moment | None:
        """Read the kernel's counts and slice them into SLI rows."""
        if self._plan is None:
            return None
        (keys, totals), lost = self.programs.counts(), self.programs.lost()
        now = time.monotonic()
        # not before the last counts of an ended owner were exported
        if self._resources and now - self._forgot >= max(_FORGET_INTERVAL_S, 2 * self._config.metric_interval_s):
            self._forgot = now
            over = self._ended.choose(keys, totals, self._resources.ended)
            self.programs.forget(keys[over])
            keys, totals = keys[~over], totals[~over]
        living = len(keys)
        keys, totals = self._ended.join(keys, totals)
        now_ns = self._clock.now_ns()
        self._slicer.add_counts(keys, totals, lost, now_ns, now_ns + self._clock.offset_ns)
        return Moment(self._plan, self._rules, keys, totals, living, lost, self._records, self._pairs)

    def _scan(self) -> Mapping[int, Cgroup]:
        """Return the pods' cgroups. Raises Unsupported where there is no cgroup v2 tree."""
        now = time.monotonic()
        if self._tree is None:
            self._tree = CgroupTree(find_root(self._config.cgroup_root))
            self._surveyed = -self._config.survey_interval_s
        if now - self._surveyed >= self._config.survey_interval_s:
            self._tree.survey()
            self._surveyed = now
        return self._tree.scan()

    def _peer_name(self, packed: bytes) -> str:
        peer = peers.address(packed)
        known = self._control.peers.resolve([peer]) if self._control.peers else {}
        return peers.name(known.get(peer), peer)
