"""What stands beside a flame graph in words: of how much it is, what is missing, what to do where it is empty."""

from collections.abc import Mapping
from typing import NamedTuple

from latencyprobe.report import units
from latencyprobe.text import printable

EMPTY = (
    "No call was slower than the threshold. Look for longer (--duration), at more (--all instead of --pid) or at "
    "faster calls (--slower-than 1ms). Calls in which programs wait for work are left out, unless --all-waits asks for "
    "them."
)


class Told(NamedTuple):
    """`title`: one line; `missing`: what the picture does not show, empty if nothing."""

    title: str
    missing: str


def told(total_ns: int, what: str, missing: Mapping[str, int]) -> Told:
    """Return the words. `what`: of what it is, such as a file or a process."""
    left_out = ", ".join(f"{n:,} {reason}" for reason, n in missing.items() if n)
    title = f"{units.duration(total_ns)} in slow system calls" if total_ns else "No slow system calls"
    return Told(f"{title} · {printable(what)}" if what else title, left_out)


def share(part_ns: int, total_ns: int) -> str:
    """Return a part in percent."""
    percent = 100 * part_ns / total_ns if total_ns else 0.0
    return f"{percent:.1f} %" if percent >= 0.1 or not part_ns else "< 0.1 %"
