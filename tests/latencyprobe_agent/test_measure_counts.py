"""Adding the kernel's counts up over CPUs, without their 32-bit wrap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.counts import COUNTS, Counts, Ended, Widening
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EXCHANGE_COUNTS

KEYS = np.array([(5, 1, 2), (5, 1, 1)], COUNTS_KEY)


def test_every_field_is_added_up_over_cpus():
    per_cpu = np.zeros((2, 3), EXCHANGE_COUNTS)
    for name in EXCHANGE_COUNTS.names:
        per_cpu[name][0, 1] = 3
        per_cpu[name][0, 2] = 4

    total = Widening().add_up(KEYS, per_cpu)

    for name in COUNTS.names:
        assert np.all(total[name][0] == 7), name
        assert np.all(total[name][1] == 0), name


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), min_size=1, max_size=8))
def test_a_histogram_goes_on_growing_when_a_cpus_bucket_wraps(steps):
    widening, per_cpu, true = Widening(), np.zeros((1, 2), EXCHANGE_COUNTS), 0

    for gained in steps:
        per_cpu["histogram"][0, :, 7] += np.array(gained, np.uint32)  # wraps as the kernel's does
        true += sum(gained)
        assert true == widening.add_up(KEYS[:1], per_cpu)["histogram"][0, 7]


def counted(*classes):
    totals = np.zeros(len(classes), COUNTS)
    totals["classes"][:, 1] = classes
    totals["histogram"][:, 3] = classes
    return totals


def test_an_owner_that_has_ended_leaves_when_nothing_was_added_for_a_while_and_its_counts_stay():
    keys, ended = np.array([(7, 1, 2), (8, 1, 2), (0, 1, 2)], COUNTS_KEY), Ended()
    gone = {7}.__contains__

    assert not ended.over(keys, counted(4, 5, 6), gone).any()
    assert not ended.over(keys, counted(9, 5, 6), gone).any()  # its sockets ended after it
    assert ended.over(keys, counted(9, 5, 6), gone).tolist() == [True, False, False]

    ended.add(Counts(keys[:1], counted(9)))
    living = ended.living(Counts(keys[1:], counted(5, 6)), gone)
    all_keys, all_totals = ended.join(living)
    assert living.keys["owner"].tolist() == [8, 0]
    assert all_keys["owner"].tolist() == [8, 0, 0]
    assert all_totals["classes"].sum() == all_totals["histogram"].sum() == 20


def test_the_counts_of_an_owner_leave_together_so_that_their_sum_never_falls():
    keys, ended = np.array([(7, 1, 2), (7, 2, 2)], COUNTS_KEY), Ended()  # set 1 is from before an edit
    gone = {7}.__contains__

    ended.over(keys, counted(4, 5), gone)
    assert not ended.over(keys, counted(4, 6), gone).any()
    assert ended.over(keys, counted(4, 6), gone).all()


def test_a_widened_key_that_was_forgotten_starts_again():
    widening, per_cpu = Widening(), np.zeros((1, 1), EXCHANGE_COUNTS)
    per_cpu["histogram"][0, 0, 7] = 5
    widening.add_up(KEYS[:1], per_cpu)
    widening.forget(KEYS[0].tobytes())
    per_cpu["histogram"][0, 0, 7] = 2
    assert widening.add_up(KEYS[:1], per_cpu)["histogram"][0, 7] == 2
