"""Halves that are kept for later, in half the room: what a pair, a span and a row of counts need of them.

`measure.pairing` keeps rows of KEPT and gets Halves back; of the records only these fields come back, the rest is 0.
"""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.records import EXCHANGE
from latencyprobe_agent.measure import keys
from latencyprobe_agent.measure.halves import Halves

_OF_RECORD = (
    *("cgroup_id", "request_bytes", "response_bytes", "local_addr", "peer_addr", "local_port", "peer_port"),
    *("target_set", "srtt_us", "rtt_min_us", "retransmits", "reader_tgid", "writer_tgid", "flags"),
    *("role", "conn_class", "outcome"),
)
_OF_HALF = {"start_ns": "i8", "stages": "4i8", "trace_id": "2u8", "chosen": "u1"}
KEPT = np.dtype([*((name, EXCHANGE[name]) for name in _OF_RECORD), *_OF_HALF.items()])


def pack(halves: Halves) -> NDArray[np.void]:
    """Return KEPT[n] of n halves that are SLI events."""
    rows = np.empty(len(halves), KEPT)
    for name in _OF_RECORD:
        rows[name] = halves.rec[name]
    for name in _OF_HALF:
        rows[name] = getattr(halves, name)
    return rows


def unpack(rows: NDArray[np.void]) -> Halves:
    """Return the halves that were packed."""
    record = np.zeros(len(rows), EXCHANGE)
    for name in _OF_RECORD:
        record[name] = rows[name]
    start_ns, stages, trace_id = (np.ascontiguousarray(rows[name]) for name in ("start_ns", "stages", "trace_id"))
    duration_ns = stages.sum(axis=1)
    return Halves(
        rec=record,
        start_ns=start_ns,
        end_ns=start_ns + duration_ns,
        duration_ns=duration_ns,
        stages=stages,
        dominant=stages.argmax(axis=1).astype(np.uint8),
        trace_id=trace_id,
        client_span_id=keys.span_ids(trace_id[:, 0]),
        server_span_id=keys.span_ids(trace_id[:, 1]),
        counted=np.ones(len(rows), np.bool_),
        chosen=rows["chosen"].copy(),
    )
