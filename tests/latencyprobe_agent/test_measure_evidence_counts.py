"""What signals counted in the kernel, as differences; owners that have ended leave the kernel's table."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.evidence_counts import Growth
from latencyprobe_agent.signals.table import HANDSHAKES
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EVIDENCE_COUNTS

KEYS = np.array([(5, 1, 2), (6, 1, 1), (0, 1, 1)], COUNTS_KEY)


def opened(*counts: int) -> NDArray[np.void]:
    values = np.zeros(len(counts), EVIDENCE_COUNTS)
    values["connections"][:, 0] = counts
    return values


def test_each_reading_brings_what_was_counted_since_the_one_before() -> None:
    growth = Growth(HANDSHAKES)
    readings = [
        growth.since(KEYS[:n], opened(*counts)) for n, counts in ((1, [4]), (2, [4, 7]), (2, [9, 7]), (2, [9, 7]))
    ]
    found = [(one.keys["owner"].tolist(), one.values["connections"][:, 0].tolist()) for one in readings]
    assert found == [([5], [4]), ([6], [7]), ([5], [5]), ([], [])]


def test_an_owner_that_has_ended_leaves_when_it_has_gained_nothing_between_two_looks() -> None:
    growth = Growth(HANDSHAKES)
    ended = {5, 6}.__contains__
    growth.since(KEYS, opened(1, 1, 1))
    assert not len(growth.over(KEYS, ended))
    growth.since(KEYS, opened(2, 1, 1))
    assert growth.over(KEYS, ended)["owner"].tolist() == [6], "the other's sockets ended after it"
    growth.since(KEYS[[0, 2]], opened(2, 1))
    assert growth.over(KEYS[[0, 2]], ended)["owner"].tolist() == [5]
    again = growth.since(KEYS, opened(3, 4, 1))
    assert again.values["connections"][:, 0].tolist() == [3, 4], "one that comes again counts from 0"
