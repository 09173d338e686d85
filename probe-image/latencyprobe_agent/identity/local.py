"""LatencyProbe files to the plan of this host: what `run` and `plan` measure without an operator.

Pure: probes in, plan and notices out. Pod selectors do not apply, ports must be numbers, rules hold for every socket
of the machine: docs/design/directory.md, "Standalone".
"""

import hashlib
import secrets
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from latencyprobe import planning, spec
from latencyprobe.errors import SpecError
from latencyprobe.plan import NodePlan, Target
from latencyprobe.spec import LatencyProbe, TargetSpec


class LocalPlan(NamedTuple):
    """A plan, and what a person should know about how it differs from the same file in a cluster."""

    plan: NodePlan
    notices: tuple[str, ...]


def pairing_key(shared: str | None) -> bytes:
    """Return 32 bytes: from the text of `--pair-key`, so that two hosts agree, else random for this run."""
    return hashlib.sha256(shared.encode()).digest() if shared is not None else secrets.token_bytes(32)


def local_plan(probes: Sequence[LatencyProbe], node: str, pair_key: bytes) -> LocalPlan:
    """Return what to measure on this host. Raises SpecError for a port that has a name."""
    notices = [f"{probe.namespace}/{probe.name}: suspended, not measured" for probe in probes if probe.spec.suspend]
    active = [probe for probe in probes if not probe.spec.suspend]
    selecting = [
        f"{probe.namespace}/{probe.name}/{target.name}"
        for probe in active
        for target in probe.spec.targets
        if target.pod_selector != spec.LabelSelector()
    ]
    if selecting:
        notices.append(f"podSelector does not apply here: every process of this host counts for {', '.join(selecting)}")
    plan = NodePlan(
        node=node,
        generation=1,
        digest="",
        targets=tuple(_target(probe, i) for probe in active for i in range(len(probe.spec.targets))),
        objectives=tuple(objective for probe in active for objective in planning.objectives(probe)),
        pair_key=pair_key,
        host=True,
    )
    keyless = msgspec.structs.replace(plan, pair_key=b"")
    digest = hashlib.sha256(msgspec.json.encode(keyless)).hexdigest()
    return LocalPlan(msgspec.structs.replace(plan, digest=digest), tuple(notices))


def _target(probe: LatencyProbe, index: int) -> Target:
    target = probe.spec.targets[index]
    return msgspec.structs.replace(
        planning.target(probe, target),
        ports=_numbers(f"{probe.namespace}/{probe.name}", target, index),
        clients=probe.spec.clients.scope != "None",
    )


def _numbers(probe: str, target: TargetSpec, index: int) -> tuple[int, ...]:
    for i, port in enumerate(target.ports):
        if isinstance(port, str):
            raise SpecError(
                f"spec.targets[{index}].ports[{i}]",
                f"{port!r}: names of container ports mean nothing outside a cluster: give the number",
                probe,
            )
    return tuple(port for port in target.ports if isinstance(port, int))
