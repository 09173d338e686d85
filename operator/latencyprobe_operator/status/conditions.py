"""One LatencyProbe's conditions: pure, from what was resolved and what the agents reported.

Types and reasons are part of the API (stable, CamelCase); messages name the remedy and stay under the limit of the API.
Ready follows kstatus; the state of SLOs is no part of it.
"""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

from latencyprobe import pressure
from latencyprobe.errors import SpecError
from latencyprobe.variants import LACKING, of_pressure
from latencyprobe_operator.cluster.decoding import PORTS
from latencyprobe_operator.cluster.pod_text import LABEL_BYTES, LABELS, TEXT_BYTES
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.targets import Resolved
from latencyprobe_operator.status import evidence, protocols, untold
from latencyprobe_operator.status.placement import SILENT, Placement, some

MAX_REASON, MAX_MESSAGE = 63, 1024  # the CRD's limits
NO_TRAFFIC = "NoTraffic"
_CHECK = "check ports and role, and that something calls these pods"
_NONE_YET = f"agents are ready but saw no exchange yet: {_CHECK}"
NONE_FOR_LONG = f"agents have been ready for 5 minutes and saw no exchange: {_CHECK}"
_OWN_SUSPEND = "spec.suspend is true: set it to false to measure"


class Condition(NamedTuple):
    """A condition without its times. `status`: True, False or Unknown."""

    type: str
    status: Literal["True", "False", "Unknown"]
    reason: str
    message: str = ""


class StoreState(NamedTuple):
    """How the SLI store is. `reason`, `problem`: why it takes no counts, empty while it does; `incomplete`: what
    results say of it as their reason; `moved`: the damaged file that a new one replaced within the last day; `shared`:
    why the shared store does not judge, empty while it does or there is none; `ephemeral`: it goes with the pod."""

    reason: str = ""
    problem: str = ""
    incomplete: str = ""
    moved: str = ""
    shared: str = ""
    ephemeral: bool = False


HEALTHY = StoreState()


def refused(reason: str, message: str) -> tuple[Condition, ...]:
    """Return the conditions of a LatencyProbe that nobody will measure until it is changed."""
    return (
        Condition("Accepted", "False", reason, message),
        Condition("ProbesReady", "False", reason, message),
        Condition("Measuring", "False", reason, message),
        Condition("Ready", "False", reason, message),
        Condition("Stalled", "True", reason, message),
    )


def invalid(error: SpecError) -> tuple[Condition, ...]:
    """Return the conditions of a LatencyProbe that our parser refuses, or that there is no room for."""
    return refused(error.reason, str(error))


def late(resolved: Resolved, states: Mapping[str, NodeState], agents: Agents) -> list[str]:
    """Return the nodes whose agent is ready for an earlier plan, which need not have this LatencyProbe in it."""
    ready = (node for node, state in states.items() if state is NodeState.READY)
    return [node for node in ready if not agents.measures(node, resolved.targets_on(node))]


def conditions(
    resolved: Resolved,
    states: Mapping[str, NodeState],
    agents: Agents,
    *,
    late: Sequence[str],
    placement: Placement,
    suspended_by: str = "",
) -> tuple[Condition, ...]:
    """Return the conditions of a LatencyProbe. `states`: of each node that must measure it, of which some are `late`;
    `placement`: what keeps agents from nodes; `suspended_by`: what stops all measuring, if anything does."""
    if resolved.refusal is not None:
        return refused(*resolved.refusal)
    if resolved.probe.spec.suspend:
        why = f"an administrator has stopped all measuring by {suspended_by}" if suspended_by else _OWN_SUSPEND
        ready, measuring = (Condition(kind, "False", "Suspended", why) for kind in ("ProbesReady", "Measuring"))
        asked = why if suspended_by else "nothing is measured, as spec.suspend asks"
        whole = Condition("Ready", "True", "Suspended", asked)
    else:
        ready = _probes_ready(resolved, states, agents, late, placement)
        measuring = _measuring(resolved, states, agents, ready)
        whole = Condition("Ready", ready.status, "Ready" if ready.status == "True" else ready.reason, ready.message)
    found = [Condition("Accepted", "True", "Accepted"), ready, measuring, whole]
    odd = {node: states[node] for node in agents.remarkable & states.keys()}
    found += [one for one in (_failing(odd, agents), _spans_limited(resolved, states, agents)) if one]
    found += _safe_mode(odd, agents) + _pressure_unknown(odd, agents)
    found += _text_left_out(resolved)
    found += _lacking(resolved, states, odd, agents)
    return tuple(found)


def _failing(states: Mapping[str, NodeState], agents: Agents) -> Condition | None:
    """Return the condition that says which parts of agents raise and are skipped, None while all work."""
    failing = {node: agents.of[node].status.failing for node, s in states.items() if s is NodeState.READY}
    nodes = sorted(node for node, parts in failing.items() if parts)
    if not nodes:
        return None
    part, error = min(failing[nodes[0]].items())
    message = f"agent on {some(nodes)}: {part} fails: {error}; the rest goes on, and the agent's log has more"
    return Condition("PartFailing", "True", "PartFailing", message)


