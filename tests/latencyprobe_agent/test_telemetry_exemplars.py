"""Which exemplars stand for a series, and how they are written, as opentelemetry's parser finds them."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.metrics.v1 import metrics_pb2 as pb

from latencyprobe_agent.telemetry.exemplars import EXEMPLAR, NO_EXEMPLARS, largest, merged, write

ROWS = st.lists(st.tuples(st.integers(0, 4), st.integers(0, 2**40), st.integers(1, 2**64 - 1)), min_size=1, max_size=40)


@given(rows=ROWS)
def test_of_each_group_and_column_the_largest_is_found(rows: list[tuple[int, int, int]]) -> None:
    numbers = sorted({group for group, _, _ in rows})
    group = np.searchsorted(numbers, [group for group, _, _ in rows])
    ranks = np.array([row[1:] for row in rows], np.uint64)
    found = largest(ranks, group)
    assert (group[found] == np.arange(len(numbers))[:, None]).all()
    for number, best in enumerate(found):
        assert ranks[best, [0, 1]].tolist() == ranks[group == number].max(axis=0).tolist()


def test_of_several_series_together_two_remain() -> None:
    parts = np.zeros((3, 2), EXEMPLAR)
    parts["value_ns"], parts["join_key"] = [[2, 1], [9, 3], [5, 4]], [[7, 1], [2, 3], [4, 8]]
    assert merged(list(parts))["value_ns"].tolist() == [9, 4]
    assert merged([NO_EXEMPLARS, parts[0]])["value_ns"].tolist() == [2, 1]
    assert len(merged([])) == 0


def test_they_are_written_in_the_order_of_time_with_ids_as_spans_have_them() -> None:
    rows = np.zeros(2, EXEMPLAR)
    rows["join_key"], rows["value_ns"], rows["end_unix_ns"] = [1, 2], [1_500_000_000, 7], [2000, 1000]
    rows["trace_id"], rows["span_id"] = [[1, 2], [3, 2**64 - 1]], [5, 6]
    point = pb.ExponentialHistogramDataPoint()
    write(rows, point)
    assert list(pb.ExponentialHistogramDataPoint.FromString(point.SerializeToString()).exemplars) == [
        pb.Exemplar(
            time_unix_nano=1000,
            as_double=7e-9,
            trace_id=bytes.fromhex("0000000000000003ffffffffffffffff"),
            span_id=bytes.fromhex("0000000000000006"),
        ),
        pb.Exemplar(
            time_unix_nano=2000,
            as_double=1.5,
            trace_id=bytes.fromhex("00000000000000010000000000000002"),
            span_id=bytes.fromhex("0000000000000005"),
        ),
    ]


def test_a_span_that_is_both_is_written_once() -> None:
    point = pb.ExponentialHistogramDataPoint()
    write(np.zeros(2, EXEMPLAR), point)
    assert len(point.exemplars) == 1
