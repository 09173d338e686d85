"""Room in plans: a namespace that asks for too much loses LatencyProbes, and takes nothing from the others."""

import random
import tracemalloc
from typing import Any

import msgspec
import pytest

from latencyprobe.plan_stream import PlanLine
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.plan import room as room_
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.plan.room import REMEDY, Most, Room, left_out
from latencyprobe_operator.plan.targets import finished
from latencyprobe_operator.status.conditions import conditions
from latencyprobe_operator.status.placement import Placement

NODES = ("n1", "n2", "n3")
HONEST = ("shop", "checkout")


def hostile(make: Any, number: int, ports: int) -> Any:
    """As many targets and ports as the schema allows, each of all pods, which call each other."""
    first = 1 + number * 512
    targets = [{"name": f"t{i}", "ports": [*range(first + i * ports, first + (i + 1) * ports)]} for i in range(32)]
    objectives = [{"name": f"o{i}", "target": f"t{i}", "threshold": "25ms", "goal": "99"} for i in range(32)]
    return make.probe(f"p{number}", "evil", targets=targets, objectives=objectives)


@pytest.mark.long
def test_hostile_latencyprobes_bound_plans_and_memory_and_the_honest_one_is_planned_whole(make: Any) -> None:
    theirs = [
        make.pod(
            f"a-{i}", "evil", f"n{i % 3 + 1}", addresses=(f"10.1.0.{i}",), owner_kind="Job", owner_name=f"j{i % 9}"
        )
        for i in range(30)
    ]
    ours = [make.pod(f"cart-{node}", node=node, addresses=(f"10.2.0.{i}",)) for i, node in enumerate(NODES)]
    alone, planner = Planner(1), Planner(1)
    state = make.state(*ours, *theirs, namespaces=("shop", "evil"))
    probes = {HONEST: make.probe()}
    alone.update(probes, state, state.take_changes())
    probes |= {(p.namespace, p.name): p for p in (hostile(make, number, 16) for number in range(60))}
    state.put("pods", theirs[0])
    tracemalloc.start()
    try:
        planner.update(probes, state, state.take_changes())
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    for node in NODES:
        whole = planner.plan_of(node)
        honest = [target for target in whole.targets if target.namespace == "shop"]
        assert honest == [*alone.plan_of(node).targets]
        assert len(msgspec.json.encode(PlanLine(whole))) < 16 << 20, "half of what an agent takes"
        assert len(whole.targets) > len(honest), "who asks for too much has the room that is left"
    assert most < 64 << 20
    assert planner.without_room == 60 - len([key for key in probes if planner.resolved[key].parts and key != HONEST])


def test_who_has_no_room_is_told_where_for_how_much_and_what_to_do(make: Any) -> None:
    state = make.state(make.pod("cart-1"), make.pod("a-1", "evil"), namespaces=("shop", "evil"))
    planned = make.planned()
    planned.state, planned.planner = state, Planner(1, most=Most(plan=60))
    planned.probe = made = hostile(make, 1, 1)
    planned.plan(make.probe(), made)
    placement = Placement(state, "agents", ())
    found = conditions(planned.resolved, {}, planned.agents, late=[], placement=placement)
    assert {one.reason for one in found} == {"TargetRefused"}
    assert found[0].message == (
        "there is room for 60 pods, ports, callers and endpoints of targets in the plan of node n1, and 660 are asked "
        f"for, most of them by namespace evil, 640 by this LatencyProbe: {REMEDY}"
    )
    assert planned.planner.resolved[HONEST].refusal is None


def test_one_that_is_too_much_by_itself_is_refused_before_it_is_made(make: Any) -> None:
    state, planner = make.state(make.pod("a-1", "evil"), namespaces=("evil",)), Planner(1, most=Most(whole=400))
    planner.update({("evil", "p1"): hostile(make, 1, 32)}, state, state.take_changes())
    reason, why = planner.resolved["evil", "p1"].refusal
    assert reason == "TargetRefused"
    assert why == (
        "target t1 has more than 35 pods, ports and addresses by which it is reached, of 100 that one LatencyProbe may "
        f"have: {REMEDY}"
    )


