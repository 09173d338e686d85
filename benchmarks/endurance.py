"""Two long runs of the whole agent, whose counts are held against the generator's own: a soak and a storm."""

import time
from typing import NamedTuple

import numpy as np

from benchmarks.compare import F64
from benchmarks.loads import Generator, Offered, echo
from benchmarks.machine import rss_mb, user_and_system_s
from benchmarks.node_agent import NodeAgent, node_agent
from benchmarks.report import Report
from latencyprobe.plan import Role
from tests.support.otlp import of_rpcs

_PORT = 7877
_SAMPLE_S = 10.0
_IDLE_S = 3.0  # above the idle timeout, which ends what was last on each connection
_LATE_MS = 40  # above the objective's 25 ms
_MIB = 2**20 / 1e6  # in MB


class Check(NamedTuple):
    """One row of the outcome."""

    what: str
    found: str
    expected: str
    holds: bool


def soak(report: Report, seconds: float) -> None:
    """10,000 RPC/s over 1,000 connections: counts exact, no growth after the first sixth."""
    run = _run(seconds, connections=1000, per_second=10_000, slow_every=10_000)
    settled = run.samples[run.samples[:, 0] >= seconds / 6]
    growth = slope_per_hour(settled[:, 0], settled[:, 1]) / _MIB
    grows = Check("RSS after the warm-up, MiB per hour", f"{growth:+.2f}", "≤ 1", growth <= 1)
    _tell(report, f"Soak of {seconds:,.0f} s", run, [*_counted(run), grows])


def storm(report: Report, seconds: float) -> None:
    """200,000 RPC/s offered, or what the machine gives: counts exact, each slow one a span, CPU of the agent."""
    run = _run(seconds, connections=256, per_second=200_000, slow_every=20_000, keep_spans=True)
    durations = [span.end_time_unix_nano - span.start_time_unix_nano for _, span in of_rpcs(run.agent.sink.bodies)]
    late, expected = sum(ns >= _LATE_MS * 1_000_000 for ns in durations), 2 * run.offered.slow
    told = Check("spans of late answers, both ends", f"{late:,}", f"≥ {expected:,}", late >= expected)
    _tell(report, f"Storm of {seconds:,.0f} s, 200,000 RPC/s offered", run, [*_counted(run), told])


def slope_per_hour(at_s: F64, values: F64) -> float:
    """The least-squares slope of values over seconds, per hour."""
    return float(np.polyfit(at_s, values, 1)[0] * 3600)


class Run(NamedTuple):
    """`samples`: f8[n, 4]: seconds since the start, RSS in MB, CPU seconds of the agent: its own code, the kernel's.
    `agent`: has ended, and handed over what it counted."""

    offered: Offered
    samples: F64
    agent: NodeAgent


def _run(seconds: float, *, connections: int, per_second: float, slow_every: int, keep_spans: bool = False) -> Run:
    samples = []
    with echo(_PORT, _LATE_MS), node_agent(_PORT, keep_spans=keep_spans) as agent:
        generator = Generator(_PORT, "echo", connections, per_second=per_second, seconds=seconds, slow_every=slow_every)
        try:
            began = time.monotonic()
            while generator.running:
                samples.append((time.monotonic() - began, rss_mb(agent.pid), *user_and_system_s(agent.pid)))
                time.sleep(min(_SAMPLE_S, seconds / 20))
            offered = generator.result()
            time.sleep(_IDLE_S)
        finally:
            generator.end()
    return Run(offered, np.array(samples), agent)


def _counted(run: Run) -> list[Check]:
    rows = [row for row in run.agent.directory.rows if row.perspective is Role.SERVER]
    good, bad = sum(row.good for row in rows), sum(row.bad for row in rows)
    answered, slow = run.offered.answered, run.offered.slow
    return [
        Check("good + bad, as handed over", f"{good + bad:,}", f"{answered:,} answered", good + bad == answered),
        Check("bad", f"{bad:,}", f"≥ {slow:,} answered late on purpose", bad >= slow),
    ]


def _tell(report: Report, title: str, run: Run, checks: list[Check]) -> None:
    first, last = run.samples[0], run.samples[-1]
    own, kernels = (last[2:] - first[2:]) / (last[0] - first[0]) * 100
    largest = run.samples[:, 1].max()
    share = f"{own + kernels:.2f} % ({own:.2f} its own code, {kernels:.2f} the kernel's)"
    checks += [
        Check("agent's CPU, share of a core", share, "≤ 2 %", own + kernels <= 2),
        Check("agent's RSS, largest", f"{largest:.1f} MB", "≤ 45 MB", largest <= 45),
    ]
    rows = [(*check[:3], "yes" if check.holds else "no") for check in checks]
    report.table(f"{title}: {run.offered.per_second:,.0f} RPC/s reached", ("what", "found", "expected", "holds"), rows)
