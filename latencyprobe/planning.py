"""What a LatencyProbe alone says of a plan: its targets and objectives, before anybody knows its pods or processes.

The operator's `targets.py` and the agent's `identity/local.py` complete the targets; the evaluation's objectives
(`slo.objective`) are made from the same. Pure.
"""

import hashlib

import msgspec

from latencyprobe.plan import PlannedObjective, Role, SpanPolicy, Target, WaitPolicy
from latencyprobe.spec import EvidenceSpec, LatencyProbe, ObjectiveSpec, TargetSpec, duration_ns

DEFAULT_SLOWER_THAN_NS = 100_000_000
TLS_PORTS = {  # which IANA has registered for a protocol over TLS, as docs/api.md lists them
    443: "https",
    465: "submissions",
    636: "ldaps",
    853: "domain-s",
    993: "imaps",
    995: "pop3s",
    2376: "docker-s",
    3269: "msft-gc-ssl",
    5061: "sips",
    5671: "amqps",
    5986: "wsmans",
    6443: "sun-sr-https",
    6514: "syslog-tls",
    6697: "ircs-u",
    8443: "pcsync-https",
    8883: "secure-mqtt",
    9443: "tungsten-https",
}


def target(probe: LatencyProbe, declared: TargetSpec) -> Target:
    """Return one of the probe's targets, without pods, callers, endpoints and ports."""
    thresholds_ns = target_thresholds_ns(probe, declared.name)
    spans = probe.spec.spans
    return Target(
        id=f"{probe.namespace}/{probe.name}/{declared.name}",
        namespace=probe.namespace,
        probe=probe.name,
        probe_uid=probe.uid,
        name=declared.name,
        role=declared.role,
        thresholds_ns=thresholds_ns,
        setup_turns=declared.setup_turns,
        pause_ns=duration_ns(declared.pause),
        tls=_tls(declared),
        protocol=declared.protocol,
        spans=SpanPolicy(
            slower_than_ns=min(thresholds_ns, default=DEFAULT_SLOWER_THAN_NS)
            if spans.slower_than is None
            else duration_ns(spans.slower_than),
            ratio=float(spans.ratio),
            max_per_second=spans.max_per_second,
            stages=spans.stages,
        ),
        evidence=tuple(name for name, wanted in msgspec.structs.asdict(probe.spec.evidence).items() if wanted),
        waits=_waits(probe.spec.evidence),
    )


def _waits(evidence: EvidenceSpec) -> WaitPolicy:
    syscalls, offcpu = evidence.syscalls, evidence.offcpu
    return WaitPolicy(
        slow_call_ns=duration_ns(syscalls.slower_than) if syscalls else 0,
        slow_offcpu_ns=duration_ns(offcpu.slower_than) if offcpu else 0,
        stacks=syscalls is not None and syscalls.stacks != "None",
        user_stacks=syscalls is not None and syscalls.stacks == "User",
    )


def _tls(declared: TargetSpec) -> bool:
    """Return the target's own word, else whether it has ports and all are numbers of `TLS_PORTS`."""
    if declared.tls is not None:
        return declared.tls
    return bool(declared.ports) and all(port in TLS_PORTS for port in declared.ports)


def objectives(probe: LatencyProbe) -> tuple[PlannedObjective, ...]:
    """Return the probe's objectives as a node plan carries them."""
    prefix = f"{probe.namespace}/{probe.name}"
    return tuple(
        PlannedObjective(
            id=f"{prefix}/{o.name}",
            target=f"{prefix}/{o.target}",
            name=o.name,
            perspective=_perspective(probe, o),
            threshold_index=target_thresholds_ns(probe, o.target).index(duration_ns(o.threshold)),
            errors_count_as_bad=o.errors_count_as_bad,
            hash=_hash(probe, o),
            goal=o.goal,
            window=o.window,
            min_events=o.min_events,
        )
        for o in probe.spec.objectives
    )


def target_thresholds_ns(probe: LatencyProbe, target_name: str) -> tuple[int, ...]:
    """Return the distinct thresholds of all objectives of the target, ascending; at most 8."""
    return tuple(sorted({duration_ns(o.threshold) for o in probe.spec.objectives if o.target == target_name}))


def _perspective(probe: LatencyProbe, objective: ObjectiveSpec) -> Role:
    """Return the side whose durations count: the objective's own word, else its target's role."""
    return objective.perspective or _declared(probe, objective).role


def _hash(probe: LatencyProbe, objective: ObjectiveSpec) -> str:
    """Return 16 hex digits of what makes an objective's counts comparable: target, role, side, threshold, errors.

    Goal and window are not in it: they judge the same counts anew.
    """
    of = _declared(probe, objective)
    definition = (
        *(of.name, of.role, _perspective(probe, objective)),
        *(duration_ns(objective.threshold), objective.errors_count_as_bad),
    )
    return hashlib.sha256(msgspec.json.encode(definition)).hexdigest()[:16]


def _declared(probe: LatencyProbe, objective: ObjectiveSpec) -> TargetSpec:
    return next(target for target in probe.spec.targets if target.name == objective.target)
