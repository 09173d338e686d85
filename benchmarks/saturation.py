"""C4: the CPU that all that takes part spends per GET at saturation, with the whole agent, and with its peers."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks import rounds
from benchmarks.compare import F64, paired
from benchmarks.loads import Redis, redis
from benchmarks.machine import cpu_ns, kernel_threads_ns
from benchmarks.node_agent import node_agent
from benchmarks.peers import peers
from benchmarks.processes import ended_children_ns, running_ns
from benchmarks.report import Found, Report
from benchmarks.rounds import Variant
from benchmarks.variants import with_control

_PORT, _CONNECTIONS = 7873, 16
_OURS = "LatencyProbe, the whole agent"
_SHOWS = {_OURS: "every RPC: stages, pairs, counts, both ends"}


def cost_at_saturation(report: Report, count: int, turns: int) -> None:
    """C4, and the table of peers."""
    under: dict[str, Variant] = {_OURS: partial(_agent, _PORT)}
    shows = dict(_SHOWS)
    refused = []
    for peer in peers():
        if reason := peer.reason_against(_PORT):
            refused.append((peer.name, peer.shows, f"does not run here: {reason}", "", ""))
        else:
            under[peer.name], shows[peer.name] = partial(peer.attached, _PORT), peer.shows
    with redis(_PORT) as server:
        under = with_control(under)
        slices, note = rounds.run("saturation", lambda tool: _slice(server, 2 * turns, tool), under, count)
    none = (slices["none"] + slices["none again"]) / 2
    rows = []
    for name in (*shows, "none again"):
        beside = slices["none"] if name == "none again" else none
        whole, of_redis = (paired(slices[name][:, i], beside[:, i]).text(".3f") for i in range(2))
        rows.append((name, shows.get(name, "A/A"), whole, of_redis, f"{np.median(slices[name][:, 2]):,.0f}"))
    columns = ("beside the load", "what it shows", "CPU of all per GET ÷ none", "Redis ÷ none", "its own ns per GET")
    took = f"{np.median(none[:, 0]):,.0f} ns of CPU per GET without any"
    report.table(f"Redis GET at saturation, {_CONNECTIONS} connections, {took} ({note})", columns, rows + refused)
    control = paired(slices["none again"][:, 0], slices["none"][:, 0])
    ratios = {name: paired(slices[name][:, 0], none[:, 0]) for name in shows}
    others = [f"{name} {ratio.median:.2f}" for name, ratio in ratios.items() if name != _OURS]
    report.finds(Found("C4", ratios[_OURS], control, "; ".join(others)))


@contextmanager
def _agent(port: int) -> Iterator[int]:
    with node_agent(port) as agent:
        yield agent.pid


def _slice(server: Redis, gets: int, tool: Any) -> F64:
    """CPU per GET in ns: of server, load, tool and kernel threads; of the server; of the tool."""
    before = ended_children_ns() + running_ns() + kernel_threads_ns()
    tool_before = cpu_ns(tool) if tool else 0
    of_redis = server.get(gets, _CONNECTIONS)
    of_tool = (cpu_ns(tool) - tool_before) / gets if tool else 0.0
    return np.array([(ended_children_ns() + running_ns() + kernel_threads_ns() - before) / gets, of_redis, of_tool])
