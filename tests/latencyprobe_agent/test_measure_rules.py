"""A compiled plan must answer for every socket as the plan itself says, by the kernel's way of looking it up."""

import ipaddress

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from latencyprobe.plan import Endpoint, Pod, Replicas, Role, TargetPod
from latencyprobe_agent.measure.matches import ANY_ADDRESS, packed
from latencyprobe_agent.measure.room import Room
from latencyprobe_agent.measure.rules import compile_rules, followed_in
from latencyprobe_agent.vocabulary.records import RuleSide
from tests.support.plans import plan_of, replicas_of, target

ADDRESSES = ["10.0.0.1", "10.0.0.2", "fd00::1"]
PORTS = [80, 81]


def looked_up(rules, group, side, address, port):
    """The kernel's order of look-ups (flow.bpf.h), and the targets of its first hit."""
    a = packed(address)
    keys = [(a, port), (a, 0), (ANY_ADDRESS, port), (ANY_ADDRESS, 0)] if side is RuleSide.PEER else [
        (ANY_ADDRESS, port), (ANY_ADDRESS, 0)
    ]  # fmt: skip
    for key_address, key_port in keys:
        index = rules.rules.get((key_address, group, key_port, side)) if group else None
        if index:
            return set(rules.sets[index].targets)
    return set()


targets = st.lists(
    st.builds(
        dict,
        role=st.sampled_from(Role),
        pods=st.dictionaries(st.sampled_from(["a", "b", "c"]), st.sets(st.sampled_from(PORTS))),
        callers=st.sets(st.sampled_from(["a", "b", "c"])),
        endpoints=st.sets(st.tuples(st.sampled_from(ADDRESSES), st.sampled_from([0, *PORTS]))),
    ),
    max_size=5,
)


def planned(described):
    return plan_of(
        *(
            target(
                f"t{i}",
                d["role"],
                pods=tuple(TargetPod(uid, tuple(ports)) for uid, ports in d["pods"].items()),
                callers=tuple(d["callers"]) if d["role"] is Role.SERVER else (),
                endpoints=tuple(Endpoint(*e) for e in d["endpoints"]) if d["role"] is Role.SERVER else (),
            )
            for i, d in enumerate(described)
        ),
        pods=tuple(Pod(uid, "shop", uid, (), (), {}) for uid in "abc"),
    )


@given(targets)
def test_every_socket_finds_exactly_the_targets_that_the_plan_gives_it(described):
    plan = planned(described)
    rules = compile_rules(plan, {"a": [1, 2], "b": [3], "c": []})

    for cgroup, uid in {1: "a", 2: "a", 3: "b"}.items():
        server_group, client_group = rules.scopes.get(cgroup, (0, 0))
        for port in [*PORTS, 82]:
            dialled = {
                t.id for t in plan.targets for p in t.pods
                if t.role is Role.SERVER and p.uid == uid and (port in p.ports or not p.ports)
            }  # fmt: skip
            assert dialled == looked_up(rules, server_group, RuleSide.LOCAL, "10.9.9.9", port)
            for address in [*ADDRESSES, "10.9.9.9"]:
                made = {
                    t.id for t in plan.targets for p in t.pods
                    if t.role is Role.CLIENT and p.uid == uid and (port in p.ports or not p.ports)
                }  # fmt: skip
                called = {
                    t.id for t in plan.targets for e in t.endpoints
                    if uid in t.callers and e.address == address and e.port in (0, port)
                }  # fmt: skip
                assert made | called == looked_up(rules, client_group, RuleSide.PEER, address, port)


CGROUPS = st.dictionaries(st.sampled_from("abc"), st.sets(st.integers(1, 20)).map(sorted))


@given(targets, CGROUPS, CGROUPS)
def test_rules_with_other_cgroups_are_those_that_compiling_again_gives(described, before, after):
    plan, room = planned(described), Room(cgroups=9, of_pod=5)
    rules = compile_rules(plan, before, room=room)

    assert compile_rules(plan, after, rules, room) == followed_in(rules, plan, after, room)


def test_pods_with_equal_rules_share_a_group_and_callers_do_not_multiply():
    endpoints = tuple(Endpoint(str(ipaddress.ip_address(0x0A000000 + i)), 80) for i in range(100))
    web = target(callers=tuple(f"pod{i}" for i in range(50)), endpoints=endpoints)

    rules = compile_rules(plan_of(web), {f"pod{i}": [i] for i in range(50)})

    assert 100 == len(rules.rules)
    assert {(0, 1)} == set(rules.scopes.values())


def members(rules, group):
    """The (address, port) of a group's replicas."""
    return {(address, port) for address, g, port, side in rules.rules if g == group and side is RuleSide.MEMBER}


