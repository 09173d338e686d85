"""The kernel's tables have room for so much: who asks for most is left out, by name; nobody else is touched."""

from collections import Counter

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latencyprobe.plan import Endpoint, NodePlan, Pod, Replicas, Role, Target, TargetPod
from latencyprobe_agent.identity.cgroups import OF_POD
from latencyprobe_agent.measure import room as room_
from latencyprobe_agent.measure.matches import parts_of
from latencyprobe_agent.measure.room import ROOM, Room
from latencyprobe_agent.measure.rules import compile_rules
from tests.support.plans import ENDPOINTS, PODS, greedy, of, plan_of, replicas_of


def compiled(plan: NodePlan, room: Room = ROOM):
    uids = {pod.uid for one in plan.targets for pod in one.pods} | {uid for one in plan.targets for uid in one.callers}
    return compile_rules(plan, {uid: [i + 1] for i, uid in enumerate(sorted(uids))}, room=room)


def test_one_namespace_that_asks_for_more_rules_than_a_node_has_loses_the_target_that_multiplies_them():
    shop = of(
        "shop", "cart", pods=(TargetPod("shop", (80,)),), callers=("shop",), endpoints=(Endpoint("10.1.0.1", 80),)
    )
    rules = compiled(plan_of(*greedy(), shop))

    assert list(rules.refused) == ["greedy/probe/any"]
    said = rules.refused["greedy/probe/any"]
    assert said.startswith("there is room for 65,536 rules on a node, and 66,5")
    assert "most of them by namespace greedy" in said
    assert said.endswith("name fewer ports, name them where it has none, or select fewer pods")
    measured = {one for target_set in rules.sets.values() for one in target_set.targets}
    assert measured == {"shop/probe/cart", *(f"greedy/probe/dial{i}" for i in range(31))}
    assert len(rules.rules) <= ROOM.rules


@pytest.mark.long  # as many rules as fit
def test_what_fits_is_not_touched():
    assert compiled(plan_of(*greedy()[:31])).refused == {}


def test_many_small_targets_lose_as_many_as_must_be():
    many = [of("greedy", f"t{i:02}", pods=(TargetPod(f"p{i}", tuple(range(10 * i, 10 * i + 10))),)) for i in range(20)]
    rules = compiled(plan_of(*many, of("shop", "cart", pods=(TargetPod("shop", (80,)),))), Room(rules=101))

    assert list(rules.refused) == [f"greedy/probe/t{i:02}" for i in range(10)]
    assert len(rules.rules) == 101


def test_an_address_that_is_none_costs_its_own_target_and_not_the_plan():
    ends, odd = (Endpoint("10.96.0.7", 80),), (Endpoint("10.96.0.7", 80), Endpoint("10.96.011.012", 80))
    fields = {"pods": (TargetPod("shop", (80,)),), "callers": ("shop",)}
    bank = of("bank", "cart", endpoints=ends, **fields)
    dialled = of("shop", "dialled", endpoints=odd, **fields)
    replica = of("shop", "replica", pods=fields["pods"], replicas=(Replicas(("shop",), odd),))
    rules = compiled(plan_of(dialled, bank, replica))

    assert list(rules.refused) == ["shop/probe/dialled", "shop/probe/replica"]
    assert rules.refused["shop/probe/dialled"].startswith("callers dial it at '10.96.011.012', which is no address")
    assert rules.rules == compiled(plan_of(bank)).rules


def test_replicas_are_rules_too():
    uids = ("a", "b")
    ends = [(f"10.0.0.{i}", 80) for i in range(50)]
    app = of("greedy", "app", pods=tuple(TargetPod(uid, (80,)) for uid in uids), replicas=replicas_of(uids, ends))

    assert compiled(plan_of(app), Room(rules=51)).refused == {}
    assert list(compiled(plan_of(app), Room(rules=50)).refused) == ["greedy/probe/app"]


def test_many_targets_that_keep_each_others_rules_alive_are_taken_off_in_one_pass(monkeypatch):
    made = []

    def counted(*args):
        made.append(args)
        return parts_of(*args)

    monkeypatch.setattr(room_, "parts_of", counted)
    same = [of("greedy", f"same{i}", callers=PODS, endpoints=ENDPOINTS) for i in range(200)]
    shop = of("shop", "cart", pods=(TargetPod("shop", (80,)),))
    rules = compiled(plan_of(*same, *greedy(), shop))

    assert len(made) <= 3
    assert {one.partition("/")[0] for one in rules.refused} == {"greedy"}
    assert "shop/probe/cart" in {one for target_set in rules.sets.values() for one in target_set.targets}
    assert len(rules.rules) <= ROOM.rules


def test_of_targets_that_share_replicas_no_more_are_left_out_than_must_be():
    pods = (TargetPod("a", (80,)),)
    large, small = (replicas_of(("a",), [(f"10.0.0.{i}", 80) for i in range(n)]) for n in (50, 5))
    plan = plan_of(of("greedy", "large", pods=pods, replicas=large), of("greedy", "small", pods=pods, replicas=small))

    assert list(compiled(plan, Room(rules=6)).refused) == ["greedy/probe/large"]


def test_more_combinations_than_there_is_room_for_are_left_out_by_name():
    many = [of("greedy", f"t{i}", pods=(TargetPod(f"p{i}", (80,)),)) for i in range(600)]
    rules = compiled(plan_of(of("shop", "cart", pods=(TargetPod("shop", (80,)),)), *many))

    assert (511, 90) == (len(rules.sets), len(rules.refused))
    assert {one.partition("/")[0] for one in rules.refused} == {"greedy"}
    assert 511 == len(rules.scopes)
    assert "511 combinations of targets" in next(iter(rules.refused.values()))


