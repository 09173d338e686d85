"""Desired against actual: which writes are needed. Pure.

Level-based: each function looks at the whole, so a write that failed or was missed is returned again.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from latencyprobe.slo.evaluate import BUDGET_LEFT, State
from latencyprobe.text import printable
from latencyprobe_operator.cluster.objects import Key, Node
from latencyprobe_operator.status.conditions import MAX_MESSAGE, MAX_REASON, NONE_FOR_LONG, Condition

Status = dict[str, Any]


class LabelChange(NamedTuple):
    """Set (`measure`) or give up our label on a node."""

    node: str
    uid: str
    measure: bool


def label_changes(expected: frozenset[str], nodes: Mapping[str, Node]) -> list[LabelChange]:
    """Return the label writes that make exactly the expected nodes measure."""
    return [
        LabelChange(n.name, n.uid, name in expected)
        for name, n in sorted(nodes.items())
        if n.measure != (name in expected)
    ]


def with_times(conditions: tuple[Condition, ...], previous: Status | None, generation: int, now: str) -> list[Status]:
    """Return conditions as the API stores them: a transition time changes only with the status. `now`: ISO 8601. What
    agents and documents made them say is cut to size, and steers no terminal."""
    old = {c["type"]: c for c in (previous or {}).get("conditions", ())}
    return [
        {
            "type": c.type,
            "status": c.status,
            "reason": printable(c.reason[:MAX_REASON]),
            "message": printable(c.message[:MAX_MESSAGE]),
            "observedGeneration": generation,
            "lastTransitionTime": (
                old[c.type]["lastTransitionTime"] if old.get(c.type, {}).get("status") == c.status else now
            ),
        }
        for c in conditions
    ]


def status_writes(desired: Mapping[Key, Status], written: Mapping[Key, Status]) -> list[Key]:
    """Return the LatencyProbes whose status is not what it should be."""
    return [key for key, status in sorted(desired.items()) if written.get(key) != status]


def transitions(new: Status, old: Status | None) -> list[tuple[str, str, str]]:
    """Return the events that a status change is worth: (Normal or Warning, reason, note) of the Ready condition, of
    Measuring when it begins or when nothing came for long, and of objectives that spend their budget or have it again.
    """
    before = {c["type"]: c for c in (old or {}).get("conditions", ())}
    was = {name: (c["status"], c["reason"]) for name, c in before.items()}
    worth = []
    for c in new["conditions"]:
        if c["message"] == NONE_FOR_LONG and before.get(c["type"], {}).get("message") != NONE_FOR_LONG:
            worth.append(("Warning", c["reason"], c["message"]))
        if was.get(c["type"]) == (c["status"], c["reason"]) or c["status"] == "Unknown":
            continue
        if c["type"] == "Ready":
            kind = "Normal" if c["status"] == "True" else "Warning"
            worth.append((kind, c["reason"], c["message"] or "every expected agent measures"))
        elif c["type"] == "Measuring" and c["status"] == "True":
            worth.append(("Normal", "Measuring", "exchanges are being measured"))
    return worth + _verdicts(new, old)


def _verdicts(new: Status, old: Status | None) -> list[tuple[str, str, str]]:
    before = {one["name"]: one["state"] for one in (old or {}).get("objectives", ())}
    worth = []
    for one in new.get("objectives", ()):
        violated, was = one["state"] == State.VIOLATED, before.get(one["name"]) == State.VIOLATED
        if violated and not was:
            note = f"objective {one['name']} has spent its error budget; `latencyprobe report` says by which stage"
            worth.append(("Warning", "Violated", note))
        elif was and one["state"] in BUDGET_LEFT:
            worth.append(("Normal", "BudgetLeft", f"objective {one['name']} has error budget left again"))
    return worth
