"""A LatencyProbe's whole status document. Pure; bounded by the spec's own limits (32 targets, 32 objectives).

SLO figures are those of the last evaluation, so they change at most once a minute.
"""

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import Any

from latencyprobe.report import words
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.reach import TargetCount
from latencyprobe_operator.plan.targets import Resolved
from latencyprobe_operator.status import conditions
from latencyprobe_operator.status.placement import Placement
from latencyprobe_operator.status.reconcile import Status, with_times
from latencyprobe_operator.status.registry import Entry

QUIET_S = 300  # ready agents that saw nothing for so long are worth an event: NONE_FOR_LONG says the same
MAX_CLASS = 63  # characters: the CRD's limit

_NOT_TOLD = (conditions.NO_TRAFFIC, "StatusLimited")
_WORST_FIRST = list(State)

Figures = Sequence[Mapping[str, Any]]  # LatencyReport results of one LatencyProbe


def status(
    entry: Entry,
    resolved: Resolved | None,
    *,
    states: Mapping[str, NodeState],
    agents: Agents,
    figures: Figures,
    previous: Status | None,
    now: str,
    placement: Placement,
    suspended_by: str = "",
    store: conditions.StoreState = conditions.HEALTHY,
    rules: tuple[str, str] | None = None,
) -> Status:
    """Return the status of a LatencyProbe. `resolved`: None for one that our parser refuses; `now`: ISO 8601;
    `placement`: what keeps agents from nodes; `suspended_by`: what stops all measuring, if anything does; `rules`: why
    its PrometheusRules are not written, as reason and message."""
    late: list[str] = []
    if resolved is None:
        assert entry.error is not None
        found = conditions.invalid(entry.error)
    else:
        late = conditions.late(resolved, states, agents)
        found = conditions.conditions(
            *(resolved, states, agents),
            late=late,
            placement=placement,
            suspended_by=suspended_by,
        )
    if reasons := {r["objective"]: r["reason"] for r in figures if r.get("reason", "") not in ("", store.incomplete)}:
        found = (*found, conditions.broken(reasons))
    if entry.probe is not None and entry.probe.spec.objectives:
        found = (*found, *conditions.store(store))
        found += (conditions.Condition("RulesNotWritten", "True", *rules),) if rules is not None else ()
    ready = [node for node, state in states.items() if state is NodeState.READY]
    timed = _quiet_for_long(with_times(found, previous, entry.generation, now), now)
    worst = min(figures, key=lambda r: _WORST_FIRST.index(r["state"]), default=None)
    document: Status = {
        "observedGeneration": entry.generation,
        "conditions": timed,
        "nodes": f"{len(ready) - len(late)}/{len(states)}",
        "pods": sum(count.pods for count in resolved.counts) if resolved else 0,
        "targets": [_target(count, resolved, ready, agents) for count in resolved.counts] if resolved else [],
        "objectives": [_objective(result) for result in figures],
    }
    if (measuring := next((one for one in found if one.type == "Measuring"), None)) and measuring.status != "Unknown":
        document["measuring"] = (
            "Yes" if measuring.status == "True" else f"No: {printable(measuring.reason[: conditions.MAX_REASON])}"
        )
    if worst is not None:
        document["slo"] = worst["state"]
        document["burnedBy"] = next((one["stage"] for one in worst.get("badByStage", ())), None)
        document["p99"] = (worst.get("quantiles") or {}).get("p99")
        if worst["state"] != State.NO_DATA.value:
            document["budget"] = words.budget_left(worst.get("errorBudgetRemaining")) or None
    return {k: v for k, v in document.items() if v is not None}


def why_not_measured(statuses: Mapping[Key, Status]) -> dict[Key, str]:
    """Return why LatencyProbes are not measured (reason: message), by their statuses; without traffic they are."""
    found = {}
    for key, one in statuses.items():
        for condition in one.get("conditions", ()):
            kind, said, reason = condition["type"], condition["status"], condition["reason"]
            if kind == "Measuring" and said != "True" and reason not in _NOT_TOLD:
                found[key] = f"{reason}: {condition['message']}"
    return found


def _quiet_for_long(timed: list[Status], now: str) -> list[Status]:
    """Return the conditions, of which NoTraffic says when agents have been ready for QUIET_S without an exchange. That
    it says so is kept in the status, so the event of it comes once, whoever leads."""
    by_type = {one["type"]: one for one in timed}
    measuring, ready = by_type.get("Measuring"), by_type.get("ProbesReady")
    if measuring is None or ready is None or (measuring["reason"], ready["status"]) != (conditions.NO_TRAFFIC, "True"):
        return timed
    since = max(measuring["lastTransitionTime"], ready["lastTransitionTime"], key=datetime.fromisoformat)
    if (datetime.fromisoformat(now) - datetime.fromisoformat(since)).total_seconds() < QUIET_S:
        return timed
    told = {**measuring, "message": conditions.NONE_FOR_LONG}
    return [told if one is measuring else one for one in timed]


def _target(count: TargetCount, resolved: Resolved, ready: Collection[str], agents: Agents) -> Status:
    target_id = f"{resolved.probe.namespace}/{resolved.probe.name}/{count.name}"
    classes: Counter[str] = Counter()
    for node in count.nodes & agents.of.keys():
        classes.update(agents.of[node].classes.get(target_id, {}))
    figures = {
        "name": count.name,
        "pods": count.pods,
        "nodes": len(count.nodes),
        "agentsReady": len([node for node in ready if node in count.nodes and agents.measures(node, [target_id])]),
    }
    return {**figures, "class": printable(classes.most_common(1)[0][0][:MAX_CLASS])} if classes.total() else figures


def _objective(result: Mapping[str, Any]) -> Status:
    names = {"name": "objective", "state": "state", "sli": "sli", "errorBudgetRemaining": "errorBudgetRemaining"}
    return {ours: result[theirs] for ours, theirs in names.items() if result.get(theirs) is not None}
