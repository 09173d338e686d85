"""Listener: the kernel's counts, what records add to them, and the agent's own figures, as OTLP metrics."""

import logging
from collections.abc import Mapping, Set
from typing import NamedTuple

from latencyprobe.sli import added
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.rules import NO_RULES
from latencyprobe_agent.measure.turn import AgentStats, InForce, Turn
from latencyprobe_agent.telemetry.count_series import CountSeries
from latencyprobe_agent.telemetry.exemplar_series import ExemplarSeries
from latencyprobe_agent.telemetry.instances import successors
from latencyprobe_agent.telemetry.metric_points import definition_labels, objective_points, target_labels
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.points import Labels, MetricRequests, Point, Resource
from latencyprobe_agent.telemetry.record_histograms import OTHER_OWNER
from latencyprobe_agent.telemetry.record_series import RecordSeries
from latencyprobe_agent.telemetry.selfmetrics import AGENT, SelfMetrics
from latencyprobe_agent.telemetry.series_cap import SeriesCap
from latencyprobe_agent.telemetry.used_again import Anew, begun_anew, begun_anew_of
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.now import Now

_log = logging.getLogger(__name__)


class _Followed(NamedTuple):
    """What is in force; by id, what the points of targets begin with that have totals: of its plan, and those that its
    sets name still; and which of these are `Anew.cut`."""

    in_force: InForce | None
    labels: Mapping[str, Labels]
    cut: Set[str]


class Metrics:
    """Exports to `outbox` once per `config.metric_interval_s`, in boot time. `exemplars`: where spans are made."""

    name = "metrics"

    def __init__(
        self,
        outbox: Outbox,
        own: SelfMetrics,
        config: Config,
        peers: Peers | None,
        *,
        start: Now,
        delta: bool,
        exemplars: ExemplarSeries | None = None,
    ) -> None:
        self._outbox = outbox
        self._own = own
        self._interval_ns = round(config.metric_interval_s * 1e9)
        self._due_ns = start.boot_ns + self._interval_ns
        self._counts = CountSeries(config.series, config.node_series)
        cap = SeriesCap(config.series, config.node_series)
        self._records = RecordSeries(cap, config.identity_wait_s, peers, exemplars or ExemplarSeries(0))
        self._requests = MetricRequests(start.unix_ns, delta=delta)
        self._followed = _Followed(None, {}, frozenset())
        self._stats: AgentStats | None = None
        self._now = start

    def take(self, turn: Turn) -> None:
        """Add the turn up; export when it is time."""
        self._now = turn.now
        if turn.in_force is not self._followed.in_force:
            self._follow(turn.in_force)
        self._records.add(turn)
        if turn.counts is None or turn.stats is None:
            return
        self._counts.add(turn.counts, turn.pressure)
        self._records.name_peers(turn.now.boot_s)
        lag_s = self._stats.drain_lag_s if self._stats else 0.0
        self._stats = turn.stats._replace(drain_lag_s=max(lag_s, turn.stats.drain_lag_s))
        if turn.now.boot_ns >= self._due_ns and not self._make_room():
            self._export(withhold=not self._requests.delta)

    def close(self) -> None:
        """Export once more, with everything."""
        self._records.name_peers()
        self._export()

    def _follow(self, in_force: InForce) -> None:
        before = self._followed.in_force.rules if self._followed.in_force else NO_RULES
        anew = begun_anew(before, in_force.rules, in_force.plan.targets, self._followed.cut)
        if anew.numbers:  # the totals so far, under what the numbers meant
            self._records.name_peers(self._now.boot_s, in_force.rules.used_again(before))
            self._export()
        self._begin_anew(in_force, anew)

    def _make_room(self) -> bool:
        """Export everything and let namespaces that have more than their shares begin anew, if others lack room."""
        over = self._records.cap.share_out() | self._counts.cap.room.share_out()
        in_force = self._followed.in_force
        if not over or in_force is None:
            return False
        _log.warning("series of namespaces %s make room for those of others: they begin anew", ", ".join(sorted(over)))
        self._export()
        self._begin_anew(in_force, begun_anew_of(over, in_force.rules, in_force.plan.targets, self._followed.cut))
        return True

    def _begin_anew(self, in_force: InForce, anew: Anew) -> None:
        """Follow a plan. What begins anew has been exported."""
        self._records.begin_anew(anew.numbers)
        planned = {target.id: target_labels(target) for target in in_force.plan.targets}
        named = {target for one in in_force.rules.sets.values() for target in one.targets}
        known = self._followed.labels if self._followed.in_force else planned
        labels = {id_: own for id_, own in known.items() if id_ in named} | planned
        self._followed = _Followed(in_force, labels, anew.cut)
        objectives = (one for one in in_force.plan.objectives if one.target in labels)
        definitions = {definition_labels(labels[one.target], one) for one in objectives}
        fresh = planned.keys() - known.keys()  # or come back, and nothing is left of them
        of_anew = (labels[target] for target in anew.targets | fresh)
        self._requests.begin_anew(of_anew, {*labels.values(), *definitions}, self._now.unix_ns)
        self._records.cap.follow(in_force.rules.sets, in_force.plan.targets)
        self._counts.follow(in_force, self._now, anew.numbers)

    def _export(self, *, withhold: bool = False) -> None:
        """`withhold`: owners whose instance tells last counts now wait for the next export; no difference has to."""
        self._due_ns = self._now.boot_ns + self._interval_ns
        in_force = self._followed.in_force
        if in_force is None or self._stats is None:
            return
        if self._requests.stepped_back(self._now.unix_ns):
            self._counts.stepped_back(self._now.unix_ns)
        resources = in_force.resources
        gone, ended, idle = self._counts.gone(), self._counts.ended(resources), self._records.idle()
        over = {owner for owner in idle - self._counts.owners if owner in gone or resources.ended(owner)}
        self._requests.forget(over | gone - self._records.owners)
        self._records.forget(over)
        waiting = set[int]()
        if withhold:
            waiting = successors((self._counts.owners - ended) | (self._records.owners - (ended & idle)), resources)
            self._counts.withheld(waiting)
            self._records.withheld(waiting)
        exemplars = self._records.exemplars.take(self._now.offset_ns)
        points = [
            *self._counts.points(in_force, ended | waiting, exemplars),
            *self._records.points(in_force, ended & idle | waiting, exemplars),
            *objective_points(AGENT, in_force.plan),
            *self._own.points(
                self._stats,
                added(self._records.cap.overflow, self._counts.cap.overflow),
                self._counts.keys(in_force),
            ),
        ]
        self._stats = self._stats._replace(drain_lag_s=0.0)
        described = _resources(points, in_force) | {AGENT: self._own.resource}
        for request in self._requests.encode(points, described, self._now.unix_ns):
            self._outbox.put(*request)


def _resources(points: list[Point], in_force: InForce) -> dict[object, Resource]:
    """Return the resource of every owner that has points."""
    of_owner = in_force.resources.attributes
    owners: set[int] = {point.observed for point in points if isinstance(point.observed, int)}
    found: dict[object, Mapping[str, str | int]] = {owner: of_owner(owner) for owner in owners}
    if OTHER_OWNER in found:
        found[OTHER_OWNER] = {**of_owner(0), names.SERVICE_NAME: names.OTHER}
    return found  # type: ignore[return-value]  # attributes are text and whole numbers
