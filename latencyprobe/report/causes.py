"""What `process` of the events over the threshold went to: of a row for the report, and a line for a person. Pure."""

from decimal import Decimal
from fractions import Fraction

from latencyprobe.causes import OTHER, UNKNOWN, folded, told
from latencyprobe.report import units
from latencyprobe.report.model import Cause, Result
from latencyprobe.sli import SliRow
from latencyprobe.stages import PROCESS

_LISTED = 8  # beside other and unknown
_TOLD = 3


def of(row: SliRow) -> tuple[Cause, ...]:
    """Return where the time of `process` went, largest first, then OTHER, then UNKNOWN; nothing where nothing tells.

    Shares are of `process` as the kernel counted it; of what is accounted for where that is more, because an account
    came a minute later than the count, or was weighed. So they never exceed 100 %.
    """
    known_ns = sum(row.cause_ns.values())
    if not known_ns:
        return ()
    whole_ns = max(row.stage_ns.get(PROCESS.name, 0), known_ns)
    found = folded(row.cause_ns, _LISTED) | {UNKNOWN: whole_ns - known_ns}
    return tuple(
        Cause(cause[:63], units.duration(ns), units.percent(Fraction(ns, whole_ns), 1))
        for cause, ns in found.items()
        if ns
    )


def line(result: Result) -> str:
    """Return the largest causes as a line, empty without any. It follows the line of the peers that were waited for,
    which is about the same time."""
    notable = [one for one in result.causes if Decimal(one.share) >= units.NOTABLE]
    named = [one for one in notable if one.cause not in (OTHER, UNKNOWN)][:_TOLD]
    unknown = [one for one in notable if one.cause == UNKNOWN]
    if not named:
        return ""
    about = "the same by cause: " if result.waited_for else f"of {PROCESS.name}, "
    return about + ", ".join(f"{one.share} % {told(one.cause)}" for one in (*named, *unknown))
