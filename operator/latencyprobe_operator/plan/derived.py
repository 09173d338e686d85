"""What follows from plans, found once for each plan. Pure."""

from collections.abc import Callable, Set
from typing import Generic, TypeVar

from latencyprobe.plan import NodePlan

T = TypeVar("T")


class Derived(Generic[T]):
    """What `make` finds in a plan, kept of the plan of each node that was asked for last. What is equal to that of the
    node's plan before is that one."""

    def __init__(self, make: Callable[[NodePlan], T]) -> None:
        self._make = make
        self._of: dict[str, tuple[NodePlan, T]] = {}

    def of(self, plan: NodePlan) -> T:
        """Return what follows from a plan."""
        known = self._of.get(plan.node)
        if known is not None and known[0] is plan:
            return known[1]
        made = self._make(plan)
        if known is not None and known[1] == made:
            made = known[1]
        self._of[plan.node] = plan, made
        return made

    def keep(self, nodes: Set[str]) -> None:
        """Forget all other nodes."""
        for node in self._of.keys() - nodes:
            del self._of[node]
