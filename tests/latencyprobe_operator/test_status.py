"""Statuses and conditions: what a person reads in `kubectl get latencyprobe`."""

import json
from typing import Any

import msgspec
import pytest

from latencyprobe.errors import SpecError
from latencyprobe_operator.agents import STARTING_S, Agents, NodeState
from latencyprobe_operator.planner import Planner
from latencyprobe_operator.registry import Entry
from latencyprobe_operator.status import status


class World:
    """One LatencyProbe, its plan, and the agents' registry; times in s from 0."""

    def __init__(self, make: Any, *pods: Any, **spec: Any) -> None:
        self.probe = make.probe(**spec)
        self.entry = Entry(self.probe.uid, 3, probe=self.probe)
        self.planner, self.agents, self.make = Planner(1000), Agents(), make
        state = make.state(*pods)
        changed = self.planner.update({("shop", "checkout"): self.probe}, state, state.take_changes())
        self.agents.planned(changed, self.planner.nodes, 0.0)

    def heard(self, node: str, now_s: float, **fields: Any) -> None:
        plan = self.planner.plan_of(node)
        self.agents.heard(node, self.make.status(plan.generation, **fields), plan, now_s)

    def status(self, now_s: float, **kw: Any) -> dict[str, Any]:
        resolved = self.planner.resolved["shop", "checkout"]
        states: dict[str, NodeState] = {
            node: self.agents.state(node, self.planner.plan_of(node), now_s) for node in resolved.nodes
        }
        given = {"figures": (), "previous": None, "now": "2026-01-01T00:00:00Z", **kw}
        return status(self.entry, resolved, states=states, agents=self.agents, **given)

    def conditions(self, now_s: float, **kw: Any) -> dict[str, tuple[str, str]]:
        return {c["type"]: (c["status"], c["reason"]) for c in self.status(now_s, **kw)["conditions"]}


@pytest.fixture
def world(make: Any) -> World:
    return World(make, make.pod("cart-1"), clients={"scope": "None"})


def test_everything_is_true_when_the_agent_measures_traffic(world: World) -> None:
    world.heard("n1", 5, seen=7)
    assert world.conditions(6) == {
        "Accepted": ("True", "Accepted"),
        "ProbesReady": ("True", "AgentsReady"),
        "Measuring": ("True", "Measuring"),
        "Ready": ("True", "Ready"),
    }


def test_agents_without_traffic_are_ready_and_say_no_traffic(world: World) -> None:
    world.heard("n1", 5)
    found = world.conditions(6)
    assert (found["Ready"], found["Measuring"]) == (("True", "Ready"), ("False", "NoTraffic"))


def test_agent_that_does_not_come_is_first_awaited_then_missing(world: World) -> None:
    assert world.conditions(STARTING_S - 1)["ProbesReady"] == ("Unknown", "AgentStarting")
    assert world.conditions(STARTING_S + 1)["ProbesReady"] == ("False", "AgentMissing")


def test_agent_that_fell_silent_is_missing_at_once(world: World) -> None:
    world.heard("n1", 5)
    assert world.conditions(40)["ProbesReady"] == ("True", "AgentsReady")
    assert world.conditions(55)["ProbesReady"] == ("False", "AgentMissing")


def test_agent_that_was_turned_away_is_named_so(world: World) -> None:
    world.agents.refused("n1", "the token belongs to node n2, not to n1")
    found = world.status(STARTING_S + 1)["conditions"][1]
    assert (found["reason"], "belongs to node n2" in found["message"]) == ("DirectoryRefused", True)


def test_agents_own_reason_and_error_are_shown(world: World) -> None:
    world.heard("n1", 5, error="no BTF: build the kernel with CONFIG_DEBUG_INFO_BTF", reason="KernelUnsupported")
    found = world.status(6)["conditions"]
    assert [c["reason"] for c in found] == ["Accepted", *["KernelUnsupported"] * 3]
    assert "CONFIG_DEBUG_INFO_BTF" in found[1]["message"]


def test_new_plan_on_its_way_does_not_make_a_ready_agent_unready_for_long(world: World) -> None:
    world.heard("n1", 5)
    world.planner.use_pair_key(b"n" * 32)
    world.agents.planned(frozenset({"n1"}), frozenset({"n1"}), 20)
    world.agents.of["n1"] = msgspec.structs.replace(world.agents.of["n1"], heard_s=40)
    assert world.conditions(21)["ProbesReady"] == ("True", "AgentsReady")
    assert world.conditions(41)["ProbesReady"] == ("Unknown", "AgentStarting")


