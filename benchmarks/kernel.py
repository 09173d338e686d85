"""C1–C3 and C10: what the kernel programs cost without the agent's other work."""

import os
from functools import partial

import numpy as np

from benchmarks import rounds
from benchmarks.compare import F64, paired, ratio_of_added
from benchmarks.loads import pingpong, pingpongs, redis
from benchmarks.report import Found, Report
from benchmarks.variants import kernel_alone, measuring, with_control

_PINGPONG, _REDIS = 7871, 7872


def cost_of_rpcs(report: Report, count: int, turns: int) -> None:
    """C1, C2: CPU of a ping-pong, with both ends hooked."""
    slices, note = rounds.run("ping-pong", lambda _: pingpong(_PINGPONG, turns), kernel_alone(_PINGPONG), count)
    report.compared(f"CPU of a 64-byte RPC over loopback, both ends ({note})", slices, "ns per RPC")
    none = (slices["none"] + slices["none again"]) / 2
    floor = slices["empty hooks"]
    control = ratio_of_added(slices["none again"], floor, slices["none"])
    for goal, variant in (("C1", "targeted"), ("C2", "untargeted")):
        report.finds(Found(goal, ratio_of_added(slices[variant], floor, none), control))


def cost_of_gets(report: Report, count: int, turns: int) -> None:
    """C3: CPU of a Redis server at saturation."""
    with redis(_REDIS) as server:
        slices, note = rounds.run("Redis GET", lambda _: server.get(turns), kernel_alone(_REDIS), count)
    report.compared(f"CPU of the Redis server per GET, kernel programs alone ({note})", slices, "ns per GET")
    none = (slices["none"] + slices["none again"]) / 2
    report.finds(Found("C3", paired(slices["targeted"], none), paired(slices["none again"], slices["none"])))


def cost_on_processors(report: Report, count: int, turns: int) -> None:
    """C10: what an RPC costs while every processor has a ping-pong of its own, beside one alone."""
    cpus = os.cpu_count() or 1
    if cpus == 1:
        report.lacks("C10", "this machine has one processor")
        return
    ports = [_PINGPONG + 10 + i for i in range(cpus)]

    def one(_: object) -> F64:
        return np.array([pingpongs(ports[-1:], turns), pingpongs(ports, turns)])

    under = with_control({"targeted": partial(measuring, ports, targeted=True)})
    slices, note = rounds.run(f"{cpus} processors", one, under, count)
    for i, title in enumerate(("one processor", f"{cpus} processors at once")):
        of_title = {variant: values[:, i] for variant, values in slices.items()}
        report.compared(f"CPU of an RPC, {title} ({note})", of_title, "ns per RPC")
    none = (slices["none"] + slices["none again"]) / 2
    more = slices["targeted"] - none
    apart = slices["none again"] - slices["none"]
    zero = np.zeros(len(more))
    report.finds(
        Found(
            "C10",
            ratio_of_added(more[:, 1], more[:, 0], zero),
            ratio_of_added(apart[:, 1], more[:, 0], zero),
            f"{cpus} processors",
        )
    )
