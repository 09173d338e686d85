"""unowned.py: for which target sets room is kept in the kernel's table of counts."""

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.unowned import unowned
from latencyprobe_agent.vocabulary.records import Role, RuleSide

POLICY = SpanPolicy(10**9, 0.0, 100)


def rules(*named: tuple[int, str, RuleSide]) -> Rules:
    """Target sets (number, namespace) that a rule of this side names; set 99 is from an earlier plan."""
    sets = {number: TargetSet((f"{one}/p/{number}",), (), 0, POLICY, f"{one}/p") for number, one, _ in named}
    return Rules(
        rules={(bytes(16), 1, number, side): number for number, _, side in named},
        sets={99: TargetSet(("old/p/t",), (), 0, POLICY, "old/p")} | sets,
    )


def test_each_target_set_that_rules_name_has_room_by_the_ends_that_they_name() -> None:
    found = unowned(rules((1, "shop", RuleSide.LOCAL), (1, "shop", RuleSide.PEER), (2, "bank", RuleSide.PEER)), most=9)
    assert [(0, 1, Role.CLIENT), (0, 1, Role.SERVER), (0, 2, Role.CLIENT)] == found.tolist()


def test_replicas_name_no_target_set() -> None:
    assert 0 == len(unowned(rules((1, "shop", RuleSide.MEMBER)), most=9))


def test_who_has_most_target_sets_goes_without_for_the_last_of_them() -> None:
    evil = [(number, "evil", RuleSide.LOCAL) for number in range(1, 500)]
    found = unowned(rules(*evil, *[(number, "shop", RuleSide.LOCAL) for number in range(500, 505)]), most=20)
    numbers = found["target_set"].tolist()
    assert [*range(1, 16), *range(500, 505)] == numbers
