"""A snapshot as one HTML page: a timeline of each CPU that can be zoomed and searched. It fetches nothing. Pure."""

from html import escape
from importlib.resources import files
from typing import Any

import msgspec

from latencyprobe.report import units
from latencyprobe.text import printable
from latencyprobe_agent.recording import text
from latencyprobe_agent.recording.snapshot import Snapshot, Trigger
from latencyprobe_agent.recording.timeline import Slice, stacked, tracks
from latencyprobe_agent.vocabulary.returned import returned

_LANES = 100  # of calls that overlap, per CPU: those of more threads are counted, and not drawn


def render(snapshot: Snapshot) -> str:
    """Return the page."""
    page = files(__package__).joinpath("page.html").read_text()
    data = _data(snapshot)
    for mark, value in {
        "TITLE": escape(text.title(snapshot)),
        "FACTS": "".join(f"<li>{escape(fact)}</li>" for fact in text.facts(snapshot)),
        "STACKS": "".join(_stacks(snapshot.header.trigger)),
        "STATE": "full" if data["cpus"] else "empty",
        "DATA": msgspec.json.encode(data).decode().replace("<", "\\u003c"),
    }.items():
        page = page.replace(f"<!--{mark}-->", value)
    return page


def _data(snapshot: Snapshot) -> dict[str, Any]:
    """Return times relative to the trigger, in ns, and each CPU's slices by columns."""
    header = snapshot.header
    at_ns = header.trigger.time_ns
    names: dict[str, int] = {}
    cpus = []
    for track in tracks(snapshot):
        rows = stacked(track.calls)
        drawn = [(row, call) for row, call in zip(rows, track.calls, strict=True) if row < _LANES]
        cpus.append(
            {
                "cpu": track.cpu.cpu,
                "from": track.cpu.from_ns - at_ns,
                "to": track.cpu.to_ns - at_ns,
                "coverage": text.coverage(track.cpu, header.trigger, header.window_ns),
                "lanes": min(max(rows, default=-1) + 1, _LANES),
                "hidden": len(track.calls) - len(drawn),
                "running": _columns([(0, one) for one in track.running], at_ns, names),
                "calls": _columns(drawn, at_ns, names),
            }
        )
    trigger = header.trigger
    return {
        "from": min((cpu.from_ns - at_ns for cpu in header.cpus), default=0),
        "to": max((cpu.to_ns - at_ns for cpu in header.cpus), default=0),
        "trigger": {"start": -trigger.duration_ns, "tid": trigger.tid},
        "cpus": cpus,
        "names": list(names),
    }


def _columns(of: list[tuple[int, Slice]], at_ns: int, names: dict[str, int]) -> dict[str, list[int]]:
    return {
        "lane": [row for row, _ in of],
        "start": [one.start_ns - at_ns for _, one in of],
        "ns": [one.end_ns - one.start_ns for _, one in of],
        "comm": [names.setdefault(one.comm, len(names)) for _, one in of],
        "what": [names.setdefault(one.what, len(names)) for _, one in of],
        "tgid": [one.tgid for _, one in of],
        "tid": [one.tid for _, one in of],
        "ret": [names.setdefault(returned(one.ret), len(names)) for _, one in of],
    }


def _stacks(trigger: Trigger) -> list[str]:
    found = [(f"waited {units.duration(one.waited_ns)}", one.frames) for one in trigger.kernel_stacks]
    if trigger.user_stack:
        found.append(("called by" + ("" if trigger.user_stack_complete else " (incomplete)"), trigger.user_stack))
    return [
        f"<section><h2>{escape(title)}</h2><ol>"
        + "".join(f"<li>{escape(printable(frame))}</li>" for frame in frames)
        + "</ol></section>"
        for title, frames in found
    ]
