"""A compiled plan must answer for every socket as the plan itself says, by the kernel's way of looking it up."""

import ipaddress
from enum import StrEnum

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from latencyprobe.plan import Endpoint, Pod, Replicas, Role, SpanPolicy, TargetPod
from latencyprobe.stages import StagesAs
from latencyprobe_agent.measure.matches import ANY_ADDRESS, packed
from latencyprobe_agent.measure.room import Room
from latencyprobe_agent.measure.rules import NO_RULES, compile_rules, followed_in
from latencyprobe_agent.vocabulary.records import EvidenceFlags, RuleSide
from tests.support.plans import of, plan_of, replicas_of, target

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


def test_targets_that_share_sockets_share_a_set_with_all_their_thresholds():
    pods = (TargetPod("a", (80,)),)
    one = target("one", thresholds=(100, 300), setup_turns=3, tls=True, pause_ns=2, pods=pods)
    other = target("other", thresholds=(200, 300), setup_turns=4, pause_ns=1, pods=pods, spans=SpanPolicy(50, 0.5, 5))

    (merged,) = compile_rules(plan_of(one, other), {"a": [1]}).sets.values()

    assert ("shop/cart/one", "shop/cart/other") == merged.targets
    assert ((100, 200, 300), 5, 2) == (merged.thresholds_ns, merged.setup_turns, merged.pause_ns)
    assert (SpanPolicy(50, 0.5, 10), "shop/cart") == (merged.spans, merged.probe)


@pytest.mark.parametrize(
    ("one", "other", "both"), [("None", "Events", "Events"), ("Events", "Spans", "Spans"), ("None", "Spans", "Spans")]
)
def test_targets_that_share_sockets_show_the_most_of_stages_that_one_of_them_asks_for(one, other, both):
    pods = (TargetPod("a", (80,)),)
    asked = [target(stages, pods=pods, spans=SpanPolicy(50, 0.5, 5, StagesAs(stages))) for stages in (one, other)]

    for targets in (asked, asked[::-1]):
        (merged,) = compile_rules(plan_of(*targets), {"a": [1]}).sets.values()
        assert both == merged.spans.stages


def test_a_target_that_would_bring_too_many_thresholds_is_left_out_and_named():
    pods = (TargetPod("a", (80,)),)
    first = target("first", thresholds=tuple(range(1, 7)), pods=pods)
    second = target("second", thresholds=(7, 8, 9), pods=pods)
    third = target("third", thresholds=(7, 8), pods=pods)

    rules = compile_rules(plan_of(first, second, third), {"a": [1]})

    assert ("shop/cart/first", "shop/cart/third") == rules.sets[1].targets
    assert ["shop/cart/second"] == list(rules.refused)
    assert "shop/cart/first" in rules.refused["shop/cart/second"]


def test_evidence_that_only_a_newer_operator_knows_is_left_out():
    one = target(evidence=("retransmits", "entanglement"), pods=(TargetPod("a", (80,)),))

    assert EvidenceFlags.RETRANSMITS == compile_rules(plan_of(one), {"a": [1]}).sets[1].evidence


def test_numbers_in_force_keep_their_meaning_in_the_next_rules():
    old = plan_of(target("a", pods=(TargetPod("a", (80,)),)), target("b", pods=(TargetPod("b", (80,)),)))
    new = plan_of(target("c", pods=(TargetPod("c", (80,)),)), target("b", pods=(TargetPod("b", (80,)),)))
    cgroups = {"a": [1], "b": [2], "c": [3]}

    before = compile_rules(old, cgroups)
    after = compile_rules(new, cgroups, before)

    assert before.scopes[2] == after.scopes[2]
    assert after.scopes[3] not in before.scopes.values()
    assert before.sets.items() <= after.sets.items()  # also the one that nothing names any more
    assert 1 not in after.scopes
    assert len(after.rules) == 2


def test_the_same_plan_again_changes_nothing():
    plan = plan_of(target(pods=(TargetPod("a", (80, 81)),), callers=("b",), endpoints=(Endpoint("10.0.0.1", 80),)))
    first = compile_rules(plan, {"a": [1], "b": [2]})

    assert first == compile_rules(plan, {"a": [1], "b": [2]}, first)


def test_numbers_of_sets_are_used_again_only_when_all_have_been():
    rules = NO_RULES
    for i in range(1100):
        plan = plan_of(target(f"t{i}", pods=(TargetPod("a", (80,)),)))
        rules = compile_rules(plan, {"a": [1]}, rules)

    assert max(rules.sets) == 1023
    assert ["shop/cart/t1099"] == list(rules.sets[next(iter(rules.rules.values()))].targets)


def test_a_set_that_comes_back_never_shares_its_number_with_one_that_has_got_it_meanwhile():
    """Of two namespaces: the kernel would count the RPCs of one for the other."""
    cgroups = {"shop": [1], "other": [2]}
    of_shop = of("shop", "web", pods=(TargetPod("shop", (80,)),))
    rules = compile_rules(plan_of(of_shop), cgroups)
    for threshold in range(1000, 2022):  # as many edits of it: every number has had a meaning
        rules = compile_rules(plan_of(replace(of_shop, thresholds_ns=(threshold,))), cgroups, rules)
    other = of("other", "web", pods=(TargetPod("other", (80,)),), thresholds=(7,))
    rules = compile_rules(plan_of(other, of_shop), cgroups, rules)
    named = {rules.sets[index].targets for index in rules.in_force}
    assert named == {("shop/probe/web",), ("other/probe/web",)}


def others(struct):
    """Yield (field, the struct with another value there) for every field, of inner structs too; for a tuple ()."""
    for name in struct.__struct_fields__:
        value = getattr(struct, name)
        if isinstance(value, msgspec.Struct):
            yield from ((f"{name}.{inner}", replace(struct, **{name: one})) for inner, one in others(value))
        elif isinstance(value, StrEnum):
            yield name, replace(struct, **{name: next(one for one in type(value) if one is not value)})
        elif isinstance(value, tuple):
            assert value, f"give {name} a value: without it nothing can be lost"
            yield name, replace(struct, **{name: ()})
        else:
            yield name, replace(struct, **{name: not value if isinstance(value, bool) else value + type(value)(1)})


def test_every_field_of_a_target_reaches_the_rules_but_for_names_that_only_people_see():
    one = target(
        ports=(80,), pods=(TargetPod("a", (80,)),), callers=("b",), endpoints=(Endpoint("10.0.0.1", 80),),
        clients=True, evidence=("retransmits",), replicas=replicas_of("a", [("10.0.0.2", 80)]),
    )  # fmt: skip

    def compiled(target):
        rules = [compile_rules(plan_of(target, host=host), {"a": [1], "b": [2]}) for host in (True, False)]
        return [(r.scopes, r.rules, r.sets, r.host) for r in rules]

    lost = {name for name, other in others(one) if compiled(other) == compiled(one)}
    assert {"probe_uid", "name"} == lost


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
