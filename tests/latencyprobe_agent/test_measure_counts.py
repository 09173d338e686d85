"""Adding the kernel's counts up over shards, without their 32-bit wrap."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.counts import COUNTS, Counts, Ended, Shards, added_up
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, COUNTS_SLOT, EVIDENCE_COUNTS, EXCHANGE_COUNTS


def slots_of(*shards_of_keys):
    """Slots of one key after the other, by the shards of each."""
    found = [((5, 1, role), shard, 0) for role, shards in enumerate(shards_of_keys) for shard in shards]
    return np.array(found, COUNTS_SLOT)


def test_every_field_is_added_up_over_the_shards_that_a_key_has():
    values = np.zeros(6, EXCHANGE_COUNTS)
    for name in EXCHANGE_COUNTS.names:
        values[name][:] = np.array([3, 4, 0, 2**31, 2**31, 1]).reshape(-1, *[1] * (values[name].ndim - 1))

    keys, total = Shards().add_up(slots_of((1, 31), (0, 2, 1), (7,)), values)

    assert np.array_equal(np.array([(5, 1, 0), (5, 1, 1), (5, 1, 2)], COUNTS_KEY), keys)
    for name in COUNTS.names:
        assert np.all(total[name][0] == 7), name
        assert np.all(total[name][1] == 2**32), name
        assert np.all(total[name][2] == 1), name


def test_what_signals_count_is_added_up_as_well_and_nothing_to_nothing():
    values = np.zeros(3, EVIDENCE_COUNTS)
    values["segs_sent"], values["waits"][:, 2] = (1, 2, 4), (0, 2**40, 3)

    keys, total = added_up(slots_of((0, 9), (4,)), values, EVIDENCE_COUNTS)
    none, nothing = added_up(slots_of(), values[:0], EVIDENCE_COUNTS)

    assert [0, 1] == keys["role"].tolist()
    assert [3, 4] == total["segs_sent"].tolist()
    assert [2**40, 3] == total["waits"][:, 2].tolist()
    assert (0, 0, EVIDENCE_COUNTS) == (len(none), len(nothing), nothing.dtype)


@given(st.lists(st.tuples(st.integers(0, 2**31 - 1), st.integers(0, 2**31 - 1)), min_size=1, max_size=8))
def test_a_histogram_goes_on_growing_when_a_shards_bucket_wraps(steps):
    shards, values, true = Shards(), np.zeros(2, EXCHANGE_COUNTS), 0

    for gained in steps:
        values["histogram"][:, 7] += np.array(gained, np.uint32)  # wraps as the kernel's does
        true += sum(gained)
        assert true == shards.add_up(slots_of((0, 1)), values)[1]["histogram"][0, 7]


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


def test_a_key_that_was_forgotten_starts_again():
    shards, values = Shards(), np.zeros(1, EXCHANGE_COUNTS)
    values["histogram"][0, 7] = 5
    keys, _ = shards.add_up(slots_of((0,)), values)
    shards.forget(keys[0].tobytes())
    values["histogram"][0, 7] = 2
    assert shards.add_up(slots_of((0,)), values)[1]["histogram"][0, 7] == 2
