"""Target sets whose number means another set than before, or whose series have to make room: what totals begin anew
because of them. Pure.

A number is given again when 1,022 sets have been seen (docs/design/directory.md, "Putting rules in force"). What was
counted under it is not the new set's, and its former targets have lost a part of their totals, which must not fall.
"""

from collections.abc import Iterable, Set
from typing import NamedTuple

from latencyprobe.plan import Target
from latencyprobe_agent.measure.rules import Rules


class Anew(NamedTuple):
    """`numbers`: of target sets under which nothing has been counted yet; `targets`: ids of those whose totals were."""

    numbers: frozenset[int] = frozenset()
    targets: frozenset[str] = frozenset()


def begun_anew(before: Rules, rules: Rules, planned: Iterable[Target]) -> Anew:
    """Return what begins anew with `rules`: numbers with another meaning, and all that shares targets with them.

    `planned`: targets that are in the plan still; others have no totals.
    """
    again = rules.used_again(before)
    of_plan = {target.id for target in planned}
    return _with_all_that_share(again, (t for number in again for t in before.sets[number].targets), rules, of_plan)


def begun_anew_of(namespaces: Set[str], rules: Rules, planned: Iterable[Target]) -> Anew:
    """Return what begins anew where all series of these namespaces do. `planned`: as above."""
    numbers = {number for number, one in rules.sets.items() if one.namespace in namespaces}
    of_plan = {target.id for target in planned}
    return _with_all_that_share(numbers, (t for number in numbers for t in rules.sets[number].targets), rules, of_plan)


def _with_all_that_share(again: set[int], former: Iterable[str], rules: Rules, of_plan: set[str]) -> Anew:
    """Return these numbers, their `former` targets, and all sets and targets whose totals would fall else."""
    reached = of_plan.intersection(former)
    numbers, targets = again.copy(), set[str]()
    while reached - targets:
        targets |= reached
        found = {number for number, one in rules.sets.items() if targets.intersection(one.targets)} - again
        numbers |= found
        reached = of_plan.intersection(target for number in found for target in rules.sets[number].targets)
    return Anew(frozenset(numbers), frozenset(targets))
