"""Time since the same was last done."""

import numpy as np

from latencyprobe_agent.measure.waits import Waits
from latencyprobe_agent.signals.evidence import Repeats
from latencyprobe_agent.signals.join_keys import RECENT_HALF

KEY = np.dtype([("at_ns", "i8"), ("what", "u4")])
REPEATS = Repeats(same=lambda key: key["what"], first_ns=lambda half, _: half["start_ns"])


def since_last(waits: Waits, start_ns: int, *rows: tuple[int, int]) -> list[int]:
    """Of records of one half: when, and what was done again."""
    half = np.zeros(len(rows), RECENT_HALF)
    half["start_ns"] = start_ns
    return waits.since_last(half, np.array(list(rows), KEY)).tolist()


def test_the_first_waited_since_the_half_did_it_and_each_later_one_since_the_one_before():
    waits = Waits(REPEATS, 10)
    assert [90, 95, 100] == since_last(waits, 10, (100, 1), (105, 2), (200, 1))
    assert [50] == since_last(waits, 10, (250, 1)), "in a later batch too"


def test_a_wait_is_never_negative_and_0_where_nothing_is_known():
    assert [0, 0] == since_last(Waits(REPEATS, 10), 300, (100, 1), (100, 2))
    assert [0, 20] == since_last(Waits(REPEATS, 10), 0, (100, 1), (120, 1))


def test_with_too_many_things_to_remember_it_starts_anew():
    waits = Waits(REPEATS, 2)
    since_last(waits, 10, *((100, what) for what in range(4)))
    assert [190] == since_last(waits, 10, (200, 3))