def _safe_mode(states: Mapping[str, NodeState], agents: Agents) -> list[Condition]:
    """Return the condition that says which agents count alone because they crashed, if any do."""
    why = {node: agents.of[node].status.safe_mode for node, s in states.items() if s is NodeState.READY}
    nodes = sorted(node for node, text in why.items() if text)
    if not nodes:
        return []
    what = "makes reports, but no spans, metrics and evidence, for an hour"
    message = f"agent on {some(nodes)} {what}: {why[nodes[0]]}"
    return [Condition("SafeMode", "True", "SafeMode", message)]


def _spans_limited(resolved: Resolved, states: Mapping[str, NodeState], agents: Agents) -> Condition | None:
    """Return the condition that says which nodes make fewer spans than this LatencyProbe asks for, None without any."""
    most, name = resolved.probe.spec.spans.max_per_second, f"{resolved.probe.namespace}/{resolved.probe.name}"
    ready = {node: agents.of[node].status for node, state in states.items() if state is NodeState.READY}
    fewer = sorted(n for n, one in ready.items() if one.spans_per_second is not None and one.spans_per_second < most)
    odd = agents.remarkable & ready.keys()
    short = sorted(n for n in odd if ready[n].spans_per_second is not None and name in ready[n].spans_limited)
    if not fewer and not short:
        return None
    made = f"makes {ready[(fewer or short)[0]].spans_per_second} spans a second for all LatencyProbes together"
    message = (
        f"spec.spans.maxPerSecond is {most}, but the agent on {some(fewer)} {made}: raise agent.spansPerSecond in "
        "the chart, or lower maxPerSecond"
        if fewer
        else f"the agent on {some(short)} {made} and left out some of these within the last minute: raise "
        "agent.spansPerSecond in the chart, or ask for fewer by spec.spans"
    )
    return Condition("SpansLimited", "True", "SpansLimited", message)


def _pressure_unknown(states: Mapping[str, NodeState], agents: Agents) -> list[Condition]:
    """Return the condition that says on which nodes it is not known what holds up containers, if there are any."""
    lacking = {
        node: [kind for kind in pressure.BY_NAME if agents.of[node].status.variants.get(of_pressure(kind)) == LACKING]
        for node, state in states.items()
        if state is NodeState.READY
    }
    nodes = sorted(node for node, kinds in lacking.items() if kinds)
    if not nodes:
        return []
    what = "; ".join(pressure.BY_NAME[kind].told for kind in lacking[nodes[0]])
    message = f"agent on {some(nodes)} cannot tell how long containers were {what}: `latencyprobe doctor` says why"
    return [Condition("PressureUnknown", "True", "PressureUnknown", message)]


def _text_left_out(resolved: Resolved) -> list[Condition]:
    """Return the condition that says what pods' authors wrote too much of, if any did."""
    found = {pod.name: pod.left_out for part in resolved.parts.values() for pod in part.wordy}
    said = []
    if resolved.unselectable:
        most = f"{LABELS} labels, or {LABEL_BYTES} bytes of them"
        said.append(f"not measured, as they have more than {most}: {some(resolved.unselectable)}")
    if resolved.cut:
        said.append(f"callers are measured at the first {PORTS} ports alone of Service {some(resolved.cut)}")
    if resolved.left_out:
        said.append(
            f"{resolved.left_out} or more pods, Services and EndpointSlices of this namespace are not known, as others "
            "of it take all of the operator's memory that it may have: delete what is not needed, or raise "
            "operator.resources.limits.memory in the chart"
        )
    if found:
        whose, first = some(sorted(found)), min(found)
        said.append(
            f"attributes are left out of {whose}, such as {', '.join(found[first])} of {first}: a pod's annotations "
            f"resource.opentelemetry.io/*, OTEL_* variables and images have room for {TEXT_BYTES} bytes"
        )
    return [Condition("TextLeftOut", "True", "TextLeftOut", "; ".join(said))] if said else []


def _lacking(
    resolved: Resolved, states: Mapping[str, NodeState], odd: Mapping[str, NodeState], agents: Agents
) -> list[Condition]:
    """Return the conditions that say where targets are not measured or explained as they ask for."""
    ready = [node for node, state in states.items() if state is NodeState.READY]
    of_note = [node for node in ready if node in odd]
    found = (
        ("UserStacksMissing", evidence.user_stacks_missing(resolved, of_note, agents)),
        ("EvidenceUnsupported", evidence.unsupported(resolved, of_note, agents)),
        ("ProtocolUnsupported", protocols.unsupported(resolved, of_note, agents)),
        ("ProtocolMismatch", protocols.mismatch(resolved, ready, agents)),
        ("StatusLimited", untold.targets(resolved.probe.namespace, odd, agents)),
    )
    return [Condition(kind, "True", kind, message) for kind, message in found if message]


