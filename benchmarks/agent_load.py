"""C6 and C8: share of a core and memory of the agent beside a paced load, by default and reading every record."""

import time

import numpy as np
from rich.progress import track

from benchmarks.compare import F64, added, median
from benchmarks.loads import Generator, Offered, echo
from benchmarks.machine import cpu_ns, rss_mb
from benchmarks.node_agent import node_agent
from benchmarks.report import Found, Report

_PORT, _CONNECTIONS, _PER_SECOND = 7874, 64, 50_000
_WARM_UP_S, _WINDOW_S = 5.0, 1.0
_ENOUGH = 0.95  # of what was offered


def cost_of_agent_under_load(report: Report, count: int, _turns: int) -> None:
    """C6, C8a: with its defaults; C8b: with every record read."""
    for goals, every_record in ((("C6", "C8a"), False), (("C8b",), True)):
        shares, memory, offered = _measured(count, every_record=every_record)
        for goal in goals:
            windows = shares if goal == "C6" else memory
            found = Found(goal, median(windows.mean(axis=1)), added(windows[:, 1], windows[:, 0]))
            if offered.per_second < _ENOUGH * _PER_SECOND:
                report.lacks(goal, f"only {offered.per_second:,.0f} RPC/s were reached, at which it is {found.row[2]}")
            else:
                report.finds(found)


def _measured(count: int, *, every_record: bool) -> tuple[F64, F64, Offered]:
    """(Share of a core in per cent, memory in MB, of two windows each: f8[count, 2]; what the load was)."""
    shares, memory = np.zeros((count, 2)), np.zeros((count, 2))
    seconds = _WARM_UP_S + 2 * count * (_WINDOW_S + 0.1)
    with echo(_PORT), node_agent(_PORT, every_record=every_record) as agent:
        generator = Generator(_PORT, "echo", _CONNECTIONS, per_second=_PER_SECOND, seconds=seconds)
        try:
            time.sleep(_WARM_UP_S)
            for i in track(range(count), "every record read" if every_record else "50,000 RPC/s"):
                for j in range(2):
                    before, began = cpu_ns(agent.pid), time.monotonic()
                    time.sleep(_WINDOW_S)
                    shares[i, j] = (cpu_ns(agent.pid) - before) / (time.monotonic() - began) / 1e7
                    memory[i, j] = rss_mb(agent.pid)
            return shares, memory, generator.result()
        finally:
            generator.end()
