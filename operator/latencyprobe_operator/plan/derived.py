"""What follows from plans, found once for each plan. Pure."""

from collections.abc import Callable, Sequence, Set
from operator import is_
from typing import Generic, TypeVar

from latencyprobe.plan import NodePlan

T = TypeVar("T")


class Derived(Generic[T]):
    """What `make` finds in a plan, kept of the plan of each node that was asked for last. What is equal to that of the
    node's plan before is that one. `of`: the parts of a plan that it follows from: where these are the same objects,
    nobody looks."""

    def __init__(
        self, make: Callable[[NodePlan], T], of: Callable[[NodePlan], Sequence[object]] = lambda plan: (plan,)
    ) -> None:
        self._make = make
        self._parts = of
        self._of: dict[str, tuple[NodePlan, T]] = {}

    def of(self, plan: NodePlan) -> T:
        """Return what follows from a plan."""
        known = self._of.get(plan.node)
        if known is not None and known[0] is plan:
            return known[1]
        made = known[1] if known is not None and self._same(known[0], plan) else self._make(plan)
        if known is not None and known[1] == made:
            made = known[1]
        self._of[plan.node] = plan, made
        return made

    def _same(self, old: NodePlan, new: NodePlan) -> bool:
        before, after = self._parts(old), self._parts(new)
        return len(before) == len(after) and all(map(is_, before, after))

    def keep(self, nodes: Set[str]) -> None:
        """Forget all other nodes."""
        for node in self._of.keys() - nodes:
            del self._of[node]
