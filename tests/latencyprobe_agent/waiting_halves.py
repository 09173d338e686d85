"""Halves for a waiting room, and what comes out of it."""

import numpy as np

from latencyprobe import plan
from latencyprobe.plan import SpanPolicy, Target
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.sampling import Reason, Sampled
from latencyprobe_agent.telemetry.span_rows import Peer, Ready

CART = Target("shop/p/cart", "shop", "p", "uid", "cart", plan.Role.SERVER, (), 0, SpanPolicy(1, 1.0, 100))


def everything(halves: Halves) -> Sampled:
    n = len(halves)
    return Sampled(halves, halves.trace_ids(b"key"), np.full(n, Reason.RATIO, np.uint8), np.ones(n))


def who(ready: Ready) -> list[Peer]:
    return [ready.peers[code] for code in ready.rows["peer"]]
