"""C9: latency since each request was meant to be sent, at 50 and 80 % of what Redis can do, with the whole agent."""

from functools import partial

import numpy as np

from benchmarks import rounds
from benchmarks.compare import F64, paired
from benchmarks.loads import Generator, Offered, redis
from benchmarks.node_agent import node_agent
from benchmarks.report import Found, Report
from benchmarks.variants import with_control

_PORT, _CONNECTIONS, _SLICE_S = 7875, 64, 2.0
_LOADS = {"C9a": 0.5, "C9b": 0.8}
_TRIAL = 50_000  # GETs


def latency(report: Report, count: int, _turns: int) -> None:
    """Both loads; saturation is what redis-benchmark gets with 16 connections."""
    with redis(_PORT) as server:
        saturation = float(np.median([server.saturation(_TRIAL) for _ in range(3)]))
        rates = {goal: share * saturation for goal, share in _LOADS.items()}

        def one(_: object) -> F64:
            found = [_offered(rate) for rate in rates.values()]
            return np.array([[each.p50_ns, each.p99_ns] for each in found])

        under = with_control({"the whole agent": partial(node_agent, _PORT)})
        slices, note = rounds.run("open loop", one, under, count)
    for i, (goal, rate) in enumerate(rates.items()):
        for j, quantile in enumerate(("p50", "p99")):
            of_rate = {variant: values[:, i, j] for variant, values in slices.items()}
            title = f"{quantile} at {rate:,.0f} GET/s offered, {_LOADS[goal]:.0%} of saturation ({note})"
            report.compared(title, of_rate)
        none, again = slices["none"][:, i, 1], slices["none again"][:, i, 1]
        p99 = slices["the whole agent"][:, i, 1]
        report.finds(Found(goal, paired(p99, (none + again) / 2), paired(again, none), f"{rate:,.0f} GET/s"))


def _offered(per_second: float) -> Offered:
    generator = Generator(_PORT, "redis", _CONNECTIONS, per_second=per_second, seconds=_SLICE_S)
    try:
        return generator.result()
    finally:
        generator.end()
