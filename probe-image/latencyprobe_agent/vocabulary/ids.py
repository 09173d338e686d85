"""Trace ids as arrays (u64[n, 2], high and low half) and as they travel: 32 hex digits, the pair key of both halves."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TraceIds = NDArray[np.uint64]


def to_hex(trace_ids: TraceIds) -> list[str]:
    """Return each id as 32 hex digits."""
    return [f"{high:016x}{low:016x}" for high, low in trace_ids.tolist()]


def from_hex(keys: Sequence[str]) -> TraceIds:
    """Return u64[n, 2]. Raises ValueError for what is no hex."""
    return np.frombuffer(bytes.fromhex("".join(keys)), ">u8").reshape(-1, 2).astype(np.uint64)
