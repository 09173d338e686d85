"""A number of a target set that is used again: whose totals begin anew."""

from latencyprobe.plan import Role, SpanPolicy, Target
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.telemetry.used_again import begun_anew

POLICY = SpanPolicy(10**9, 0.0, 100)


def rules(**sets: str) -> Rules:
    """Sets by number, each with its targets, one letter each: `_1="ab"`."""
    return Rules(sets={int(number[1:]): TargetSet(tuple(ids), (), 0, POLICY, "d/p") for number, ids in sets.items()})


def planned(ids: str) -> list[Target]:
    return [Target(one, "d", "p", "", one, Role.SERVER, (), 0, POLICY) for one in ids]


def test_fresh_numbers_leave_all_totals_alone() -> None:
    assert (set(), set()) == begun_anew(rules(_1="a"), rules(_1="a", _2="b"), planned("ab"))
    assert (set(), set()) == begun_anew(Rules(), rules(_1="a"), planned("a"))


def test_of_a_target_that_is_gone_only_the_number_begins_anew() -> None:
    assert ({1}, set()) == begun_anew(rules(_1="a", _2="b"), rules(_1="c", _2="b"), planned("bc"))


def test_a_target_that_had_the_number_begins_anew_in_all_its_sets_and_so_does_who_shares_them() -> None:
    before = rules(_1="a", _2="a", _3="ab", _4="b", _5="c", _6="ax")
    after = rules(_1="d", _2="a", _3="ab", _4="b", _5="c", _6="ax")
    assert ({1, 2, 3, 4, 6}, {"a", "b"}) == begun_anew(before, after, planned("abcd"))
