"""Marks on the recent halves: each counts once, and so does each stretch of time."""

import numpy as np
import pytest

from latencyprobe_agent.measure.hits import Hits
from latencyprobe_agent.measure.recent import RecentHalves


@pytest.fixture
def recent() -> RecentHalves:
    made = RecentHalves(4)
    made.rows["at"] = 1 + np.arange(4)
    return made


def test_only_the_first_mark_of_a_half_is_its_first(recent):
    hits = Hits(recent)
    assert [True, True, False] == hits.mark(np.array([2, 0, 2])).tolist()
    assert [False, True] == hits.mark(np.array([0, 1])).tolist()


def test_a_half_in_the_place_of_another_has_marks_and_time_of_its_own(recent):
    hits = Hits(recent)
    hits.mark(np.array([2]))
    assert [50] == hits.cover(np.array([2]), np.array([100]), np.array([50])).tolist()
    recent.rows["at"][2] = 7
    assert [True] == hits.mark(np.array([2])).tolist()
    assert [60] == hits.cover(np.array([2]), np.array([90]), np.array([60])).tolist()


def test_waits_add_up_to_their_union(recent):
    hits = Hits(recent)
    hits.mark(np.array([1, 3]))
    at_ns, wait_ns = np.array([100, 110, 120, 200]), np.array([50, 30, 0, 100])
    assert [50, 10, 0, 90] == hits.cover(np.array([1, 1, 1, 1]), at_ns, wait_ns).tolist()
    assert [30] == hits.cover(np.array([3]), np.array([110]), np.array([30])).tolist(), "each half its own"
