"""What the tools of trackers print alike: whose it was, stacks below a row, statistics at the end."""

from collections.abc import Callable, Iterable
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe.report import units
from latencyprobe_agent.flame.reading import STACKS
from latencyprobe_agent.measure.calls_in_progress import Addresses, by_weight
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.records import TrackedFlag

_STATS = "%-17s %10s %9s %9s %9s %9s"

Waits = list[tuple[int, list[str]]]


def goes_on(record: np.void) -> bool:
    """Return whether a record tells of what has not ended yet."""
    return bool(record["flag"] == TrackedFlag.TIMEOUT)


def whose(record: np.void) -> tuple[str, int, int]:
    """Return comm (`-` if it is not known), tgid and tid."""
    return comm(record["comm"]) or "-", int(record["tgid"]), int(record["tid"])


def took(record: np.void) -> str:
    """Return the duration, with a `>` if it goes on."""
    return (">" if goes_on(record) else "") + units.duration(int(record["duration_ns"]))


def as_object(record: np.void, unix_ns: int) -> dict[str, Any]:
    """Return what every record has, as JSON has it."""
    return {
        "time": timestamp(unix_ns),
        "comm": comm(record["comm"]),
        "tgid": int(record["tgid"]),
        "tid": int(record["tid"]),
        "cgroup_id": int(record["cgroup_id"]) or None,
        "duration_ns": int(record["duration_ns"]),
        "goes_on": goes_on(record),
    }


def waits(kernel: tuple[tuple[int, Addresses], ...], symbols: Symbolizer) -> Waits:
    """Return (ns, names leaf first) of where a task waited in the kernel, the longest first."""
    return [(ns, symbols.kernel(inside_calls(addresses))) for ns, addresses in by_weight(kernel)[:STACKS]]


def as_objects(of: Waits) -> list[dict[str, Any]]:
    """Return them as JSON has them."""
    return [{"waited_ns": ns, "frames": names} for ns, names in of]


def stack(title: str, names: Iterable[str]) -> None:
    """Print a stack below a row."""
    click.echo(f" {title}:")
    for name in names:
        click.echo(f" => {name}")


def statistics(of: NDArray[np.void], title: str, name: Callable[[int], str], *, as_json: bool) -> None:
    """Print a line for each kind of TRACKER_STATISTICS[kind] that there was, the largest total first."""
    seen = np.flatnonzero(of["count"])
    if not as_json:
        click.echo(_STATS % (title.upper(), "COUNT", "MIN", "AVERAGE", "MAX", "TOTAL"))
    for kind in seen[np.argsort(-of["total_ns"][seen].astype(np.int64), kind="stable")].tolist():
        count, total_ns, min_ns, max_ns = of[kind].tolist()
        times_ns = {"min_ns": min_ns, "average_ns": total_ns // count, "max_ns": max_ns, "total_ns": total_ns}
        if as_json:
            click.echo(msgspec.json.encode({title: name(kind), "count": count, **times_ns}))
        else:
            click.echo(_STATS % (name(kind), count, *map(units.duration, times_ns.values())))
