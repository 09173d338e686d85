"""The agent's own metrics: what was read, lost, left out and failed, and what it costs. Resource: the agent.

`app.py` fills an `AgentStats` once per export; this turns it into points.
"""

import os
import resource
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.resources import sdk
from latencyprobe_agent.signals.evidence import Attribute
from latencyprobe_agent.telemetry.endpoints import Signal
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.points import Point
from latencyprobe_agent.vocabulary import conventions as names

AGENT = "agent"  # `Point.observed` of these points


class AgentStats(NamedTuple):
    """Counters since the start. `lost`: by reason; `sampled_out`: records left out above the limit; `remote_joins`: by
    what became of the halves; `evidence`, `evidence_lost`: by signal, then by what became of the records or by reason;
    `spans_left_out`: chosen ones that never became a span."""

    records_read: int
    lost: Mapping[str, int]
    plan_age_s: float
    drain_lag_s: float
    remote_joins: Mapping[str, int] = {}
    sampled_out: int = 0
    evidence: Mapping[str, Mapping[str, int]] = {}
    evidence_lost: Mapping[str, Mapping[str, int]] = {}
    peers_unresolved: int = 0
    spans_left_out: int = 0
    series_overflow: int = 0


def points(own: AgentStats, outboxes: Mapping[Signal, Outbox]) -> Iterator[Point]:
    """Yield the agent's points."""
    signal = ((names.SIGNAL, "exchanges"),)
    yield Point(AGENT, names.RECORDS_READ, signal, own.records_read)
    for reason, count in own.lost.items():
        yield Point(AGENT, names.RECORDS_LOST, (*signal, (names.REASON, reason)), count)
    yield Point(AGENT, names.RECORDS_EXCLUDED, (*signal, (names.REASON, "sampled_out")), own.sampled_out)
    for name, reasons in own.evidence_lost.items():
        for reason, count in reasons.items():
            yield Point(AGENT, names.RECORDS_LOST, ((names.SIGNAL, name), (names.REASON, reason)), count)
    for name, outcomes in own.evidence.items():
        for outcome, count in outcomes.items():
            yield Point(AGENT, names.EVIDENCE, ((names.SIGNAL, name), (names.OUTCOME, outcome)), count)
    for outcome, count in own.remote_joins.items():
        yield Point(AGENT, names.REMOTE_JOINS, ((names.OUTCOME, outcome),), count)
    yield Point(AGENT, names.PEERS_UNRESOLVED, (), own.peers_unresolved)
    yield Point(AGENT, names.SERIES_OVERFLOW, (), own.series_overflow)
    yield Point(AGENT, names.PLAN_AGE, (), own.plan_age_s)
    yield Point(AGENT, names.DRAIN_LAG, (), own.drain_lag_s)
    yield Point(AGENT, names.SPANS, ((names.OUTCOME, "left_out"),), own.spans_left_out)
    if "traces" in outboxes:
        yield Point(AGENT, names.SPANS, ((names.OUTCOME, "delivered"),), outboxes["traces"].sent_items)
        yield Point(AGENT, names.SPANS, ((names.OUTCOME, "dropped"),), outboxes["traces"].dropped_items)
    for name, outbox in outboxes.items():
        labels = ((names.SIGNAL, name),)
        yield Point(AGENT, names.OUTBOX_SIZE, labels, outbox.size_bytes)
        for error, count in outbox.errors.copy().items():
            yield Point(AGENT, names.EXPORT_ERRORS, (*labels, (names.ERROR_TYPE, error)), count)
    usage = resource.getrusage(resource.RUSAGE_SELF)
    yield Point(AGENT, names.CPU_TIME, ((names.CPU_MODE, "user"),), usage.ru_utime)
    yield Point(AGENT, names.CPU_TIME, ((names.CPU_MODE, "system"),), usage.ru_stime)
    yield Point(AGENT, names.MEMORY, (), resident_bytes())


def agent_resource(config: Config, *, host: bool) -> dict[str, Attribute]:
    """Return the agent's own resource."""
    attributes: dict[str, Attribute] = {
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


def resident_bytes() -> int:
    """Return the resident memory of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
