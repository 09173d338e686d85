"""Which target sets have room in the kernel's table of counts for what finds none of its own: owner 0. Pure."""

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from latencyprobe.shares import shares
from latencyprobe_agent.measure.rules import Rules
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Role, RuleSide

MOST = 96  # of some 1,024 keys; shared out among namespaces
_ROLE = {RuleSide.LOCAL: Role.SERVER, RuleSide.PEER: Role.CLIENT}


def unowned(rules: Rules, most: int = MOST) -> NDArray[np.void]:
    """Return COUNTS_KEY[n] of owner 0: target sets that rules name and their roles, so many at most, the first ones of
    each namespace."""
    named = sorted({(index, _ROLE[side]) for (*_, side), index in rules.rules.items() if side in _ROLE})
    left = shares(Counter(rules.sets[index].namespace for index, _ in named), most)
    keys = []
    for index, role in named:
        namespace = rules.sets[index].namespace
        if left[namespace]:
            left[namespace] -= 1
            keys.append((0, index, role))
    return np.array(keys, COUNTS_KEY)
