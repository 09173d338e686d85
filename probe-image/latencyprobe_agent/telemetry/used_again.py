"""Target sets whose number means another set than before, or whose series have to make room: what totals begin anew
because of them. Pure.

A number is given again when 1,022 sets have been seen (docs/design/directory.md, "Putting rules in force"). What was
counted under it is not the new set's, and its former targets have lost a part of their totals, which must not fall. Of
targets that are in no plan no totals are told, but they go on where a target comes back while a set names it.
"""

from collections.abc import Iterable, Set
from typing import NamedTuple

from latencyprobe.plan import Target
from latencyprobe_agent.measure.rules import Rules


class Anew(NamedTuple):
    """`numbers`: of target sets under which nothing has been counted yet; `targets`: ids of those whose totals were.
    `cut`: ids of targets that are in no plan and have lost a part of their totals, of those that a set names."""

    numbers: frozenset[int] = frozenset()
    targets: frozenset[str] = frozenset()
    cut: frozenset[str] = frozenset()


def begun_anew(before: Rules, rules: Rules, planned: Iterable[Target], cut: Set[str] = frozenset()) -> Anew:
    """Return what begins anew with `rules`: numbers with another meaning, and all that shares targets with them.

    `planned`: targets that are in the plan still, or again. `cut`: that of the plan before; who has come back begins
    anew.
    """
    again = rules.used_again(before)
    former = set(cut).union(*(before.sets[number].targets for number in again))
    return _with_all_that_share(again, former, rules, planned)


def begun_anew_of(namespaces: Set[str], rules: Rules, planned: Iterable[Target], cut: Set[str] = frozenset()) -> Anew:
    """Return what begins anew where all series of these namespaces do. `planned`, `cut`: as above."""
    numbers = {number for number, one in rules.sets.items() if one.namespace in namespaces}
    return _with_all_that_share(numbers, cut | _targets(rules, numbers), rules, planned)


def _targets(rules: Rules, numbers: Iterable[int]) -> set[str]:
    return {target for number in numbers for target in rules.sets[number].targets}


def _with_all_that_share(again: set[int], former: Set[str], rules: Rules, planned: Iterable[Target]) -> Anew:
    """Return these numbers, their `former` targets, and all sets and targets whose totals would fall else."""
    of_plan = {target.id for target in planned}
    reached = of_plan & former
    numbers, targets = again.copy(), set[str]()
    while reached - targets:
        targets |= reached
        found = {number for number, one in rules.sets.items() if targets.intersection(one.targets)} - again
        numbers |= found
        reached = of_plan & _targets(rules, found)
    cut = (former | _targets(rules, numbers - again)) - of_plan
    return Anew(frozenset(numbers), frozenset(targets), frozenset(cut & _targets(rules, rules.sets)))