def test_who_had_no_room_is_measured_once_there_is_some(make: Any) -> None:
    state, planner = make.state(make.pod("a-1", "evil"), namespaces=("evil",)), Planner(1, most=Most(plan=1_000))
    both = {("evil", f"p{i}"): hostile(make, i, 1) for i in (1, 2)}
    planner.update(both, state, state.take_changes())
    assert planner.without_room == 1
    (gone,) = (key for key, one in planner.resolved.items() if one.refusal is None)
    del both[gone]
    planner.update(both, state, state.take_changes())
    assert planner.without_room == 0
    assert {target.probe for target in planner.plan_of("n1").targets} == {key[1] for key in both}


@pytest.mark.parametrize("seed", range(100))
def test_what_is_left_fits_and_who_asks_for_no_more_than_an_equal_share_loses_nothing(seed: int) -> None:
    draw = random.Random(seed)
    asked: dict[Key, int] = {}
    for namespace in "abcd"[: draw.randint(1, 4)]:
        for number in range(draw.randint(1, 6)):
            asked[namespace, f"p{number}"] = draw.choice([1, 5, 20, 300])
    room, sums = draw.choice([10, 50, 400]), {}
    for (namespace, _), entries in asked.items():
        sums[namespace] = sums.get(namespace, 0) + entries
    out = left_out(asked, room)
    assert sum(entries for key, entries in asked.items() if key not in out) <= room
    assert all(sums[namespace] > room // len(sums) for namespace, _ in out)


def test_who_is_out_follows_from_what_is_asked_for_and_not_from_who_asked_first() -> None:
    asks: list[tuple[Key, dict[str, int]]] = [(("a", f"p{i}"), {"n1": 10 + i, "n2": 5 * i}) for i in range(6)] + [
        (("b", "p"), {"n1": 20})
    ]
    found = []
    for seed in range(20):
        room = Room(Most(plan=45))
        random.Random(seed).shuffle(asks)
        for key, needs in asks:
            room.ask(key, needs)
        finished(room.judge())
        found.append(room.out)
    assert all(one == found[0] for one in found)
    assert ("b", "p") not in found[0]
    assert found[0]


def test_however_many_are_looked_at_beside_one_that_asks_for_too_much_the_room_is_shared_out_a_few_times(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    judged: list[int] = []
    monkeypatch.setattr(room_, "left_out", lambda asked, room: judged.append(room) or left_out(asked, room))
    spaces = tuple(f"s{i}" for i in range(50))
    pods = [make.pod("cart-1", space) for space in spaces]
    state = make.state(*pods, make.pod("a-1", "evil"), nodes=("n1",), namespaces=(*spaces, "evil"))
    planner = Planner(1, most=Most(plan=1_200, whole=4_000))
    probes = {("evil", f"p{i}"): hostile(make, i, 1) for i in range(20)}
    probes |= {(space, "checkout"): make.probe(namespace=space) for space in spaces}
    planner.update(probes, state, state.take_changes())
    assert planner.without_room > 10
    assert all(planner.resolved[space, "checkout"].refusal is None for space in spaces)
    assert len(judged) < 10, "not once for each of 70"
    judged.clear()
    for pod in pods:
        state.put("pods", msgspec.structs.replace(pod, terminating=True))
    planner.update(probes, state, state.take_changes())
    assert len(judged) < 5


def test_no_more_is_held_meanwhile_than_room_and_what_one_may_have(make: Any) -> None:
    most = Most(whole=2_000)
    state, planner = make.state(make.pod("a-1", "evil"), namespaces=("evil",)), Planner(1, most=most)
    probes = {("evil", f"p{i}"): hostile(make, i, 2) for i in range(60)}
    held = [
        sum(reach.entries for one in planner.resolved.values() for reach in one.reaches)
        for _ in planner.work(probes, state, state.take_changes())
    ]
    assert planner.without_room > 40
    assert most.one < max(held) <= most.whole + 2 * most.one


def test_others_run_while_the_room_of_many_nodes_is_shared_out() -> None:
    room = Room(Most(plan=10))
    for number in range(4):
        room.ask(("evil", f"p{number}"), {f"n{i}": 9 for i in range(100)})
    assert sum(1 for _ in room.judge()) == 100
    assert set(room.out.values()) == {100}
