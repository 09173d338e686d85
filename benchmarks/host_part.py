"""What the reasons for waiting inside a host cost: the tools `syscalls` and `offcpu`, and an agent's `waits`. Under a
ping-pong, the harshest; a database; many processes that exchange messages, on one processor and on all."""

import os
import shutil

import numpy as np

from benchmarks import machine, rounds
from benchmarks.compare import F64, median
from benchmarks.database import Postgres, database
from benchmarks.loads import hackbench, pingpong
from benchmarks.report import Report
from benchmarks.tracker import calls_per_second, trackers
from benchmarks.variants import Taken, waiting, waiting_elsewhere

_PORT = 7875
_BARE = ("none", "measuring")  # the tools beside nothing, waits beside measuring without them


def cost_of_host_part(report: Report, count: int, turns: int) -> None:
    """All loads in turn; the tools follow the database alone, and everybody elsewhere."""
    slices, note = rounds.run("waits, ping-pong", lambda _: pingpong(_PORT, turns), waiting(_PORT), count)
    report.compared(f"CPU of a 64-byte RPC over loopback ({note})", slices, bare="measuring")
    if shutil.which("pgbench"):
        with database(_PORT) as server:
            _database(report, server, count, max(200, turns // 50))
    else:
        report.lacks("evidence: PostgreSQL", "pgbench is not installed")
    if shutil.which("perf"):
        _hackbench(report, count, max(20, turns // 1000))
    else:
        report.lacks("evidence: hackbench", "perf is not installed")


def _database(report: Report, server: Postgres, count: int, transactions: int) -> None:
    def took_s() -> float:
        return server.transactions(transactions)[1] * transactions / 1e9

    def one(attached: Taken | None) -> F64:
        before = attached.records if attached else 0
        cpu_ns, took_ns = server.transactions(transactions)
        records = attached.records - before if attached else 0
        return np.array((cpu_ns, took_ns, records / took_ns / transactions * 1e9))

    switches = machine.switches()
    seconds = took_s()
    mix = f"{(machine.switches() - switches) / seconds:,.0f} switches/s, {calls_per_second(took_s):,.0f} system calls/s"
    slices, note = rounds.run("PostgreSQL", one, {**trackers(server.cgroup_id), **waiting(_PORT)}, count)
    named = {
        variant
        if variant.removesuffix(" again") in _BARE
        else f"{variant}: {np.median(values[:, 2]):,.0f} records/s": values
        for variant, values in slices.items()
    }
    for i, what in enumerate(("CPU", "time")):
        _tables(report, f"PostgreSQL, {what} of a transaction ({note}; the machine: {mix})", named, i)


def _hackbench(report: Report, count: int, loops: int) -> None:
    cpus = os.cpu_count() or 1

    def one(_: object) -> F64:
        return np.array([hackbench(n, loops) for n in (1, cpus)])

    slices, note = rounds.run("hackbench", one, {**trackers(), **waiting_elsewhere(_PORT)}, count)
    for i, where in enumerate(("one processor", f"{cpus} processors")):
        _tables(report, f"hackbench on {where}, CPU of a message ({note})", slices, i)
    if cpus > 1:
        _slopes(report, slices, cpus)


def _slopes(report: Report, slices: rounds.Slices, cpus: int) -> None:
    """By how much the ratios grow with each processor."""
    rows = []
    for variant, values in slices.items():
        bare = _bare(variant)
        baseline = slices[bare] if variant == f"{bare} again" else (slices[bare] + slices[f"{bare} again"]) / 2
        if variant != bare:
            ratios = values / baseline
            rows.append((variant, median((ratios[:, 1] - ratios[:, 0]) / (cpus - 1)).text("+.3f")))
    report.table("hackbench, what each further processor adds to the ratio", ("variant", "added [95 %]"), rows)


def _tables(report: Report, title: str, slices: rounds.Slices, column: int) -> None:
    for bare in _BARE:
        beside = {name: values[:, column] for name, values in slices.items() if _bare(name) == bare}
        report.compared(f"{title}, beside {bare}", beside, bare=bare)


def _bare(variant: str) -> str:
    return _BARE[variant.startswith("measuring")]