def store(state: StoreState) -> tuple[Condition, ...]:
    """Return the conditions that say what is wrong with the stores, to those who have objectives."""
    return (*_ephemeral(state), *_own_store(state), *_shared_store(state))


def _ephemeral(state: StoreState) -> tuple[Condition, ...]:
    if not state.ephemeral:
        return ()
    message = "SLI counts are lost when the operator's pod is replaced: set persistence.enabled=true in the chart"
    return (Condition("StoreEphemeral", "True", "StoreEphemeral", message),)


def _shared_store(state: StoreState) -> tuple[Condition, ...]:
    if not state.shared:
        return ()
    until = "until it answers, results are of the operator's own counts, and Incomplete; measuring goes on"
    message = f"slo.prometheus.url of the chart: {state.shared}; {until}"
    return (Condition("SharedStoreFailed", "True", "SharedStoreFailed", message),)


def _own_store(state: StoreState) -> tuple[Condition, ...]:
    if state.reason:
        kind = "StoreFull" if state.reason == "StoreFull" else "StoreFailed"
        message = f"{state.problem}; counts wait in the agents for up to 24 h, and results are Incomplete until then"
        return (Condition(kind, "True", state.reason, message),)
    if state.moved:
        message = f"the file of SLI counts was damaged: it is {state.moved} now, and counts begin anew from then on"
        return (Condition("StoreFailed", "True", "StoreDamaged", message),)
    return ()


def broken(reasons: Mapping[str, str]) -> Condition:
    """Return the condition that says which objectives (by name: why) cannot be evaluated."""
    names = sorted(reasons)
    return Condition("ObjectiveBroken", "True", "ObjectiveBroken", f"{some(names)}: {reasons[names[0]]}")


def _probes_ready(
    resolved: Resolved, states: Mapping[str, NodeState], agents: Agents, late: Sequence[str], placement: Placement
) -> Condition:
    if not any(count.pods for count in resolved.counts):
        portless = [c for c in resolved.counts if c.portless]
        message = (
            f"{portless[0].portless} pods match target {portless[0].name} but declare none of its named ports: "
            "name the containers' ports or use numbers"
            if portless
            else "no running pod of this namespace has the labels of spec.targets[].podSelector"
        )
        return Condition("ProbesReady", "False", "NoMatchingPods", message)
    if not states:  # pods outlive their node by minutes
        return Condition("ProbesReady", "False", *placement.told(sorted({n for c in resolved.counts for n in c.nodes})))
    by_state: dict[NodeState, list[str]] = {state: [] for state in NodeState}
    for node, state in states.items():
        by_state[state].append(node)
    if failed := by_state[NodeState.FAILED]:
        status = agents.of[failed[0]].status
        others = f" (and {len(failed) - 1} more nodes)" if len(failed) > 1 else ""
        why = f"agent on {failed[0]}{others}: {status.error}"
        return Condition("ProbesReady", "False", status.reason or "AgentFailed", why)
    if missing := by_state[NodeState.MISSING]:
        called = (n for n in missing if n in agents.refusals and placement.why(n).reason == SILENT)
        if refusal := next((f"{node}: {agents.refusals[node]}" for node in called), ""):
            why = f"the directory turned the agent away, {refusal}"
            return Condition("ProbesReady", "False", "DirectoryRefused", why)
        return Condition("ProbesReady", "False", *placement.told(missing))
    behind = set(late)
    ending = placement.ending([node for node in by_state[NodeState.READY] if node not in behind])
    if starting := [*by_state[NodeState.STARTING], *late, *ending]:
        hint = placement.hint(by_state[NodeState.STARTING])
        why = f"waiting for the agent on {some(starting)}" + (f"; {hint}" if hint else "")
        return Condition("ProbesReady", "Unknown", "AgentStarting", why)
    prefix, odd = resolved.prefix, sorted(agents.remarkable.intersection(by_state[NodeState.READY]))
    for node in odd:
        for target in agents.of[node].status.targets:
            if target.refused and target.id.startswith(prefix):
                message = f"agent on {node}: target {target.id.removeprefix(prefix)} is not measured: {target.refused}"
                return Condition("ProbesReady", "False", "TargetRefused", message)
    if without := evidence.starting(resolved, odd, agents):
        return Condition("ProbesReady", "Unknown", "EvidenceStarting", without)
    return Condition("ProbesReady", "True", "AgentsReady", "")


def _measuring(resolved: Resolved, states: Mapping[str, NodeState], agents: Agents, ready: Condition) -> Condition:
    working = [node for node, state in states.items() if state is NodeState.READY]
    if not working:
        return ready._replace(type="Measuring")
    prefix = resolved.prefix
    seen = (t.seen for node in working for t in agents.of[node].status.targets if t.id.startswith(prefix))
    if any(seen):
        return Condition("Measuring", "True", "Measuring", "")
    if untold.some_of({node: resolved.targets_on(node) for node in working}, resolved.probe.namespace, agents):
        return Condition("Measuring", "Unknown", "StatusLimited", "see the condition StatusLimited")
    return Condition("Measuring", "False", NO_TRAFFIC, _NONE_YET)