def nested(namespace: str, uid: str) -> tuple[Target, Pod]:
    """A target of this namespace with this pod."""
    web = of(namespace, uid, pods=(TargetPod(uid, (80,)),))
    return web, Pod(uid, namespace, f"pod-{uid}", (), (), {})


def test_a_pod_that_nests_cgroups_without_end_takes_no_room_from_others_and_its_target_is_told():
    (build, runner), (cart, shop) = nested("ci", "a"), nested("shop", "b")
    foreign = of("shop", "all", pods=(TargetPod("b", (81,)),), callers=("a",), endpoints=(Endpoint("10.1.0.1", 81),))
    plan = plan_of(build, cart, foreign, pods=(runner, shop))
    rules = compile_rules(plan, {"a": range(1, 20_001), "b": [30_000, 30_001]})

    assert {30_000, 30_001} | set(range(1, OF_POD + 1)) == set(rules.scopes)
    assert list(rules.refused) == ["ci/probe/a"], "the others cannot change that pod"
    assert rules.refused["ci/probe/a"].startswith("in part: pod pod-a nests more cgroups than there is room for")
    assert rules.refused["ci/probe/a"].endswith("make fewer, or spread them over more pods and nodes")
    assert compile_rules(plan, {"a": range(1, OF_POD + 1), "b": [30_000]}).refused == {}


def test_many_pods_with_many_cgroups_share_what_those_of_other_namespaces_leave():
    targets, pods = zip(
        *(nested("ci", f"a{i}") for i in range(12)), *(nested("shop", f"b{i}") for i in range(100)), strict=True
    )
    made = {"ci": 1000, "shop": 40}
    cgroups = {pod.uid: range(1000 * i, 1000 * i + made[pod.namespace]) for i, pod in enumerate(pods, 1)}
    rules = compile_rules(plan_of(*targets, pods=pods), cgroups)

    assert len(rules.scopes) <= ROOM.cgroups
    left = {"ci": (ROOM.cgroups - 100 * 40) // 12, "shop": 40}
    assert all(set(cgroups[pod.uid][: left[pod.namespace]]) <= rules.scopes.keys() for pod in pods), "outermost first"
    assert set(rules.refused) == {target.id for target in targets if target.namespace == "ci"}


@given(st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 3000), min_size=1), st.integers(1, 4000))
def test_cgroups_fit_and_no_namespace_with_an_equal_share_loses_one(needs, room):
    made = {name: nested(name, name) for name in needs}
    plan = plan_of(*(one for one, _ in made.values()), pods=tuple(pod for _, pod in made.values()))
    cgroups = {name: range(4000 * i, 4000 * i + need) for i, (name, need) in enumerate(needs.items())}
    rules = compile_rules(plan, cgroups, room=Room(cgroups=room))

    assert len(rules.scopes) == min(room, sum(min(need, OF_POD) for need in needs.values()))
    for name, need in needs.items():
        whole = set(cgroups[name]) <= rules.scopes.keys()
        assert whole == (f"{name}/probe/{name}" not in rules.refused)
        assert whole or need > min(OF_POD, room // len(needs))


NAMES = ["a", "b", "c"]
TARGETS = st.lists(
    st.tuples(
        st.sampled_from(NAMES),
        st.sampled_from(Role),
        st.sets(st.sampled_from("xyz"), min_size=1),
        st.sets(st.integers(1, 6)),
        st.sets(st.integers(1, 9)),
    ),
    max_size=8,
)


@given(TARGETS, st.integers(3, 30), st.integers(2, 8))
@example(  # two targets of a namespace may ask for the same rules
    [*[("a", Role.CLIENT, {"y"}, {1, 2, 3}, set())] * 2, ("b", Role.SERVER, {"x"}, set(), {1, 2, 3})], 6, 2
)
@example(  # what two wildcards of a namespace make together counts once for it
    [
        *[("a", Role.SERVER, {"x"}, {1}, {3, 6}), ("a", Role.CLIENT, {"x"}, {1, 2}, set())],
        *[("b", Role.CLIENT, {pod}, {1, 2, 3, 4, 5, 6}, set()) for pod in "yz"],
    ],
    *(20, 8),
)
def test_the_rest_fits_and_who_asks_for_an_equal_share_is_never_left_out(described, rules, sets):
    plan = plan_of(
        *(
            of(
                namespace,
                f"t{i}",
                role=role,
                pods=tuple(TargetPod(uid, tuple(sorted(ports))) for uid in sorted(pods)),
                callers=tuple(sorted(pods)) if role is Role.SERVER else (),
                endpoints=tuple(Endpoint(f"10.0.0.{n}", n % 3) for n in sorted(ends)) if role is Role.SERVER else (),
            )
            for i, (namespace, role, pods, ports, ends) in enumerate(described)
        )
    )
    room = Room(rules, sets)
    found = compiled(plan, room)

    assert len(found.rules) <= rules
    assert len(found.sets) <= sets
    whole, namespaces = compiled(plan, Room()), {one.namespace for one in plan.targets}
    if any(len({one.partition("/")[0] for one in s.targets}) > 1 for s in whole.sets.values()):
        return  # a rule of two namespaces
    # not alone: where another's target has one of two pods, their rules are not the same any more
    asked_rules = Counter(whole.sets[index].namespace for index in whole.rules.values())
    asked_sets = Counter(one.namespace for one in whole.sets.values())
    for namespace in namespaces:
        share = room.rules // len(namespaces), room.sets // len(namespaces)
        if asked_rules[namespace] <= share[0] and asked_sets[namespace] <= share[1]:
            assert not any(one.startswith(f"{namespace}/") for one in found.refused)
