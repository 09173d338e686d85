"""What halves and pairs know of bytes that waited to be sent, as evidence of the exchanges that it concerns.

A half knows what its own end held; a pair lets each half know of the other's, and bounds it: what an end held after its
last send call is part of `network`.
"""

import numpy as np
from numpy.typing import NDArray

from latencyprobe.unsent import SIGNAL
from latencyprobe_agent.measure.evidence import EvidenceBatch, Joined
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.recent import recent
from latencyprobe_agent.measure.stages import NETWORK_AT
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.signals.unsent import EXPLAINS, columns, held


def of_halves(halves: Halves, pairs: Pairs) -> EvidenceBatch | None:
    """Return what the ends of a batch held themselves, each once. `pairs`: of this batch."""
    at = held(halves.rec)
    at = at[halves.counted[at]]
    if not len(at):
        return None
    most_ns = np.full(len(halves), np.iinfo(np.int64).max)
    for of_pair in (pairs.client_at, pairs.server_at):
        most_ns[of_pair[of_pair >= 0]] = pairs.stages[of_pair >= 0, NETWORK_AT]
    some = halves.take(at)
    found = columns(some.rec, np.minimum(some.rec["held_ns"].astype(np.int64), most_ns[at]), some.adjusted_count)
    return EvidenceBatch(SIGNAL, EXPLAINS, found, _joined(found, some, np.ones(len(some), np.bool_)), None)


def of_pairs(pairs: Pairs) -> list[EvidenceBatch]:
    """Return what the other end of each half held. It is in metrics with the half whose end held it, not here."""
    both = ((pairs.of_servers, pairs.servers, pairs.clients), (pairs.of_clients, pairs.clients, pairs.servers))
    found = []
    for of_holders, holders, others in both if len(pairs) else ():
        rows = np.flatnonzero(of_holders(_reason))
        if len(rows):
            found.append(_of_others(pairs, rows, holders(rows), others(rows)))
    return found


def _of_others(pairs: Pairs, rows: NDArray[np.intp], holders: Halves, others: Halves) -> EvidenceBatch:
    held_ns = np.minimum(holders.rec["held_ns"].astype(np.int64), pairs.stages[rows, NETWORK_AT])
    found = columns(holders.rec, held_ns, pairs.adjusted_count[rows])
    alone = others.rec["unsent_reason"] == 0  # else its own account has counted it
    return EvidenceBatch(SIGNAL, EXPLAINS, found.take(np.zeros(0, np.intp)), _joined(found, others, alone), None)


def _joined(found: Evidence, halves: Halves, first: NDArray[np.bool_]) -> Joined:
    """Return evidence of these halves. `first`: nothing of it was joined to that half before."""
    rows, held_ns = recent(halves), found.rec["held_ns"]
    rows["adjusted_count"] = found.rec["adjusted_count"]
    return Joined(found, rows, held_ns, held_ns, first)


def _reason(halves: Halves) -> NDArray[np.uint8]:
    reason: NDArray[np.uint8] = halves.rec["unsent_reason"]
    return reason
