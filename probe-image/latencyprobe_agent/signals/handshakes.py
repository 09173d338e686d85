"""The signal `handshakes`: how long connections took to open, and why some did not; tcp-evidence.md section C.

Receives batches of HANDSHAKE from either method. A connection that opened explains the first exchange on it; one that
failed has none, and is in metrics only. The tool `handshakes` prints the same records.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Attribute, Evidence, Explains, Sample
from latencyprobe_agent.signals.join_keys import BEGINNING
from latencyprobe_agent.vocabulary.records import HANDSHAKE, ConnectOutcome, HandshakeFlags, HandshakeMethod, Role

EVENT = "handshake"
KEY = BEGINNING

_OPENED = [ConnectOutcome.OK, ConnectOutcome.SIMULTANEOUS]
_OUTCOMES = np.array([outcome.name.lower() for outcome in ConnectOutcome])
_METHODS = np.array([method.name.lower() for method in HandshakeMethod])


def columns(batch: NDArray[np.void]) -> Evidence:
    """Return a batch of HANDSHAKE records as evidence of what was before the connections' first exchanges."""
    if batch.dtype != HANDSHAKE:
        raise TypeError(f"expected records of HANDSHAKE, got {batch.dtype}")
    isn = np.where(batch["flow"]["role"] == Role.CLIENT, batch["client_isn"], batch["server_isn"])
    return Evidence(batch, KEY.of(batch["flow"], first_seq=isn + np.uint32(1)), opened(batch))


def opened(batch: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which connections were established: bool[n]."""
    return np.isin(batch["outcome"], _OPENED)


def fields(record: np.void) -> Mapping[str, Attribute]:
    """Return the attributes of the span event, times in seconds; what is not known is left out."""
    times = {
        "latencyprobe.handshake.rtt": record["rtt_ns"],
        "latencyprobe.handshake.connect": record["connect_ns"],
    }
    if record["flags"] & HandshakeFlags.AMBIGUOUS:
        times["latencyprobe.handshake.rtt_min"] = record["rtt_min_ns"]
        times["latencyprobe.handshake.rtt_max"] = record["rtt_max_ns"]
    found: dict[str, Attribute] = {name: int(ns) / 1e9 for name, ns in times.items() if ns}
    if record["n_syn"]:
        found["latencyprobe.handshake.syns"] = int(record["n_syn"])
    if record["synack_retransmits"]:
        found["latencyprobe.handshake.synack_retransmits"] = int(record["synack_retransmits"])
    return {
        **found,
        "latencyprobe.outcome": str(_OUTCOMES[record["outcome"]]),
        "latencyprobe.method": str(_METHODS[record["method"]]),
    }


def samples(evidence: Evidence) -> Sequence[Sample]:
    """Return RTTs and connect times, and counts of failures and of handshakes whose RTT is not known."""
    batch = evidence.rec
    established = opened(batch)
    rtt = np.flatnonzero(batch["rtt_ns"])
    connect = np.flatnonzero(established & (batch["connect_ns"] > 0))
    failed = np.flatnonzero(~established)
    ambiguous = np.flatnonzero(batch["flags"] & HandshakeFlags.AMBIGUOUS)
    return (
        Sample(
            "latencyprobe.tcp.handshake.duration",
            rtt,
            batch["rtt_ns"][rtt] / 1e9,
            {"latencyprobe.method": _METHODS[batch["method"][rtt]]},
        ),
        Sample("latencyprobe.tcp.connect.duration", connect, batch["connect_ns"][connect] / 1e9),
        Sample(
            "latencyprobe.tcp.failed_connections",
            failed,
            np.ones(len(failed), np.int64),
            {"latencyprobe.reason": _OUTCOMES[batch["outcome"][failed]]},
        ),
        Sample("latencyprobe.tcp.handshake.ambiguous", ambiguous, np.ones(len(ambiguous), np.int64)),
    )


def describe(record: np.void) -> tuple[str, int, int]:
    """Return outcome, SYNs and what the application waited (of a server: the RTT) for a list of slow exchanges."""
    return str(_OUTCOMES[record["outcome"]]), int(record["n_syn"]), int(record["connect_ns"] or record["rtt_ns"])


EXPLAINS = Explains(EVENT, fields, samples, describe)
