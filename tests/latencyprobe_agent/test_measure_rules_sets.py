"""Target sets of a compiled plan: sockets that are shared share one, and its number keeps its meaning."""

from enum import StrEnum

import msgspec
import pytest
from msgspec.structs import replace

from latencyprobe.plan import Endpoint, SpanPolicy, TargetPod
from latencyprobe.stages import StagesAs
from latencyprobe_agent.measure.rules import NO_RULES, compile_rules
from latencyprobe_agent.vocabulary.records import EvidenceFlags
from tests.support.plans import of, plan_of, replicas_of, target


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

    assert max(rules.sets) == 1022  # the last one of the map is the canary's
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
