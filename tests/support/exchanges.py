"""EXCHANGE records as the kernel writes them, for tests of what becomes of them."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.matches import packed
from latencyprobe_agent.signals.exchanges import CLIENT_POINTS, SERVER_POINTS
from latencyprobe_agent.vocabulary.records import EXCHANGE, SAMPLING_LEVEL_SHIFT, ExchangeClass, Role

SECOND = 10**9


def exchanges(
    count: int, role: Role, *, start_ns: Any = SECOND, stages: tuple[Any, ...] = (0,) * 4, **fields: Any
) -> NDArray[np.void]:
    """EXCHANGE[count] of halves with these stages (ns). Each value: one for all, or an array of one for each.

    `peer`, `local`: addresses as text, one for all.
    """
    records = np.zeros(count, EXCHANGE)
    at_ns = start_ns
    for name, stage_ns in zip(SERVER_POINTS if role is Role.SERVER else CLIENT_POINTS, (0, *stages), strict=True):
        at_ns = at_ns + stage_ns
        records[name] = at_ns
    records["role"], records["target_set"], records["conn_class"] = role, 1, ExchangeClass.PINGPONG
    records["rtt_min_us"] = 0xFFFFFFFF
    records["local_port"], records["peer_port"] = (6379, 40000) if role is Role.SERVER else (40000, 6379)
    for name, value in {"local": "10.0.0.1", "peer": "10.0.0.2", **fields}.items():
        if name in ("local", "peer"):
            records[f"{name}_addr"] = np.frombuffer(packed(value), np.uint8)
        else:
            records[name] = value
    return records


def at_level(level: int) -> int:
    """Flags of a record that the kernel chose as one of 2^level."""
    return level << SAMPLING_LEVEL_SHIFT
