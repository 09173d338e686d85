"""Exemplars: the two spans that stand for all that a histogram's point counts, so that a latency leads to a trace.

Pure: rows in, some of them out, or into OpenTelemetry's message. Rules: docs/design/telemetry.md, "Exemplars".
"""

from collections.abc import Iterable
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

# `value_ns`: what the histogram counts of it; `end_unix_ns`: of the span. A series has two: the slowest, and the one
# with the largest join key, which is as good as drawn from all, at both ends alike; it may be the same one.
EXEMPLAR = np.dtype(
    [("value_ns", "i8"), ("end_unix_ns", "i8"), ("join_key", "u8"), ("trace_id", "2u8"), ("span_id", "u8")]
)
NO_EXEMPLARS = np.zeros(0, EXEMPLAR)
_WRITTEN = ("end_unix_ns", "value_ns", "trace_id", "span_id")


def largest(ranks: NDArray[np.uint64], group: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return intp[groups, k]: of each group the row that is largest in each column of u64[n, k].

    Groups are numbered from 0, and each has a row.
    """
    order = np.argsort(group, kind="stable")
    starts = np.flatnonzero(np.diff(group[order], prepend=-1))
    ranks = ranks[order]
    top = np.maximum.reduceat(ranks, starts).repeat(np.diff(starts, append=len(order)), axis=0)
    place = np.maximum.reduceat(np.where(ranks == top, np.arange(len(order))[:, None], -1), starts)
    found: NDArray[np.intp] = order[place]
    return found


def merged(parts: Iterable[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the exemplars of several series together."""
    filled = [part for part in parts if len(part)]
    if len(filled) < 2:
        return filled[0] if filled else NO_EXEMPLARS
    rows = np.stack(filled)
    return rows[[rows["value_ns"][:, 0].argmax(), rows["join_key"][:, 1].argmax()], [0, 1]]


def write(rows: NDArray[np.void], into: pb.ExponentialHistogramDataPoint) -> None:
    """Write a series' exemplars into its point, each once, in the order of time: Prometheus takes none that is older
    than the one before."""
    different = {join_key: row for *row, join_key in rows[[*_WRITTEN, "join_key"]].tolist()}
    for end_unix_ns, value_ns, trace_id, span_id in sorted(different.values(), key=itemgetter(0)):
        into.exemplars.add(
            as_double=value_ns / 1e9,
            time_unix_nano=end_unix_ns,
            trace_id=b"".join(int(half).to_bytes(8, "big") for half in trace_id),
            span_id=span_id.to_bytes(8, "big"),
        )