def test_replicas_are_found_from_both_ends_by_the_servers_group_and_on_their_targets_ports():
    ends = [("10.0.0.1", 80), ("10.0.0.2", 80), ("10.96.0.7", 8000)]
    pods = (TargetPod("a", (80,)), TargetPod("b", (80,)))
    counted = target("counted", pods=(TargetPod("a", (81,)),))
    rules = compile_rules(plan_of(target(pods=pods, replicas=replicas_of("ab", ends)), counted), {"a": [1], "b": [2]})

    assert rules.scopes[1] != rules.scopes[2]
    for cgroup in (1, 2):
        assert {(packed(address), port) for address, port in ends} == members(rules, rules.scopes[cgroup][0])


def test_replicas_without_endpoints_of_their_own_have_those_of_the_target():
    pods, endpoints = (TargetPod("a", (80,)),), (Endpoint("10.0.0.1", 80), Endpoint("10.0.0.2", 80))
    fields = {"pods": pods, "callers": ("b",), "endpoints": endpoints}
    cgroups = {"a": [1], "b": [2]}
    told_twice = compile_rules(plan_of(target(replicas=(Replicas(("a",), endpoints),), **fields)), cgroups)

    assert told_twice == compile_rules(plan_of(target(replicas=(Replicas(("a",)),), **fields)), cgroups)
    assert 2 == len(members(told_twice, told_twice.scopes[1][0]))


def test_a_pod_that_only_dials_has_a_group_for_its_replicas():
    ends = [("10.0.0.1", 5432), ("10.0.0.2", 5432)]
    dialling = target(role=Role.CLIENT, pods=(TargetPod("a", (5432,)),), replicas=replicas_of("a", ends))
    rules = compile_rules(plan_of(dialling), {"a": [1]})

    server_group, client_group = rules.scopes[1]
    assert {(packed(address), port) for address, port in ends} == members(rules, server_group)
    assert set() == looked_up(rules, server_group, RuleSide.LOCAL, "10.0.0.1", 5432)
    assert {"shop/cart/web"} == looked_up(rules, client_group, RuleSide.PEER, "10.0.0.1", 5432)


def test_replicas_of_a_large_target_share_one_group_beside_that_of_the_callers():
    ends = [(str(ipaddress.ip_address(0x0A000000 + i)), 80) for i in range(5000)]
    uids = [f"pod{i}" for i in range(100)]
    web = target(
        pods=tuple(TargetPod(uid, (80,)) for uid in uids),
        callers=tuple(uids),
        endpoints=tuple(Endpoint(address, port) for address, port in ends),
        replicas=replicas_of(uids, ends),
    )
    before = compile_rules(plan_of(web), {uid: [i] for i, uid in enumerate(uids)})
    fewer = replace(web, replicas=replicas_of(uids, ends[1:]))
    after = compile_rules(plan_of(fewer), {uid: [i] for i, uid in enumerate(uids)}, before)

    assert 1 == len(set(before.scopes.values()))
    assert 1 + 2 * 5000 == len(before.rules)
    assert before.sets == after.sets, "another replica is no other target set"


def test_on_a_host_rules_hold_for_every_socket():
    redis = target("redis", ports=(6379,), clients=True)
    calls = target("calls", Role.CLIENT, ports=(80,))

    rules = compile_rules(plan_of(redis, calls, host=True), {})

    assert {} == rules.scopes
    assert {"shop/cart/redis"} == looked_up(rules, rules.host[0], RuleSide.LOCAL, "127.0.0.1", 6379)
    assert {"shop/cart/redis"} == looked_up(rules, rules.host[1], RuleSide.PEER, "10.0.0.1", 6379)
    assert {"shop/cart/calls"} == looked_up(rules, rules.host[1], RuleSide.PEER, "::1", 80)
    assert set() == looked_up(rules, rules.host[0], RuleSide.LOCAL, "127.0.0.1", 80)


def test_a_host_target_of_every_port_measures_no_clients():
    rules = compile_rules(plan_of(target(ports=(), clients=True), host=True), {})

    assert {"shop/cart/web"} == looked_up(rules, rules.host[0], RuleSide.LOCAL, "127.0.0.1", 1234)
    assert 0 == rules.host[1]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("10.0.0.1", "00" * 10 + "ffff0a000001"),
        ("::ffff:10.0.0.1", "00" * 10 + "ffff0a000001"),
        ("fd00::1", "fd" + "00" * 14 + "01"),
    ],
)
def test_addresses_are_packed_as_records_hold_them(text, expected):
    assert expected == packed(text).hex()
