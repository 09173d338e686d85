"""Target sets whose number means another set than before: what totals begin anew because of them. Pure.

A number is given again when 1,023 sets have been seen (docs/design/directory.md, "Putting rules in force"). What was
counted under it is not the new set's, and its former targets have lost a part of their totals, which must not fall.
"""

from collections.abc import Iterable
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
    reached = of_plan.intersection(target for number in again for target in before.sets[number].targets)
    numbers, targets = again.copy(), set[str]()
    while reached - targets:
        targets |= reached
        found = {number for number, one in rules.sets.items() if targets.intersection(one.targets)} - again
        numbers |= found
        reached = of_plan.intersection(target for number in found for target in rules.sets[number].targets)
    return Anew(frozenset(numbers), frozenset(targets))
