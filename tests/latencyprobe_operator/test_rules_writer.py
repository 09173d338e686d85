"""PrometheusRules are written where they differ, deleted where nothing asks for them, and nobody else's is touched."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.objects import Key, Namespace
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.rules.documents import by_probe
from latencyprobe_operator.rules.writer import RuleWriter

KEY, NAME = ("shop", "checkout"), "latencyprobe-checkout"


class Refusing(FakeCluster):
    """An API server whose webhook refuses rules."""

    async def write_rule(self, rule: Mapping[str, Any]) -> str:
        raise ApiError(500, "failed calling webhook")


class World:
    """A cluster, its LatencyProbes and who writes their rules."""

    def __init__(self, make: Any, cluster: FakeCluster, *namespaces: Namespace, writes: Writes | None = None) -> None:
        self.cluster, self.make = cluster, make
        self.probes: dict[Key, Any] = {KEY: make.probe()}
        self.writer = RuleWriter(cluster, writes or Writes(), make.state(*namespaces), {"release": "stack"})

    def turn(self) -> list[tuple[Any, ...]]:
        """What is written now."""
        before = len(self.cluster.calls)

        async def play() -> None:
            await self.writer.write(self.probes, by_probe(await self.cluster.rules()))

        asyncio.run(play())
        return self.cluster.calls[before:]

    def edit(self, *objectives: str, **fields: Any) -> None:
        judged = [{"name": name, "target": "cart", "threshold": "25ms", "goal": "99"} for name in objectives]
        self.probes[KEY] = self.make.probe(objectives=judged, **fields)


@pytest.fixture
def world(make: Any, cluster: FakeCluster) -> World:
    return World(make, cluster)


def test_rules_are_written_once_and_again_when_an_objective_changes(world: World) -> None:
    assert world.turn() == [("write_rule", "shop", NAME)]
    assert world.turn() == []
    world.edit("fast", spans={"ratio": "0.5"})
    assert world.turn() == [], "nothing of it is in the rules"
    world.edit("faster")
    uid = world.cluster.there["shop", NAME]["metadata"]["uid"]
    assert world.turn() == [("write_rule", "shop", NAME)]
    assert world.cluster.there["shop", NAME]["metadata"]["uid"] == uid
    assert "faster" in str(world.cluster.there["shop", NAME]["spec"])


def test_what_others_changed_or_deleted_is_mended(world: World) -> None:
    world.turn()
    world.cluster.there["shop", NAME]["metadata"]["resourceVersion"] = "of another"
    assert world.turn() == [("write_rule", "shop", NAME)]
    del world.cluster.there["shop", NAME]
    assert world.turn() == [("write_rule", "shop", NAME)]
    assert world.turn() == []


def test_rules_go_with_their_objectives(world: World) -> None:
    world.edit(*(f"o{i}" for i in range(9)))
    assert [call[2] for call in world.turn()] == [NAME, f"{NAME}.2"]
    world.edit("o1")
    assert world.turn() == [("write_rule", "shop", NAME), ("delete_rule", "shop", f"{NAME}.2")]
    world.edit()
    assert world.turn() == [("delete_rule", "shop", NAME)]
    assert (world.cluster.there, world.turn()) == ({}, [])


def test_rules_of_a_process_before_are_taken_over_and_deleted_without_objectives(make: Any, world: World) -> None:
    world.turn()
    later = World(make, world.cluster)
    later.edit()
    assert later.turn() == [("delete_rule", "shop", NAME)]


def test_rules_of_a_latencyprobe_that_is_gone_are_left_to_the_garbage_collector(world: World) -> None:
    world.turn()
    del world.probes[KEY]
    assert world.turn() == []
    assert ("shop", NAME) in world.cluster.there


def test_rules_of_somebody_else_stay_as_they_are_and_that_is_told_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    theirs = {"metadata": {"namespace": "shop", "name": NAME, "uid": "u"}, "spec": {"groups": []}}
    world.cluster.there["shop", NAME] = theirs
    assert (world.turn(), world.turn()) == ([], [])
    assert world.cluster.there["shop", NAME] is theirs
    assert world.writer.problems[KEY].reason == "NameTaken"
    assert f"PrometheusRule {NAME}" in world.writer.problems[KEY].message
    assert caplog.text.count(NAME) == 1
    world.edit()
    assert world.turn() == [], "nor is it deleted"
    world.edit("fast")
    del world.cluster.there["shop", NAME]
    assert world.turn() == [("write_rule", "shop", NAME)]
    assert world.writer.problems == {}


def test_rules_that_lost_our_label_are_somebody_elses(world: World) -> None:
    world.turn()
    del world.cluster.there["shop", NAME]["metadata"]["labels"]["app.kubernetes.io/managed-by"]
    assert world.turn() == []
    assert world.writer.problems[KEY].reason == "NameTaken"


def test_refusal_is_told_to_that_latencyprobe_and_the_others_go_on(make: Any) -> None:
    world = World(make, Refusing(), Namespace("web"))
    world.turn()
    assert world.writer.problems == {KEY: ("WriteRefused", "failed calling webhook")}
    del world.probes[KEY]
    world.turn()
    assert world.writer.problems == {}


def test_rules_that_could_not_be_written_or_deleted_are_tried_again(world: World) -> None:
    world.cluster.fails = {"write_rule"}
    assert [len(world.turn()) for _ in range(2)] == [1, 1]
    world.cluster.fails = set()
    world.turn()
    world.edit()
    world.cluster.fails = {"delete_rule"}
    assert [len(world.turn()) for _ in range(2)] == [1, 1]


def test_nothing_is_written_into_a_namespace_that_is_going_away_or_without_the_lease(make: Any) -> None:
    leaving = World(make, FakeCluster(), Namespace("shop", terminating=True))
    assert leaving.turn() == []
    writes = Writes(lambda: 0.0)
    other = World(make, FakeCluster(), writes=writes)
    assert other.turn() == []
    assert writes.counts == {("rule", "held_back"): 1}
