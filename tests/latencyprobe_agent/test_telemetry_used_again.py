"""A number of a target set that is used again: whose totals begin anew."""

from latencyprobe.plan import Role, SpanPolicy, Target
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.telemetry.used_again import begun_anew, begun_anew_of

POLICY = SpanPolicy(10**9, 0.0, 100)


def rules(**sets: str) -> Rules:
    """Sets by number, each with its targets, one letter each: `_1="ab"`."""
    return Rules(sets={int(number[1:]): TargetSet(tuple(ids), (), 0, POLICY, "d/p") for number, ids in sets.items()})


def planned(ids: str) -> list[Target]:
    return [Target(one, "d", "p", "", one, Role.SERVER, (), 0, POLICY) for one in ids]


def test_fresh_numbers_leave_all_totals_alone() -> None:
    assert (set(), set(), set()) == begun_anew(rules(_1="a"), rules(_1="a", _2="b"), planned("ab"))
    assert (set(), set(), set()) == begun_anew(Rules(), rules(_1="a"), planned("a"))


def test_of_a_target_that_is_gone_only_the_number_begins_anew() -> None:
    assert ({1}, set(), set()) == begun_anew(rules(_1="a", _2="b"), rules(_1="c", _2="b"), planned("bc"))


def test_a_target_that_had_the_number_begins_anew_in_all_its_sets_and_so_does_who_shares_them() -> None:
    before = rules(_1="a", _2="a", _3="ab", _4="b", _5="c", _6="ax")
    after = rules(_1="d", _2="a", _3="ab", _4="b", _5="c", _6="ax")
    assert ({1, 2, 3, 4, 6}, {"a", "b"}, {"x"}) == begun_anew(before, after, planned("abcd"))


def test_a_target_that_lost_a_part_while_it_was_in_no_plan_begins_anew_where_it_comes_back() -> None:
    before, after = rules(_1="x", _2="x", _3="xa", _4="b"), rules(_1="c", _2="x", _3="xa", _4="b")
    away = begun_anew(before, after, planned("abc"))
    assert ({1}, set(), {"x"}) == away, "nobody who is there begins anew for it"
    assert (set(), set(), {"x"}) == begun_anew(after, after, planned("ab"), away.cut)
    assert ({2, 3}, {"a", "x"}, set()) == begun_anew(after, after, planned("abcx"), away.cut)


def test_of_a_target_that_no_set_names_nothing_is_left_that_could_be_cut() -> None:
    assert ({2}, set(), set()) == begun_anew(rules(_1="c", _2="x"), rules(_1="c", _2="d"), planned("cd"), {"x"})


def test_where_a_namespace_makes_room_who_is_in_no_plan_is_cut() -> None:
    assert ({1, 2}, {"a"}, {"x"}) == begun_anew_of({"d"}, rules(_1="a", _2="x"), planned("a"))
