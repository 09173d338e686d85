"""What the time of a server's `process` can have gone to: one vocabulary for agent, bounds, store and report. Pure.

A cause is a system call, by its name, in which the thread was blocked, or one of `ALL`. What nobody accounts for is no
cause: the report calls UNKNOWN what is left. docs/evidence.md says the same for users.
"""

import re
from collections.abc import Mapping

CAUSES = 16  # of one row, beside OTHER

ON_CPU, RUN_QUEUE, PREEMPTED, THROTTLED = "on CPU", "run_queue", "preempted", "throttled"
PAGE_FAULT, FOREIGN_CALL, STOPPED, NO_CALL = "page_fault", "32-bit call", "stopped", "no call"
OTHER = "other"  # causes too small, or too many, to have a name here
UNKNOWN = "unknown"

ALL = (ON_CPU, RUN_QUEUE, PREEMPTED, THROTTLED, PAGE_FAULT, FOREIGN_CALL, STOPPED, NO_CALL, OTHER)
_CALL = re.compile(r"[a-z_][a-z0-9_]{0,31}")
_TOLD = {
    RUN_QUEUE: "woken and waiting for a CPU",
    PREEMPTED: "preempted by other tasks",
    THROTTLED: "throttled by the CPU quota",
    PAGE_FAULT: "page faults",
    FOREIGN_CALL: "32-bit calls",
    NO_CALL: "blocked in no call",
}


def is_cause(name: str) -> bool:
    """Return whether this version knows the name, or it may be a system call's: the kernel of the node has those."""
    return name in ALL or (name != UNKNOWN and _CALL.fullmatch(name) is not None)


def told(name: str) -> str:
    """Return the words for a person: `throttled by the CPU quota`; of a call its name. What stands behind the name in
    brackets stays."""
    cause, bracket, behind = name.partition(" (")
    return f"{_TOLD.get(cause, cause)}{bracket}{behind}"


def folded(ns: Mapping[str, int], most: int = CAUSES) -> dict[str, int]:
    """Keep the causes that took longest, longest first, and add up the rest as OTHER, which comes last."""
    named = sorted((cause for cause in ns if cause != OTHER), key=lambda cause: (-ns[cause], cause))
    rest_ns = ns.get(OTHER, 0) + sum(ns[cause] for cause in named[most:])
    return {cause: ns[cause] for cause in named[:most]} | ({OTHER: rest_ns} if rest_ns else {})
