"""The loop of the plans: after each change, to all whom they concern."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Set
from typing import Any

import pytest

from latencyprobe.sli import SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe_operator.cluster import loops as loops_
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.state import Changes
from latencyprobe_operator.directory import planning as planning_
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.planning import Planning
from latencyprobe_operator.plan import staying
from latencyprobe_operator.plan.agents import Agents, NodeState
from latencyprobe_operator.plan.deliveries import Deliveries, Delivery
from latencyprobe_operator.plan.planner import Planner, Work
from latencyprobe_operator.reports.store_thread import FakeStoreThread
from latencyprobe_operator.status.registry import Registry


class World:
    """Planning with its parts, and the nodes of each publication."""

    def __init__(self, make: Any) -> None:
        self.make, self.state = make, make.state(make.pod("cart-1"))
        self.planner, self.agents = Planner(1000, b"k" * 32), Agents()
        self.changed, self.planned = Trigger(), Trigger()
        self.registry, self.store_thread = Registry(self.changed.set), FakeStoreThread()
        self.ingest = Ingest(self.store_thread)
        self.ingest.asked.known = True
        self.suspended_by = ""
        self.published: list[frozenset[str]] = []
        self.delivered: list[Delivery] = []
        self.deliveries = Deliveries(delivered=self.delivered.append)
        self.forgotten: set[str] = set()
        self.told: list[set[str]] = []
        self.planning = Planning(
            self.planner,
            self.agents,
            self.registry,
            self.state,
            self.ingest.asked,
            changed=self.changed,
            streams=self,
            deliveries=self.deliveries,
            planned=(self.planned.set, lambda: self.told.append({*self.state.nodes()})),
            suspended_by=lambda: self.suspended_by,
        )
        self.registry.put(make.document(clients={"scope": "None"}))

    def publish(self, nodes: frozenset[str]) -> frozenset[str]:
        self.published.append(nodes)
        return nodes

    def changing(self, changes: Changes) -> None:
        self.forget(changes.addresses)

    def forget(self, addresses: Set[str]) -> None:
        self.forgotten |= addresses

    def state_of(self, node: str) -> NodeState:
        return self.agents.state(node, self.planner.plan_of(node), 0.0)


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(make: Any) -> Play:
    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            await scene(World(make))

        asyncio.run(whole())

    return run


def test_plan_goes_to_the_streams_and_the_labels(play: Play) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        assert world.published == [frozenset({"n1"})]
        assert world.planner.nodes == {"n1"}
        await world.planned.wait()

    play(scene)


def test_addresses_that_change_hands_are_told_even_if_planning_fails(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        world.forgotten.clear()
        world.state.put("pods", make.pod("cart-1", uid="another", addresses=("10.0.0.9",)))
        monkeypatch.setattr(world.planner, "work", lambda *_: iter([1 / 0]))
        with pytest.raises(ZeroDivisionError):
            await world.planning.turn()
        (old,) = make.pod("cart-1").addresses
        assert {old, "10.0.0.9"} <= world.forgotten

    play(scene)


def test_callers_of_a_node_that_need_not_measure_any_more_are_told(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        world.registry.put(make.document("all", clients={"scope": "Namespace"}))
        world.state.put("pods", make.pod("web-1", node="n2", addresses=("10.0.0.7",)))
        await world.planning.turn()
        plan = world.planner.plan_of("n2")
        world.agents.reported("n2", make.status(plan.generation), plan, 0.0)
        world.forgotten.clear()
        world.registry.drop(("shop", "all"), "uid-shop-all")
        await world.planning.turn()
        await world.planning.turn()
        assert world.forgotten == {"10.0.0.7"}

    play(scene)


def test_a_node_that_callers_have_left_is_let_go_without_another_change(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(staying, "STAYS_S", 0.3)

    async def scene(world: World) -> None:
        world.registry.put(make.document("all"))
        world.state.put("pods", make.pod("web-1", node="n2"))
        await world.planning.turn()
        world.state.drop("pods", ("shop", "web-1"))
        await world.planning.turn()
        assert world.planner.nodes == {"n1", "n2"}
        task = asyncio.create_task(Loops().run(world.planning))
        await make.until(lambda: world.planner.nodes == {"n1"})
        task.cancel()

    play(scene)


def test_counts_are_taken_of_what_was_planned(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        (objective,) = objectives(make.probe())
        batch = SliBatch("i", 0, (SliRow(*objective.key, minute=int(time.time()) // 60 * 60, good=1),))
        await world.ingest.take("n1", batch)
        await world.planning.turn()
        await world.ingest.take("n1", batch)
        assert [len(taken.rows) for _, taken in world.store_thread.batches] == [0, 1]

    play(scene)


def test_counts_are_taken_of_a_plan_that_somebody_asked_for_while_it_was_made(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loops_, "SLICE_S", 0.0)

    async def scene(world: World) -> None:
        turn = asyncio.create_task(world.planning.turn())
        while not (world.planner.resolved or turn.done()):  # noqa: ASYNC110 - between two slices
            await asyncio.sleep(0)
        assert not turn.done(), "it is asked for too late"
        world.planner.plan_of("n1")
        await turn
        assert world.published == [frozenset({"n1"})]
        (objective,) = objectives(make.probe())
        assert world.ingest.asked.includes("n1", objective.key, int(time.time()))

    play(scene)


def test_new_pair_key_is_published_and_a_ready_agent_stays_ready_while_it_is_on_its_way(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        plan = world.planner.plan_of("n1")
        world.agents.reported("n1", make.status(plan.generation), plan, 0.0)
        world.planning.use_pair_key(b"n" * 32)
        await world.changed.wait()
        await world.planning.turn()
        assert world.published[1:] == [frozenset({"n1"})]
        assert world.planner.plan_of("n1").generation > plan.generation
        assert world.state_of("n1") is NodeState.READY
        world.planning.use_pair_key(b"n" * 32)
        await world.planning.turn()
        assert world.published[2:] == [frozenset()]

    play(scene)


def test_after_each_plan_others_are_told_and_see_the_nodes_that_there_are(play: Play) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        world.state.drop("nodes", ("", "n2"))
        await world.planning.turn()
        assert world.told == [{"n1", "n2", "n3"}, {"n1", "n3"}]

    play(scene)


def test_plan_that_failed_is_made_again_without_another_change(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(planning_, "RETRY_S", 0.01)

    async def scene(world: World) -> None:
        work, loops = world.planner.work, Loops()

        def fails_once(*args: Any) -> Work:
            monkeypatch.setattr(world.planner, "work", work)
            raise RuntimeError("unforeseen")

        monkeypatch.setattr(world.planner, "work", fails_once)
        task = asyncio.create_task(loops.run(world.planning))
        await make.until(lambda: world.published)
        task.cancel()
        assert loops.failures == {("planning", "RuntimeError"): 1}
        assert world.planner.nodes == {"n1"}

    play(scene)


def test_suspending_everything_empties_every_plan_and_taking_it_back_fills_them_again(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        before = world.planner.plan_of("n1")
        world.suspended_by = "a label"
        await world.planning.turn()
        suspended = world.planner.plan_of("n1")
        assert (suspended.suspend, suspended.targets, suspended.objectives) == (True, (), ())
        assert suspended.generation > before.generation
        assert world.planner.nodes == frozenset()
        assert world.planner.plan_of("n3").suspend, "also to an agent that comes now"
        world.suspended_by = ""
        await world.planning.turn()
        after = world.planner.plan_of("n1")
        assert (after.suspend, after.targets, after.digest) == (False, before.targets, before.digest)
        assert [frozenset({"n1"})] * 3 == world.published

    play(scene)


def test_a_change_is_waited_for_from_when_it_was_seen_until_its_agents_follow(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        await world.planning.turn()
        world.state.put("pods", make.pod("cart-1", addresses=("10.9.9.9",)))
        world.changed.set()
        await world.planning.due(failed=False)
        await world.planning.turn()
        world.deliveries.followed("n1", world.planner.plan_of("n1").generation, time.monotonic())
        first, second = world.delivered
        assert (first.change.nodes, first.change.namespaces) == (1, ("shop",)), "of a LatencyProbe that came"
        assert (second.change.nodes, second.change.namespaces) == (1, ("shop",))
        seen_s, began_s, planned_s = second.change[:3]
        assert seen_s <= began_s <= planned_s <= (second.followed_s["n1"] or 0)
        assert began_s - seen_s >= planning_.SETTLE_S

    play(scene)