def test_agent_that_measures_others_but_not_this_latencyprobe_yet_is_starting(world: World) -> None:
    world.heard("n1", 5)
    world.agents.applied["n1"] = msgspec.structs.replace(world.planner.plan_of("n1"), targets=())
    assert world.conditions(6)["ProbesReady"] == ("Unknown", "AgentStarting")
    world.heard("n1", 7)
    assert world.conditions(8)["ProbesReady"] == ("True", "AgentsReady")


def test_selector_without_pods_says_what_to_do(make: Any) -> None:
    found = World(make, make.pod("web-1"), clients={"scope": "None"}).status(1)["conditions"]
    assert found[1]["reason"] == "NoMatchingPods"
    assert "podSelector" in found[1]["message"]


def test_pods_without_the_named_port_say_so(make: Any) -> None:
    found = World(make, make.pod("cart-1", ports=()), clients={"scope": "None"}).status(1)["conditions"]
    assert found[1]["reason"] == "NoMatchingPods"
    assert "named ports" in found[1]["message"]


def test_suspended_is_ready_and_measures_nothing(make: Any) -> None:
    found = World(make, make.pod("cart-1"), suspend=True).conditions(1)
    assert found["Ready"] == ("True", "Suspended")
    assert found["Measuring"] == ("False", "Suspended")


def test_scope_that_is_not_allowed_stalls(make: Any) -> None:
    found = World(make, make.pod("cart-1"), clients={"scope": "Cluster"}).conditions(1)
    assert found["Accepted"] == ("False", "ClusterScopeNotAllowed")
    assert found["Stalled"] == ("True", "ClusterScopeNotAllowed")


def test_ephemeral_store_is_said(world: World) -> None:
    assert world.conditions(1, store_ephemeral=True)["StoreEphemeral"] == ("True", "StoreEphemeral")


def test_invalid_spec_names_the_field() -> None:
    entry = Entry("u", 4, error=SpecError("spec.targets[0].ports[0]", "0 is below 1"))
    found = status(entry, None, states={}, agents=Agents(), figures=(), previous=None, now="2026-01-01T00:00:00Z")
    assert found["observedGeneration"] == 4
    assert found["conditions"][0]["reason"] == "InvalidSpec"
    assert "spec.targets[0].ports[0]" in found["conditions"][0]["message"]


def test_figures_and_counts_are_short_strings_and_numbers(world: World) -> None:
    world.heard("n1", 5, seen=7)
    results = [
        {"objective": "fast", "state": "Met", "sli": "99.99", "errorBudgetRemaining": "90"},
        {"objective": "faster", "state": "Violated", "sli": "90", "errorBudgetRemaining": "-900"},
    ]
    found = world.status(6, figures=results)
    assert (found["nodes"], found["pods"], found["slo"]) == ("1/1", 1, "Violated")
    assert found["targets"] == [{"name": "cart", "pods": 1, "nodes": 1, "agentsReady": 1, "class": "pingpong"}]
    assert found["objectives"][0] == {"name": "fast", "state": "Met", "sli": "99.99", "errorBudgetRemaining": "90"}


def test_objective_that_cannot_be_evaluated_has_a_condition(world: World) -> None:
    broken = {"objective": "fast", "state": "Incomplete", "reason": "its counts are broken"}
    found = world.status(6, figures=[broken, {"objective": "faster", "state": "Met"}])
    assert (found["slo"], found["conditions"][-1]["type"], found["conditions"][-1]["message"]) == (
        "Incomplete",
        "ObjectiveBroken",
        "fast: its counts are broken",
    )


def test_largest_status_stays_below_16_kib(make: Any) -> None:
    name = "n" * 63
    targets = [{"name": f"{i:02}{name[2:]}", "ports": [8080]} for i in range(32)]
    world = World(make, make.pod("cart-1"), targets=targets, objectives=[], clients={"scope": "None"})
    world.heard("n1", 5, error="e" * 5000, reason="KernelUnsupported")
    result = {"state": "Incomplete", "sli": "99.99999", "errorBudgetRemaining": "-9999.9"}
    found = world.status(6, figures=[{"objective": f"{i:02}{name[2:]}", **result} for i in range(32)])
    size = len(json.dumps(found))
    assert size < 16 << 10, f"{size} B"
