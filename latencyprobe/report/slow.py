"""A slow exchange of the store, as the model has it."""

from latencyprobe import sli
from latencyprobe.bounds import MAX_PEER
from latencyprobe.report import units
from latencyprobe.report.model import EvidenceSummary, Slow, Stage, WaitedFor
from latencyprobe.sli import SUMMARIES, WAITED_FOR, SlowExchange

STAGES = 16


def slow(exchange: SlowExchange) -> Slow:
    """Return it within the bounds of a LatencyReport."""
    stages = list(exchange.stages.items())[:STAGES]
    return Slow(
        trace_id=exchange.trace_id[:32],
        time=units.iso(exchange.start_unix_ns),
        duration=units.duration(exchange.duration_ns, digits=6),
        stages=tuple(Stage(stage[:63], units.duration(value_ns, digits=6)) for stage, value_ns in stages),
        peer=exchange.peer[:MAX_PEER],
        error=exchange.error[:63],
        joined=exchange.joined,
        evidence=tuple(map(_summary, exchange.evidence[:SUMMARIES])),
        waited_for=tuple(map(_waited_for, exchange.waited_for[:WAITED_FOR])),
    )


def _waited_for(one: sli.WaitedFor) -> WaitedFor:
    return WaitedFor(one.peer[:MAX_PEER], one.calls, units.duration(one.wait_ns), one.trace_id[:32])


def _summary(one: sli.EvidenceSummary) -> EvidenceSummary:
    wait = units.duration(one.wait_ns) if one.wait_ns else ""
    return EvidenceSummary(one.signal[:63], one.what[:63], one.count, wait)
