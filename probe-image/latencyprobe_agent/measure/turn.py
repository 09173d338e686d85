"""One turn of the loop: everything that one drain of the rings brought, complete before anybody sees it.

What makes something of turns is a `Listener`: SLI rows, spans, metrics, the live line. They know the turn and not each
other, and one that fails concerns no other.
"""

from collections.abc import Mapping
from typing import NamedTuple, Protocol

import numpy as np

from latencyprobe.plan import NodePlan
from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.call_links import NO_CALLS, Calls
from latencyprobe_agent.measure.counts import Snapshot
from latencyprobe_agent.measure.evidence import EvidenceBatch
from latencyprobe_agent.measure.evidence_counts import Gained
from latencyprobe_agent.measure.halves import NO_HALVES, Halves
from latencyprobe_agent.measure.pairing import NO_PAIRS, Pairs
from latencyprobe_agent.measure.pressure import Stall
from latencyprobe_agent.measure.remote_join import RemoteJoin
from latencyprobe_agent.measure.rules import Rules
from latencyprobe_agent.measure.sampling import Sampled
from latencyprobe_agent.vocabulary.now import Now


class InForce(NamedTuple):
    """What is measured, and who owns it. Replaced as a whole: two turns with the same one have the same plan."""

    plan: NodePlan
    rules: Rules
    resources: Resources


class AgentStats(NamedTuple):
    """Counters of the agent itself, since its start, and how late it is.

    `records_read`: of exchanges; `sampled_out`: records that the kernel left out above the limit; `remote_joins`:
    halves asked for by this node and by others, by what became of them; `evidence`, `evidence_lost`: records by signal,
    then by what became of them or by reason; `calls`: client halves by what became of them in the join with who served
    meanwhile; `failures`: by part of the agent, how often it raised and was skipped.
    `drain_lag_s`: the longest time between two drains in the last second; `spans_limited`: LatencyProbes
    (`namespace/probe`) that wanted more spans in the last minute than the node has for all. `pressure_unread`: owners
    of counts whose pressure is not known now, by reason; of single kinds of it, by kind.
    """

    records_read: int = 0
    lost: Mapping[str, int] = {}
    sampled_out: int = 0
    remote_joins: Mapping[str, int] = {}
    evidence: Mapping[str, Mapping[str, int]] = {}
    evidence_lost: Mapping[str, Mapping[str, int]] = {}
    calls: Mapping[str, int] = {}
    failures: Mapping[str, int] = {}
    plan_age_s: float = 0.0
    drain_lag_s: float = 0.0
    spans_limited: tuple[str, ...] = ()
    pressure_unread: Mapping[str, int] = {}


class Turn(NamedTuple):
    """`halves`: what has ended, with the sampling decision; `pairs`: joined on this node, their rows in `halves`;
    `sampled`: halves that become spans, of this turn and earlier ones; `remote`: joined with the help of other nodes;
    `evidence`: what signals recorded and what it explains; `calls`: what servers waited for. `counts` and `stats`: once
    a second, else None; with them `gained`: what signals have counted since, `pressure`: by owner of counts, what its
    container was held up by."""

    now: Now
    in_force: InForce
    halves: Halves
    pairs: Pairs
    sampled: Sampled
    remote: RemoteJoin
    evidence: tuple[EvidenceBatch, ...] = ()
    calls: Calls = NO_CALLS
    counts: Snapshot | None = None
    stats: AgentStats | None = None
    gained: tuple[Gained, ...] = ()
    pressure: Mapping[int, Stall] = {}


_NONE_SAMPLED = Sampled(NO_HALVES, np.zeros((0, 2), np.uint64), np.zeros(0, np.uint8), np.zeros(0))
_NOTHING_JOINED = RemoteJoin(NO_PAIRS, {}, frozenset())


def empty(now: Now, in_force: InForce) -> Turn:
    """Return a turn in which nothing happened."""
    return Turn(now, in_force, NO_HALVES, NO_PAIRS, _NONE_SAMPLED, _NOTHING_JOINED)


class Listener(Protocol):
    """Makes something of turns. `name`: of the part, in metrics, conditions and logs."""

    name: str

    def take(self, turn: Turn) -> None:
        """Take one turn. Returns soon: nothing waits for another host."""

    def close(self) -> None:
        """Hand over what is left: no turn follows."""
