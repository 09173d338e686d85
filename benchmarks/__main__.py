"""`make bench`: what measuring costs and how close it is, as paired ratios; a table on the screen and in build/bench/.

Runs the subjects of `subjects.py` and `stamps.py` under the variants of `variants.py`, interleaved, in rotated order.
"""

import json
import os
import platform
import resource
import time
from collections.abc import Callable
from pathlib import Path

import click
import numpy as np
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.compare import F64, added, paired, ratio_of_added, verdict
from benchmarks.stamps import Handshakes, Rpcs
from benchmarks.subjects import LOAD_CPU, Redis, cpu_ns, machine_busy_s, pingpong, redis
from benchmarks.variants import BUILD, Variant, build, evidence, variants

PINGPONG_PORT, REDIS_PORT, STAMPS_PORT = 7871, 7872, 7873
FOREIGN_LIMIT = 0.05  # of the machine; rounds above it are left out
BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")

Slices = dict[str, F64]


def run_rounds(
    name: str,
    slice_ns: Callable[[], float | F64],
    under: dict[str, Variant],
    rounds: int,
    server_pid: int | None = None,
) -> tuple[Slices, F64]:
    """(What each variant's slices gave [rounds, ...], share of foreign CPU [rounds]); the order rotates each round."""
    names = list(under)
    found: dict[str, list[float | F64]] = {variant: [] for variant in names}
    foreign = np.zeros(rounds)
    for i in track(range(rounds), name):
        for variant in names[i % len(names) :] + names[: i % len(names)]:
            with under[variant]():
                busy, own, began = machine_busy_s(), own_s(server_pid), time.monotonic()
                found[variant].append(slice_ns())
                spent = machine_busy_s() - busy - (own_s(server_pid) - own)
                share = spent / (time.monotonic() - began) / (os.cpu_count() or 1)
                foreign[i] = max(foreign[i], share)
    return {variant: np.array(values) for variant, values in found.items()}, foreign


def own_s(server_pid: int | None) -> float:
    """CPU time of this process, of what it has run, and of a server that still runs."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(u.ru_utime + u.ru_stime for u in usages) + (cpu_ns(server_pid) / 1e9 if server_pid else 0)


def quiet_rounds(slices: Slices, foreign: F64) -> tuple[Slices, str]:
    """Leave out rounds in which others used the machine, unless hardly any would stay."""
    quiet = foreign <= FOREIGN_LIMIT
    if quiet.sum() < 5:
        return slices, f"NOISY: only {quiet.sum()} of {len(quiet)} rounds had at most 5 % foreign CPU; all are used"
    return {name: values[quiet] for name, values in slices.items()}, f"{quiet.sum()} of {len(quiet)} rounds used"


def report(name: str, slices: Slices, note: str, console: Console) -> dict[str, object]:
    """Print one subject's table and return it as plain values."""
    baseline = (slices["none"] + slices["none again"]) / 2
    table = Table(
        "variant", "ns per operation", "ratio [95 %]", "min ÷ min", "added ns [95 %]", title=f"{name}: {note}"
    )
    rows: list[dict[str, object]] = []
    for variant, values in slices.items():
        beside = slices["none"] if variant == "none again" else baseline  # "none again" ÷ "none" is the A/A control
        ratio, more = paired(values, beside), added(values, beside)
        least = values.min() / min(slices["none"].min(), slices["none again"].min())
        rows.append(
            {
                "variant": variant,
                "ns": float(np.median(values)),
                "ratio": [ratio.median, ratio.low, ratio.high],
                "min_ratio": float(least),
                "added_ns": [more.median, more.low, more.high],
            }
        )
        if variant != "none":
            table.add_row(variant, f"{np.median(values):,.0f}", ratio.text(".3f"), f"{least:.3f}", more.text("+,.0f"))
        else:
            table.add_row(variant, f"{np.median(values):,.0f}", "", "", "")
    console.print(table)
    return {"subject": name, "note": note, "rows": rows}


@click.command()
@click.option("--rounds", default=16, show_default=True, help="Rounds of each subject.")
@click.option("--turns", default=50_000, show_default=True, help="RPCs or GETs of one slice.")
@click.option("--of", type=click.Choice(["measuring", "evidence", "stamps", "all"]), default="all", show_default=True)
def main(rounds: int, turns: int, of: str) -> None:
    """Measure what the kernel programs cost and how close they are (needs root, clang and Redis)."""
    build()
    os.sched_setaffinity(0, {LOAD_CPU})  # the drain of the ring runs beside the load, not beside what is measured
    statistics = BPF_STATS.read_text()
    BPF_STATS.write_text("0")  # counting program runs would add to what is measured
    console = Console(record=True, width=120)
    machine = f"Linux {platform.release()}, {os.cpu_count()} CPUs"
    console.print(f"{machine}, bpf_stats_enabled 0, {rounds} rounds, {turns:,} operations a slice")
    results: dict[str, object] = {"machine": machine, "rounds": rounds, "turns": turns}
    try:
        with redis(REDIS_PORT) as server:
            if of in ("measuring", "all"):
                results |= cost_of_measuring(server, rounds, turns, console)
            if of in ("evidence", "all"):
                results["evidence"] = cost_of_evidence(server, rounds, turns, console)
        if of in ("stamps", "all"):
            results["stamps"] = closeness_of_stamps(rounds, turns, console)
    finally:
        BPF_STATS.write_text(statistics)
    BUILD.joinpath("cost.txt").write_text(console.export_text())
    BUILD.joinpath("cost.json").write_text(json.dumps(results, indent=2))


