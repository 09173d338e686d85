"""What the agent reports of itself to its control: what it measures, or why it does not."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from latencyprobe.errors import Unsupported
from latencyprobe.plan import AgentStatus, NodePlan, TargetStatus
from latencyprobe_agent.config import Config
from latencyprobe_agent.measure.counts import NO_COUNTS, Counts
from latencyprobe_agent.measure.rules import MAX_SETS, NO_RULES
from latencyprobe_agent.measure.turn import Turn
from latencyprobe_agent.vocabulary.records import ExchangeClass


def refused(config: Config, error: Unsupported) -> AgentStatus:
    """Return the status of an agent whose kernel refuses."""
    return replace(_nothing(config), error=str(error), reason=error.reason)


def suspended(config: Config, plan: NodePlan) -> AgentStatus:
    """Return the status of an agent that attaches nothing, as its plan asks."""
    return replace(_nothing(config), generation=plan.generation)


def measuring(
    config: Config,
    last: Turn | None,
    variants: Mapping[str, str],
    problem: Unsupported | None,
    failing: Mapping[str, str],
    *,
    seen: "Seen",
    sampling: bool,
    refused: Mapping[str, str],
    loading: tuple[str, ...],
    safe_mode: str = "",
) -> AgentStatus:
    """Return the status of an agent that measures.

    `last`: its last turn with counts, None before there is one. `problem`: why the newest plan is not in force;
    `failing`: parts that raise, and what; `seen`: of these programs; `sampling`: it makes spans;
    `refused`: signals of evidence that cannot be attached, and why; `loading`: those that are not attached yet;
    `safe_mode`: why it counts alone.
    """
    return replace(
        _nothing(config),
        generation=last.in_force.plan.generation if last else 0,
        variants=dict(variants),
        error=str(problem or ""),
        reason=problem.reason if problem else "",
        targets=seen.targets(last) if last else (),
        failing=dict(failing),
        spans_per_second=config.spans_per_second if sampling else None,
        spans_limited=last.stats.spans_limited if last and last.stats else (),
        safe_mode=safe_mode,
        refused=dict(refused),
        loading=loading,
    )


class Seen:
    """What the kernel has counted of target sets, of each since its number means it. For one run of the programs."""

    def __init__(self) -> None:
        self._rules = NO_RULES
        self._counted, self._before = _by_number(NO_COUNTS), _by_number(NO_COUNTS)

    def targets(self, turn: Turn) -> tuple[TargetStatus, ...]:
        """Return what was seen of each target of the plan, on both sides together. To be asked once per second."""
        if turn.counts is None:
            return ()
        rules = turn.in_force.rules
        again = list(rules.used_again(self._rules)) if rules is not self._rules else []
        self._before[again] = self._counted[again]
        self._rules, self._counted = rules, _by_number(turn.counts.counts)
        seen = self._counted - self._before
        return tuple(
            TargetStatus(
                id=target.id,
                seen=sum(classes),
                classes={kind.name.lower(): classes[kind] for kind in ExchangeClass if classes[kind]},
                lost={},
                refused=rules.refused.get(target.id, ""),
            )
            for target in turn.in_force.plan.targets
            for numbers in [[i for i, one in rules.sets.items() if target.id in one.targets]]
            for classes in [seen[numbers].sum(axis=0).tolist()]
        )


def _by_number(counts: Counts) -> NDArray[np.uint64]:
    """Return the classes of each target set: u64[sets, classes]."""
    keys, values = counts
    found = np.zeros((MAX_SETS + 1, values["classes"].shape[1]), np.uint64)
    np.add.at(found, keys["target_set"], values["classes"])
    return found


def _nothing(config: Config) -> AgentStatus:
    """Return the status of an agent of which there is nothing to tell."""
    return AgentStatus(
        instance=config.instance,
        boot_id="",
        version=_version(),
        generation=0,
        variants={},
        error="",
        targets=(),
        lost={},
    )


@cache
def _version() -> str:
    return version("latencyprobe")
