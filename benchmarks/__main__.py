"""`make bench`: what measuring costs, beside its goals and beside other tools; as tables and in build/bench/.

Each part measures its own in interleaved rounds and tells the report; the goals are in goals.py, the method is in
docs/design/cost.md.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import click

from benchmarks import machine
from benchmarks.builds import BUILD, OBJECTS, build
from benchmarks.processes import DoesNotRun, own_s
from benchmarks.report import Report

Part = Callable[[Report, int, int], None]


def parts(seconds: float | None) -> dict[str, Part]:
    """Every part by the name that --of knows; the first ones are the default run. `seconds`: of the long runs."""
    # Here: what a part needs is loaded only once the machine is known to be fit for it.
    from benchmarks import agent_load, endurance, evidence, kernel, latency, saturation, sdk, stamps, user_space  # noqa: PLC0415
    from benchmarks import http2 as streams  # noqa: PLC0415
    from benchmarks import tracker as trackers  # noqa: PLC0415

    return {
        "rpcs": kernel.cost_of_rpcs,
        "gets": kernel.cost_of_gets,
        "peers": saturation.cost_at_saturation,
        "sdk": sdk.cost_of_sdk,
        "records": user_space.cost_of_records,
        "agent": agent_load.cost_of_agent_under_load,
        "spans": user_space.cost_of_spans,
        "latency": latency.latency,
        "processors": kernel.cost_on_processors,
        "evidence": evidence.cost_of_evidence,
        "http2": streams.cost_of_http2,
        "stamps": stamps.closeness_of_stamps,
        "tracker": trackers.cost_of_trackers,
        "soak": lambda report, _rounds, _turns: endurance.soak(report, seconds or 3600),
        "storm": lambda report, _rounds, _turns: endurance.storm(report, seconds or 30),
    }


NAMES = ("rpcs", "gets", "peers", "sdk", "records", "agent", "spans", "latency", "processors")
APART = ("evidence", "http2", "stamps", "tracker", "soak", "storm")


@click.command()
@click.option("--of", "chosen", multiple=True, type=click.Choice([*NAMES, *APART]), help="Only this part; repeatable.")
@click.option("--rounds", default=12, show_default=True, help="Rounds of each part.")
@click.option("--turns", default=50_000, show_default=True, help="RPCs or GETs of one slice.")
@click.option("--quick", is_flag=True, help="Three short rounds: shows that all runs, and no figure to quote.")
@click.option("--seconds", type=float, help="How long a soak (default 3600) or a storm (30) lasts.")
def main(*, chosen: tuple[str, ...], rounds: int, turns: int, quick: bool, seconds: float | None) -> None:
    """Measure what LatencyProbe costs (needs root, clang, a C compiler and Redis)."""
    if os.geteuid():
        raise click.ClickException("eBPF programs are attached: run it as root")
    if not (OBJECTS / "exchange.bpf.o").exists():
        raise click.ClickException(f"{OBJECTS} holds no programs: run `make bpf` first")
    if quick:
        rounds, turns = 3, 5_000
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # unwinds: what is attached goes
    os.sched_setaffinity(0, {machine.LOAD_CPU})  # beside the load, not beside what is measured
    build()
    report = Report({**machine.described(), "rounds": f"{rounds} rounds of {turns:,} operations a slice"})
    began, busy, own = time.monotonic(), machine.busy_s(), own_s()
    try:
        with machine.bpf_statistics_off():
            for name, part in parts(seconds).items():
                if name in (chosen or NAMES):
                    report.console.rule(name)
                    try:
                        part(report, rounds, turns)
                    except (AssertionError, OSError, subprocess.SubprocessError, DoesNotRun) as error:
                        report.lacks(name, f"failed: {error}")  # the others have their say
    finally:
        took_s = time.monotonic() - began
        others = (machine.busy_s() - busy - (own_s() - own)) / took_s / (os.cpu_count() or 1)
        report.headline |= {
            "took": f"{took_s / 60:.0f} minutes",
            "others": f"others used {max(0, others):.0%} of the CPU",
        }
        report.summary()
        report.save(BUILD)
    if failed := set(report.absent) & {*NAMES, *APART}:
        raise click.ClickException(f"failed: {', '.join(sorted(failed))}")


if __name__ == "__main__":
    main()
