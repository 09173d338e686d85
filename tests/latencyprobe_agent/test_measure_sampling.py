"""Which halves become spans: slow, failed, and a share that both hosts choose alike, within the budget."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.measure.budget import Budget
from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.measure.rules import NO_RULES, TargetSet, compile_rules
from latencyprobe_agent.measure.sampling import Reason, Sampler, decide
from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.support.exchanges import at_level, exchanges

SLOW_NS = 1_000_000
KEY = b"key"
PLENTY = 10**6


def sets(ratio=0.0, max_per_second=PLENTY, probe="shop/cart"):
    policy = SpanPolicy(SLOW_NS, ratio, max_per_second)
    return {1: TargetSet((f"{probe}/web",), (SLOW_NS,), 0, policy, probe)}


def batch_of(n, role=Role.CLIENT, duration_ns=10, **fields):
    return halves(exchanges(n, role, stages=(0, duration_ns, 0, 0), request_offset=np.arange(n), **fields))


def test_slow_and_failed_exchanges_are_chosen_whatever_the_ratio():
    duration_ns = np.array([SLOW_NS, SLOW_NS + 1, 10, SLOW_NS + 1])
    outcome = [Outcome.OK, Outcome.OK, Outcome.RESET, Outcome.RESET]

    chosen = decide(batch_of(4, duration_ns=duration_ns, outcome=outcome), sets(), Budget(PLENTY), 0)

    assert [1, 2, 3] == chosen.index.tolist()
    assert [Reason.SLOW, Reason.ERROR, Reason.ERROR] == chosen.reason.tolist()
    assert [1.0, 1.0, 1.0] == chosen.ratio.tolist()


@pytest.mark.parametrize("field", sorted({*SpanPolicy.__struct_fields__} - {"stages"}))
def test_every_field_of_a_policy_decides_something_but_how_stages_are_shown(field):
    policy = SpanPolicy(slower_than_ns=150, ratio=0.5, max_per_second=120)
    value = getattr(policy, field)
    other = not value if isinstance(value, bool) else type(value)(value / 2)
    outcome = np.where(np.arange(200) % 5, Outcome.OK, Outcome.RESET)

    both = [
        decide(
            batch_of(200, duration_ns=np.arange(200), outcome=outcome),
            {1: TargetSet(("a/b/c",), (SLOW_NS,), 0, one, "a/b")},
            Budget(PLENTY),
            0,
        ).index.tolist()
        for one in (policy, replace(policy, **{field: other}))
    ]

    assert both[0] != both[1]


@given(st.floats(0, 1))
def test_both_sides_of_an_exchange_are_chosen_or_neither(ratio):
    sides = [decide(batch_of(300, role), sets(ratio), Budget(PLENTY), 0) for role in (Role.CLIENT, Role.SERVER)]

    assert sides[0].index.tolist() == sides[1].index.tolist()


def test_the_ratio_is_the_share_that_is_chosen():
    chosen = decide(batch_of(20_000), sets(0.25), Budget(PLENTY), 0)

    assert abs(len(chosen.index) / 20_000 - 0.25) < 0.02  # 6 standard deviations
    assert {0.25} == set(chosen.ratio.tolist())
    assert {Reason.RATIO} == set(chosen.reason.tolist())


LEVEL = 4


def kernel_keeps(records):
    """`sampled` of bpf/exchange_sampling.bpf.h, at LEVEL."""
    request_seq, response_seq = (
        records[name].astype(np.uint64) << np.uint64(32) for name in ("request_seq", "response_seq")
    )
    mixed = (records["request_offset"] + request_seq) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ mixed >> np.uint64(31)) + records["response_offset"] + response_seq
    mixed = (mixed ^ mixed >> np.uint64(30)) * np.uint64(0x94D049BB133111EB)
    return mixed >> np.uint64(64 - LEVEL) == 0


def test_the_ratio_holds_among_those_that_the_kernel_keeps_on_a_connection_of_equal_exchanges():
    n = 200_000
    at = np.arange(n)
    records = exchanges(
        n, Role.CLIENT, request_offset=at * 36, response_offset=at * 5, request_bytes=36, response_bytes=5,
        request_seq=(at * 36 + 123_456_789) % 2**32, response_seq=(at * 5 + 987_654_321) % 2**32,
    )  # fmt: skip
    kept = records[kernel_keeps(records)]

    chosen = decide(halves(kept), sets(0.25), Budget(PLENTY), 0)

    assert abs(len(kept) / n - 1 / 16) < 0.004  # 7 standard deviations
    assert abs(len(chosen.index) / len(kept) - 0.25) < 0.025  # 6 standard deviations


@pytest.mark.parametrize("level", [1, 4, 31])
def test_what_the_kernel_sampled_was_chosen_with_its_share_of_the_ratio(level):
    batch = batch_of(2_000, duration_ns=np.repeat([10, SLOW_NS + 1], 1_000))
    batch.rec["flags"][:1_000] = at_level(level)

    chosen = decide(batch, sets(0.5), Budget(PLENTY), 0)

    assert {0.5 / 2**level} == set(chosen.ratio[chosen.reason == Reason.RATIO].tolist())
    assert {1.0} == set(chosen.ratio[chosen.reason == Reason.SLOW].tolist())


def test_the_other_half_of_a_slow_one_is_chosen_as_often_as_the_kernel_sends_it():
    theirs = Sampler(PLENTY).decide_other_halves(batch_of(100, flags=at_level(5)), sets(), KEY, 0)

    assert (100, {1 / 32}) == (len(theirs), set(theirs.ratio.tolist()))


def test_ratio_0_chooses_none_and_1_all():
    assert 0 == len(decide(batch_of(5000), sets(0), Budget(PLENTY), 0).index)
    assert 5000 == len(decide(batch_of(5000), sets(1), Budget(PLENTY), 0).index)


def test_the_budget_drops_the_ratio_before_slow_before_failed_and_says_so():
    duration_ns = np.where(np.arange(100) < 50, SLOW_NS + 1, 10)
    outcome = np.where(np.arange(100) % 2, Outcome.OK, Outcome.RESET)  # 50 failed, 25 slow, 25 others
    half = batch_of(100, duration_ns=duration_ns, outcome=outcome)

    chosen = decide(half, sets(1.0, max_per_second=60), Budget(PLENTY), 0)

    assert {Reason.ERROR: 50, Reason.SLOW: 10} == {r: int((chosen.reason == r).sum()) for r in set(chosen.reason)}
    assert {1.0, 10 / 25} == set(chosen.ratio.tolist())


def test_what_the_budget_drops_is_the_same_on_both_sides():
    sides = [
        decide(batch_of(500, role), sets(1.0, max_per_second=40), Budget(PLENTY), 0)
        for role in (Role.CLIENT, Role.SERVER)
    ]

    assert 40 == len(sides[0].index)
    assert sides[0].index.tolist() == sides[1].index.tolist()


def test_the_budget_refills_with_time_up_to_one_second():
    budget, counts = Budget(PLENTY), []

    for at_s in (0, 0.1, 0.6, 50, 50):
        just_ended = batch_of(500, duration_ns=round(at_s * 1e9))
        counts.append(len(decide(just_ended, sets(1.0, 100), budget, round(at_s * 1e9)).index))

    assert [100, 10, 50, 100, 0] == counts


def test_what_has_waited_for_a_held_up_agent_finds_the_budget_of_that_time():
    budget, ended = Budget(PLENTY), batch_of(5000)
    ended_ns = int(ended.end_ns.min())

    counts = [len(decide(ended, sets(1.0, 100), budget, ended_ns + s * 10**9).index) for s in (0, 3, 400)]

    assert [100, 300, 1000] == counts


def test_a_budget_that_was_edited_and_edited_back_is_the_one_in_force():
    rules = NO_RULES
    for limit in (100, 5, 100):
        spans = SpanPolicy(SLOW_NS, 1.0, limit)
        web = Target("shop/cart/web", "shop", "cart", "u", "web", Perspective.SERVER, (), 0, spans, ports=(80,))
        rules = compile_rules(NodePlan("n1", 1, "", (web,), (), host=True), {}, rules)
        in_force = next(iter(rules.rules.values()))
        chosen = decide(batch_of(500, target_set=in_force), rules.sets, Budget(PLENTY), 0)
        assert limit == len(chosen.index)


def test_excluded_exchanges_and_sets_without_a_policy_are_never_chosen():
    excluded = batch_of(2, excluded=Excluded.PIPELINED, outcome=Outcome.RESET)
    unknown = batch_of(3, target_set=[0, 2, 99])

    assert 0 == len(decide(excluded, sets(1.0), Budget(PLENTY), 0).index)
    assert 0 == len(decide(unknown, sets(1.0), Budget(PLENTY), 0).index)
    assert 0 == len(decide(unknown, {}, Budget(PLENTY), 0).index)


def test_all_latencyprobes_of_a_node_share_its_budget_failed_ones_first():
    both = {1: sets(1.0)[1], 2: sets(1.0, probe="shop/pay")[1]}
    target_set, outcome = np.arange(100) % 2 + 1, np.where(np.arange(100) < 20, Outcome.RESET, Outcome.OK)
    half = batch_of(100, target_set=target_set, outcome=outcome)

    chosen = decide(half, both, Budget(50), 0)

    assert 50 == len(chosen.index)
    assert set(range(20)) <= set(chosen.index.tolist())
    assert 50 == chosen.over_budget


@pytest.mark.parametrize("evil", [{}, {"outcome": Outcome.RESET}], ids=["slow", "failed"])
def test_one_namespace_takes_no_spans_of_another_whose_share_they_are(evil):
    """What is slow of one goes before what has failed of another, who wants more than his share."""
    both = sets(0.01, 100, "shop/cart") | {2: sets(1.0, 100_000, "evil/p")[1]}
    budget, kept = Budget(2000), 0

    for second in range(1, 31):
        honest = exchanges(10, Role.SERVER, stages=(0, 0, 2 * SLOW_NS, 0), request_offset=np.arange(10) + second * 10)
        hostile = exchanges(10_000, Role.SERVER, stages=(0, 0, 2 * SLOW_NS, 0), target_set=2, **evil)
        hostile["request_offset"] = np.arange(10_000) * 977 + second
        half = halves(np.concatenate([hostile, honest]))
        for batch in (half.take(np.arange(5000)), half.take(np.arange(5000, 10_010))):
            chosen = decide(batch, both, budget, second * 10**9)
            kept += int((batch.rec["target_set"][chosen.index] == 1).sum())

    assert 30 * 10 == kept


def test_both_sides_drop_the_same_of_a_namespace_whatever_else_their_nodes_see():
    """The share says how many, which may differ; the key says which, so those of the smaller share are among those of
    the larger one."""
    both = sets(1.0, probe="shop/cart") | {2: sets(1.0, probe="evil/p")[1]}
    chosen = []
    for role, others in ((Role.CLIENT, 300), (Role.SERVER, 30)):
        own = exchanges(200, role, stages=(0, 10, 0, 0), request_offset=np.arange(200))
        theirs = exchanges(others, role, stages=(0, 10, 0, 0), request_offset=np.arange(others) + 1000, target_set=2)
        some = decide(halves(np.concatenate([own, theirs])), both, Budget(100), 0)
        chosen.append({at for at in some.index.tolist() if at < 200})

    assert (50, 70) == tuple(map(len, chosen))
    assert chosen[0] < chosen[1]


def test_who_lacked_spans_of_the_node_and_not_of_its_own_is_known_for_a_while():
    both = sets(1.0, max_per_second=30) | {2: sets(1.0, probe="shop/pay")[1]}
    half = batch_of(100, target_set=np.arange(100) % 2 + 1)
    known = []
    for per_second in (100, 79, 20):
        sampler = Sampler(per_second)
        sampler.decide(half, both, KEY, 10**9)
        known.append(sampler.limited(10**9))
    theirs = Sampler(20)
    theirs.decide_other_halves(half, both, KEY, 10**9)

    assert [(), ("shop/pay",), ("shop/cart", "shop/pay")] == known
    assert ("shop/cart", "shop/pay") == theirs.limited(10**9)
    assert () == sampler.limited(10**9 + 1)


def test_other_halves_have_a_budget_of_their_own():
    sampler, some = Sampler(PLENTY), batch_of(107)
    both = sets(1.0, max_per_second=100)

    decided, own = sampler.decide(some, both, KEY, 0)
    theirs = sampler.decide_other_halves(some, both, KEY, 0)

    assert (100, 7) == (len(own), own.over_budget)
    assert (100, 7) == (len(theirs), theirs.over_budget)
    assert {Reason.OTHER_HALF} == set(theirs.reason.tolist())
    assert 100 == np.count_nonzero(decided.sampled)


def test_the_decision_is_made_on_a_copy():
    some = batch_of(3)

    decided, sampled = Sampler(PLENTY).decide(some, sets(1.0), KEY, 0)

    assert [0, 0, 0] == some.sampled.tolist()
    assert decided.sampled.tolist() == sampled.halves.sampled.tolist() == [Reason.RATIO + 1] * 3
