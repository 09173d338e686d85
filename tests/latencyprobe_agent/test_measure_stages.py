"""Stages sum to the duration exactly and are never negative, whatever the stamps."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from latencyprobe import bounds, sli, stages, unsent
from latencyprobe_agent.measure.stages import PAIR_STAGES, cut, pair_stages
from latencyprobe_agent.signals.exchanges import CLIENT_POINTS, SERVER_POINTS
from latencyprobe_agent.signals.table import EVIDENCE
from latencyprobe_agent.vocabulary import records

STAMPS = hnp.arrays(np.int64, hnp.array_shapes(min_dims=2, max_dims=2, max_side=5).map(lambda s: (5, s[1])),
                    elements=st.integers(0, 10**15))  # fmt: skip
STAGES = hnp.arrays(np.int64, (7, 4), elements=st.integers(0, 10**12))


def column(*stamps: int) -> np.ndarray:
    return np.array(stamps, np.int64).reshape(5, 1)


def test_kernel_and_records_have_as_many_stages_as_a_half():
    between_points = {len(SERVER_POINTS) - 1, len(CLIENT_POINTS) - 1}

    assert between_points == {records.STAGES} == {len(stages.SERVER), len(stages.CLIENT)}


def test_signals_and_buckets_are_those_that_rows_are_checked_for():
    first, buckets = records.HISTOGRAM_MIN, records.HISTOGRAM_BUCKETS
    assert {unsent.SIGNAL, *(signal.switch for signal in EVIDENCE)} == bounds.SIGNALS
    assert range(first, first + buckets) == sli.HISTOGRAM_INDEXES


def test_ordered_stamps_are_cut_where_they_are():
    points, stages, overlap = cut(column(100, 110, 130, 160, 200))

    assert [100, 110, 130, 160, 200] == points[:, 0].tolist()
    assert [10, 20, 30, 40] == stages[0].tolist()
    assert not overlap[0]


def test_a_stamp_before_its_predecessor_makes_an_empty_stage_and_is_flagged():
    _, stages, overlap = cut(column(100, 150, 130, 160, 200))

    assert [50, 0, 10, 40] == stages[0].tolist()
    assert overlap[0]


def test_a_missing_stamp_makes_an_empty_stage_and_no_flag():
    _, stages, overlap = cut(column(100, 110, 0, 160, 200))

    assert [10, 0, 50, 40] == stages[0].tolist()
    assert not overlap[0]


def test_a_half_without_its_first_stamp_starts_at_its_earliest():
    points, stages, _ = cut(column(0, 0, 130, 120, 200))

    assert (120, 200) == (points[0, 0], points[-1, 0])
    assert 80 == stages.sum()


@given(STAMPS)
def test_stages_of_a_half_sum_to_its_duration(stamps):
    points, stages, _ = cut(stamps)

    assert (stages >= 0).all()
    assert np.array_equal(points[-1] - points[0], stages.sum(axis=1))


@given(STAGES, STAGES)
def test_stages_of_a_pair_sum_to_the_clients_duration(client, server):
    stages = pair_stages(client, server)

    assert (stages >= 0).all()
    assert np.array_equal(client.sum(axis=1), stages.sum(axis=1))


@given(st.lists(st.integers(0, 10**9), min_size=8, max_size=8))
def test_network_of_a_small_exchange_is_the_way_there_and_the_way_back(steps):
    # Along one clock: client sends, server is ready, reads, sends, client is ready, reads. One segment each way.
    send_start, send_end, s_ready, s_read, s_send, s_sent, c_ready, c_read = np.cumsum([1, *steps[1:]]).tolist()
    client = np.diff([[send_start, send_end, c_ready, c_ready, c_read]])
    server = np.diff([[s_ready, s_ready, s_read, s_send, s_sent]])

    network = pair_stages(client, server)[0, PAIR_STAGES.index("network")]

    assert (s_ready - send_start) + (c_ready - s_sent) == network


def test_a_server_send_that_outlasts_the_clients_read_is_shortened():
    client = np.array([[2, 20, 0, 3]])  # 25 in all
    server = np.array([[0, 4, 6, 5000]])  # preempted in its send call after the bytes had left

    stages = dict(zip(PAIR_STAGES, pair_stages(client, server)[0].tolist(), strict=True))

    assert (0, 12) == (stages["network"], stages["server_send"])
    assert (4, 6, 3) == (stages["server_read_delay"], stages["server_process"], stages["client_read_delay"])


def test_shifting_the_servers_clock_changes_no_stage():
    client = np.array([[100, 110, 130, 160, 200]]).T
    server = np.array([[5, 6, 7, 20, 25]]).T

    shifted = [pair_stages(cut(client)[1], cut(server + shift)[1]).tolist() for shift in (0, 10**15)]

    assert shifted[0] == shifted[1]
