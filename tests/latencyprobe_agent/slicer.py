"""A slicer of objectives of one target, and counts as the kernel has them, for tests of what rows become of them."""

import ipaddress

import numpy as np

from latencyprobe.bounds import bounded
from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target, TargetPod
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.sli.slicing import Slicer
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Role

MS = 1_000_000
FAST_NS, SLOW_NS = 5 * MS, 25 * MS
NO_LOSS = {1: 0}  # by target set
MINUTE = 1_700_000_040  # a multiple of 60
UNIX_NS = MINUTE * 10**9 + 10 * 10**9
NOW = Now(UNIX_NS, UNIX_NS)


def objective(name="fast", threshold_index=0, perspective=Perspective.SERVER, errors_count_as_bad=True):
    return PlannedObjective(
        id=f"shop/cart/{name}", target="shop/cart/web", name=name, perspective=perspective, goal="99", window="28d",
        threshold_index=threshold_index, errors_count_as_bad=errors_count_as_bad, hash=f"hash of {name}", min_events=1,
    )  # fmt: skip


PAIR_KEY = b"key"


def make_slicer(*objectives):
    target = Target(
        id="shop/cart/web", namespace="shop", probe="cart", probe_uid="uid", name="web", role=Perspective.SERVER,
        thresholds_ns=(FAST_NS, SLOW_NS), setup_turns=0, spans=SpanPolicy(1, 1.0, 1), pods=(TargetPod("a", (80,)),),
    )  # fmt: skip
    plan = NodePlan(node="n", generation=1, digest="", targets=(target,), objectives=objectives, pair_key=PAIR_KEY)
    slicer = Slicer()
    slicer.apply(plan, compile_rules(plan, {"a": [1]}))
    return slicer


def counts_of(*rows, role=Role.SERVER):
    """Totals by owner; a row gives single fields, or elements of them by (field, index)."""
    keys = np.array([(owner, 1, role) for owner in range(len(rows))], COUNTS_KEY)
    totals = np.zeros(len(rows), COUNTS)
    for row_number, fields in enumerate(rows):
        for at, value in fields.items():
            name, *index = at if isinstance(at, tuple) else (at,)
            totals[name][row_number, *index] = value
    return Counts(keys, totals)


def taken(slicer):
    rows = slicer.take(lambda packed: str(ipaddress.ip_address(packed[-4:])))
    assert rows == tuple(map(bounded, rows)), "what an agent sends is within the bounds"
    return rows


def only(slicer):
    (row,) = taken(slicer)
    return row
