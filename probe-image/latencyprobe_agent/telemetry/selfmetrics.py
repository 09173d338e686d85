"""The agent's own metrics: what was read, lost, left out and failed, and what it costs. Resource: the agent."""

import os
import resource
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.resources import sdk
from latencyprobe_agent.measure.turn import AgentStats
from latencyprobe_agent.telemetry.endpoints import OtlpSignal
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.points import Labels, Point
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue, Metric
from latencyprobe_agent.vocabulary.undelivered import Undelivered

AGENT = "agent"  # `Point.observed` of these points


class SelfMetrics:
    """`room`: where spans wait, None if none are made. `resource`: the agent's attributes."""

    def __init__(
        self,
        outboxes: Mapping[OtlpSignal, Outbox],
        room: WaitingRoom | None,
        config: Config,
        *,
        standalone: bool,
        undelivered: Callable[[], Undelivered] = Undelivered,
    ) -> None:
        self.resource = agent_resource(config, host=standalone)
        self._outboxes = outboxes
        self._room = room
        self._undelivered = undelivered

    def points(
        self, stats: AgentStats, series_overflow: Mapping[str, int], counts_keys: Mapping[str, int]
    ) -> Iterator[Point]:
        """Yield the agent's points. `series_overflow`: series of each namespace that were folded into `other`;
        `counts_keys`: its keys in the kernel's table of counts."""
        yield from _loop(stats)
        yield from _counted(names.COUNTS_KEYS, (), names.PROBE_NAMESPACE, counts_keys)
        yield from _counted(names.SERIES_OVERFLOW, (), names.PROBE_NAMESPACE, series_overflow)
        rows = self._undelivered()
        yield from _counted(names.SLI_ROWS_DROPPED, (), names.REASON, rows.dropped)
        yield Point(AGENT, names.SLI_ROWS_WAITING, (), rows.waiting)
        if self._room is not None:
            yield Point(AGENT, names.PEERS_UNRESOLVED, (), self._room.unresolved)
            yield Point(AGENT, names.SPANS_UNNAMED, (), self._room.unnamed)
            yield Point(AGENT, names.SPANS, ((names.OUTCOME, "left_out"),), self._room.left_out)
            yield Point(AGENT, names.EVIDENCE, ((names.OUTCOME, "unshown"),), self._room.evidence.unshown)
            yield Point(AGENT, names.CALL_OUTCOMES, ((names.OUTCOME, "unshown"),), self._room.calls.unshown)
        for name, outbox in self._outboxes.items():
            items = names.SPANS if name == "traces" else names.DATA_POINTS
            yield Point(AGENT, items, ((names.OUTCOME, "delivered"),), outbox.sent_items)
            yield Point(AGENT, items, ((names.OUTCOME, "dropped"),), outbox.dropped_items)
            labels = ((names.OTLP_SIGNAL, name),)
            yield Point(AGENT, names.OUTBOX_SIZE, labels, outbox.size_bytes)
            yield from _counted(names.EXPORT_ERRORS, labels, names.ERROR_TYPE, outbox.errors.copy())
        usage = resource.getrusage(resource.RUSAGE_SELF)
        yield Point(AGENT, names.CPU_TIME, ((names.CPU_MODE, "user"),), usage.ru_utime)
        yield Point(AGENT, names.CPU_TIME, ((names.CPU_MODE, "system"),), usage.ru_stime)
        if (resident := resident_bytes()) is not None:
            yield Point(AGENT, names.MEMORY, (), resident)


def _loop(stats: AgentStats) -> Iterator[Point]:
    signal: Labels = ((names.SIGNAL, "exchanges"),)
    yield Point(AGENT, names.RECORDS_READ, signal, stats.records_read)
    yield from _counted(names.RECORDS_LOST, signal, names.REASON, stats.lost)
    yield Point(AGENT, names.RECORDS_EXCLUDED, (*signal, (names.REASON, "sampled_out")), stats.sampled_out)
    for name, reasons in stats.evidence_lost.items():
        yield from _counted(names.RECORDS_LOST, ((names.SIGNAL, name),), names.REASON, reasons)
    for name, outcomes in stats.evidence.items():
        yield from _counted(names.EVIDENCE, ((names.SIGNAL, name),), names.OUTCOME, outcomes)
    yield from _counted(names.CALL_OUTCOMES, (), names.OUTCOME, stats.calls)
    yield from _counted(names.REMOTE_JOINS, (), names.OUTCOME, stats.remote_joins)
    yield from _counted(names.AGENT_FAILURES, (), names.PART, stats.failures)
    yield from _counted(names.PRESSURE_UNREAD, (), names.REASON, stats.pressure_unread)
    yield Point(AGENT, names.PLAN_AGE, (), stats.plan_age_s)
    yield Point(AGENT, names.DRAIN_LAG, (), stats.drain_lag_s)


def _counted(metric: Metric, labels: Labels, label: Attribute, counts: Mapping[str, int]) -> Iterator[Point]:
    for value, count in counts.items():
        yield Point(AGENT, metric, (*labels, (label, value)), count)


def agent_resource(config: Config, *, host: bool) -> dict[str, AttributeValue]:
    """Return the agent's own resource."""
    attributes: dict[str, AttributeValue] = {
        names.SERVICE_NAME: "latencyprobe-agent",
        names.SERVICE_INSTANCE_ID: config.instance,
        (names.HOST_NAME if host else names.K8S_NODE_NAME): config.node,
        **sdk(),
    }
    if config.pod:
        attributes[names.K8S_POD_NAME] = config.pod
    if config.pod_namespace:
        attributes[names.K8S_NAMESPACE_NAME] = config.pod_namespace
    return attributes


def resident_bytes() -> int | None:
    """Return the resident memory of this process, None where /proc cannot be read."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return None
