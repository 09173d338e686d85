"""The signal `handshakes`: how long connections took to open, and why some did not.

Receives batches of HANDSHAKE from either method. A connection that opened explains the first exchange on it; one that
failed has none, and is in metrics only. The tool `handshakes` prints the same records. Rules: docs/design/evidence.md,
"Handshakes".
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Evidence, Explains, Sample
from latencyprobe_agent.signals.join_keys import BEGINNING
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import HANDSHAKE, ConnectOutcome, HandshakeFlags, HandshakeMethod, Role

KEY = BEGINNING

_OPENED = [ConnectOutcome.OK, ConnectOutcome.SIMULTANEOUS]
_OUTCOMES = np.array([outcome.name.lower() for outcome in ConnectOutcome])
_METHODS = np.array([method.name.lower() for method in HandshakeMethod])


def columns(batch: NDArray[np.void]) -> Evidence:
    """Return a batch of HANDSHAKE records as evidence of what was before the connections' first exchanges. Raises
    TypeError for records of another kind."""
    if batch.dtype != HANDSHAKE:
        raise TypeError(f"expected records of HANDSHAKE, got {batch.dtype}")
    isn = np.where(batch["flow"]["role"] == Role.CLIENT, batch["client_isn"], batch["server_isn"])
    return Evidence(batch, KEY.of(batch["flow"], first_seq=isn + np.uint32(1)), opened(batch))


def opened(batch: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which connections were established: bool[n]."""
    return np.isin(batch["outcome"], _OPENED)


def fields(record: np.void) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of the span event, times in seconds; what is not known is left out."""
    times = {
        names.HANDSHAKE_RTT: record["rtt_ns"],
        names.HANDSHAKE_CONNECT: record["connect_ns"],
    }
    if record["flags"] & HandshakeFlags.AMBIGUOUS:
        times[names.HANDSHAKE_RTT_MIN] = record["rtt_min_ns"]
        times[names.HANDSHAKE_RTT_MAX] = record["rtt_max_ns"]
    found: dict[Attribute, AttributeValue] = {name: int(ns) / 1e9 for name, ns in times.items() if ns}
    if record["n_syn"]:
        found[names.HANDSHAKE_SYNS] = int(record["n_syn"])
    if record["synack_retransmits"]:
        found[names.HANDSHAKE_SYNACK_RETRANSMITS] = int(record["synack_retransmits"])
    return {
        **found,
        names.OUTCOME: str(_OUTCOMES[record["outcome"]]),
        names.METHOD: str(_METHODS[record["method"]]),
    }


def samples(evidence: Evidence) -> Sequence[Sample]:
    """Return RTTs and connect times."""
    batch = evidence.rec
    rtt = np.flatnonzero(batch["rtt_ns"])
    connect = np.flatnonzero(opened(batch) & (batch["connect_ns"] > 0))
    return (
        Sample(
            names.HANDSHAKE_DURATION,
            rtt,
            batch["rtt_ns"][rtt] / 1e9,
            {names.METHOD: _METHODS[batch["method"][rtt]]},
        ),
        Sample(names.CONNECT_DURATION, connect, batch["connect_ns"][connect] / 1e9),
    )


def counted(keys: NDArray[np.void], gained: NDArray[np.void]) -> Sequence[Sample]:
    """Return connections by outcome, and handshakes whose RTT is not known, as the kernel has counted them."""
    rows, outcomes = np.nonzero(gained["connections"])
    connections, failed = gained["connections"][rows, outcomes], ~np.isin(outcomes, _OPENED)
    ambiguous = np.flatnonzero(gained["ambiguous"])
    return (
        Sample(names.CONNECTIONS, rows, connections, {names.OUTCOME: _OUTCOMES[outcomes]}),
        Sample(
            names.FAILED_CONNECTIONS, rows[failed], connections[failed], {names.REASON: _OUTCOMES[outcomes[failed]]}
        ),
        Sample(names.HANDSHAKE_AMBIGUOUS, ambiguous, gained["ambiguous"][ambiguous]),
    )


def describe(record: np.void, new_ns: int) -> list[tuple[str, int, int]]:
    """Return outcome, SYNs and what the application waited (of a server: the RTT) for a list of slow exchanges."""
    return [(str(_OUTCOMES[record["outcome"]]), int(record["n_syn"]), int(record["connect_ns"] or record["rtt_ns"]))]


def waited(records: NDArray[np.void]) -> NDArray[np.int64]:
    """Return i64[n] ns that applications waited in connect(); 0 at servers, and where the beginning was not seen."""
    return records["connect_ns"].astype(np.int64)


EXPLAINS = Explains(names.HANDSHAKE_EVENT, fields, samples, describe, counted=counted, before=waited)