def cost_of_measuring(server: Redis, rounds: int, turns: int, console: Console) -> dict[str, object]:
    """Print and return what measuring costs, each figure with its goal."""
    rpc = run_rounds("ping-pong", lambda: pingpong(PINGPONG_PORT, turns), variants(PINGPONG_PORT), rounds)
    get = run_rounds("Redis GET", lambda: server.get(turns), variants(REDIS_PORT), rounds, server.pid)
    rpc_slices, rpc_note = quiet_rounds(*rpc)
    get_slices, get_note = quiet_rounds(*get)
    subjects = [
        report("CPU of a 64-byte RPC over loopback, both ends", rpc_slices, rpc_note, console),
        report("CPU of the Redis server per GET", get_slices, get_note, console),
    ]
    rpc_none, get_none = ((slices["none"] + slices["none again"]) / 2 for slices in (rpc_slices, get_slices))
    floor, targeted, others = (rpc_slices[name] for name in ("empty hooks", "targeted", "untargeted"))
    bars = (
        ("P1 targeted ÷ empty hooks, added", ratio_of_added(targeted, floor, rpc_none), 1.35),
        ("P2 untargeted ÷ targeted, added", ratio_of_added(others, targeted, rpc_none), 0.25),
        ("P3 Redis targeted ÷ none", paired(get_slices["targeted"], get_none), 1.05),
    )
    table = Table("bar", "found [95 %]", "goal", "verdict")
    for label, found, goal in bars:
        table.add_row(label, found.text(".3f"), f"≤ {goal}", verdict(found, goal))
    console.print(table)
    judged = [
        {"bar": label, "found": [found.median, found.low, found.high], "goal": goal, "verdict": verdict(found, goal)}
        for label, found, goal in bars
    ]
    return {"subjects": subjects, "bars": judged}


def cost_of_evidence(server: Redis, rounds: int, turns: int, console: Console) -> list[dict[str, object]]:
    """Print and return what each signal of evidence costs alone, and all of them."""
    subjects = (
        ("CPU of the Redis server per GET", lambda: server.get(turns)),
        ("CPU of the Redis server per connection with one GET", lambda: server.connect(turns // 10)),
    )
    return [
        report(name, *quiet_rounds(*run_rounds(name, slice_ns, evidence(REDIS_PORT), rounds, server.pid)), console)
        for name, slice_ns in subjects
    ]


def closeness_of_stamps(rounds: int, turns: int, console: Console) -> list[dict[str, object]]:
    """Print and return how far stamps are off by the truth generator's log, and round trips by a capture."""
    results = []
    for subject in (Rpcs(STAMPS_PORT, turns // 10), Handshakes(STAMPS_PORT, turns // 500)):
        with subject:
            slices, note = quiet_rounds(*run_rounds(subject.title, subject.slice_ns, subject.variants(), rounds))
        results.append(report_closeness(subject, slices, note, console))
    return results


def report_closeness(subject: Rpcs | Handshakes, slices: Slices, note: str, console: Console) -> dict[str, object]:
    """Print one subject's table and return it as plain values; "again" ÷ the same is the A/A control."""
    yardstick = slices["none"][:, 0, 0]
    table = Table(
        *("off", "median ns", "p99 ns", f"median ÷ {subject.yardstick} [95 %]", "p99 ÷ the same", "A/A of the medians"),
        title=f"{subject.title}: {note}; {subject.yardstick}: {np.median(yardstick):,.0f} ns",
    )
    rows: list[dict[str, object]] = []
    for i, kind in enumerate(subject.kinds):
        p50, p99, again = slices["measured"][:, 0, i], slices["measured"][:, 1, i], slices["again"][:, 0, i]
        ratios = [paired(values, beside) for values, beside in ((p50, yardstick), (p99, yardstick), (again, p50))]
        table.add_row(
            kind, f"{np.median(p50):,.0f}", f"{np.median(p99):,.0f}", *(ratio.text(".3f") for ratio in ratios)
        )
        names = ("median_ratio", "p99_ratio", "again_ratio")
        told = {name: [one.median, one.low, one.high] for name, one in zip(names, ratios, strict=True)}
        rows.append({"off": kind, "median_ns": float(np.median(p50)), "p99_ns": float(np.median(p99)), **told})
    console.print(table)
    return {"subject": subject.title, "note": note, "yardstick_ns": float(np.median(yardstick)), "rows": rows}


if __name__ == "__main__":
    main()
