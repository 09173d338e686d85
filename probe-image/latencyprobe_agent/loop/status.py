"""What the agent reports of itself to its control: what it measures, or why it does not."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from pathlib import Path

import numpy as np

from latencyprobe.errors import Unsupported
from latencyprobe.plan import AgentStatus, NodePlan, TargetStatus
from latencyprobe_agent.config import Config
from latencyprobe_agent.measure.turn import Turn
from latencyprobe_agent.vocabulary.records import ExchangeClass


def refused(config: Config, error: Unsupported) -> AgentStatus:
    """Return the status of an agent whose kernel refuses."""
    return _status(config, error=str(error), reason=error.reason)


def suspended(config: Config, plan: NodePlan) -> AgentStatus:
    """Return the status of an agent that attaches nothing, as its plan asks."""
    return _status(config, generation=plan.generation)


def measuring(
    config: Config,
    last: Turn | None,
    variants: Mapping[str, str],
    problem: Unsupported | None,
    failing: Mapping[str, str],
    *,
    sampling: bool,
    safe_mode: str = "",
) -> AgentStatus:
    """Return the status of an agent that measures.

    `last`: its last turn with counts, None before there is one. `problem`: why the newest plan is not in force;
    `failing`: parts that raise, and what; `sampling`: it makes spans;
    `safe_mode`: why it counts alone.
    """
    counts = last.counts if last else None
    return _status(
        config,
        generation=last.in_force.plan.generation if last else 0,
        variants=dict(variants),
        error=str(problem or ""),
        reason=problem.reason if problem else "",
        targets=target_statuses(last) if last else (),
        lost=dict(counts.lost) if counts else {},
        failing=dict(failing),
        spans_per_second=config.spans_per_second if sampling else None,
        spans_limited=last.stats.spans_limited if last and last.stats else (),
        safe_mode=safe_mode,
    )


def target_statuses(turn: Turn) -> tuple[TargetStatus, ...]:
    """Return what was seen of each target of the plan, on both sides together."""
    if turn.counts is None:
        return ()
    (keys, values), sets = turn.counts.counts, turn.in_force.rules.sets
    return tuple(
        TargetStatus(
            id=target.id,
            seen=int(classes.sum()),
            classes={kind.name.lower(): int(classes[kind]) for kind in ExchangeClass if classes[kind]},
            lost={"ring_full": lost} if (lost := int(values["lost_records"][rows].sum())) else {},
            refused=turn.in_force.rules.refused.get(target.id, ""),
        )
        for target in turn.in_force.plan.targets
        for rows in [np.isin(keys["target_set"], [i for i, one in sets.items() if target.id in one.targets])]
        for classes in [values["classes"][rows].sum(axis=0)]
    )


def _status(
    config: Config,
    *,
    generation: int = 0,
    variants: dict[str, str] | None = None,
    error: str = "",
    reason: str = "",
    targets: tuple[TargetStatus, ...] = (),
    lost: dict[str, int] | None = None,
    failing: dict[str, str] | None = None,
    spans_per_second: int | None = None,
    spans_limited: tuple[str, ...] = (),
    safe_mode: str = "",
) -> AgentStatus:
    return AgentStatus(
        instance=config.instance,
        boot_id=_boot_id(),
        version=_version(),
        generation=generation,
        variants=variants or {},
        error=error,
        reason=reason,
        targets=targets,
        lost=lost or {},
        failing=failing or {},
        spans_per_second=spans_per_second,
        spans_limited=spans_limited,
        safe_mode=safe_mode,
    )


@cache
def _boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()


@cache
def _version() -> str:
    return version("latencyprobe")
