"""An operator that remembers what a node was asked to count, over restarts."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from latencyprobe.slo.objective import ObjectiveKey, objectives
from latencyprobe.slo.windows import DAY_S
from latencyprobe.store import SqliteStore
from latencyprobe_operator.directory.asked import Asked
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.store_thread import StoreThread

BEGAN = 1_000 * DAY_S


class World:
    """The objective of a LatencyProbe on node n1; `plan(True)` asks for it, `plan(False)` no more."""

    def __init__(self, make: Any, path: Path) -> None:
        self.now, self.path, self.make = BEGAN, path, make
        self.state = make.state(*(make.pod("cart-1", ns) for ns in ("shop", "bank")), namespaces=("shop", "bank"))
        self.planner, self.probe = Planner(1), make.probe()
        (self.objective,) = objectives(self.probe)
        self.plan(True)

    def plan(self, wanted: bool) -> None:
        probes = {("shop", "checkout"): self.probe} if wanted else {}
        self.planner.update(probes, self.state, self.state.take_changes())

    def edit(self, asked: Asked, threshold_ms: int, *namespaces: str, each: int = 1) -> list[ObjectiveKey]:
        """Ask for this threshold in these namespaces, by as many objectives each."""
        fast = {"target": "cart", "threshold": f"{threshold_ms}ms", "goal": "99"}
        named = [fast | {"name": f"fast-{number}"} for number in range(each)]
        probes = {(ns, "checkout"): self.make.probe(namespace=ns, objectives=named) for ns in namespaces}
        self.planner.update(probes, self.state, self.state.take_changes())
        asked.planned(self.planner.plan_of("n1"))
        return [one.key for probe in probes.values() for one in objectives(probe)]

    async def run(self, scene: Callable[[Asked, StoreThread], Awaitable[None]]) -> None:
        """One life of an operator."""
        clock = lambda: self.now  # noqa: E731 - read by both
        async with StoreThread(lambda: SqliteStore(self.path, clock=clock, steady=clock)) as store_thread:
            await scene(Asked(store_thread, clock), store_thread)

    def includes(self, asked: Asked, minute: int, node: str = "n1") -> bool:
        return asked.includes(node, self.objective.key, minute)
