"""What lies within what, beside an oracle that looks at every two intervals."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.nesting import Intervals, covered_ns, nest, overlapping_others

HOUR_NS = 3600 * 10**9


def intervals(rows: list[tuple[int, int, int]]) -> Intervals:
    """Of (thread, begin, length)."""
    of, begin, length = np.array(rows, np.int64).reshape(-1, 3).T
    return Intervals(of.astype(np.uint64), begin, begin + length)


some = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 20), st.integers(0, 20)), max_size=12).map(intervals)


def rows(of: Intervals) -> list[tuple[int, int, int]]:
    return list(zip(of.of.tolist(), of.begin_ns.tolist(), of.end_ns.tolist(), strict=True))


@given(some, some)
def test_an_interval_is_within_the_only_one_that_contains_it(outer: Intervals, inner: Intervals) -> None:
    found = nest(outer, inner)
    for i, (thread, begin, end) in enumerate(rows(inner)):
        containing = [j for j, (of, b, e) in enumerate(rows(outer)) if of == thread and b <= begin and end <= e]
        assert (len(containing) > 1) == found.several[i]
        assert found.within[i] in (containing or [-1])


@given(some)
def test_a_thread_overlaps_itself_where_one_begins_before_all_earlier_ones_have_ended(one: Intervals) -> None:
    all_rows = rows(one)
    any_overlap = {
        thread
        for i, (thread, begin, end) in enumerate(all_rows)
        for of, b, e in all_rows[:i]
        if of == thread and max(begin, b) < min(end, e)
    }
    assert any_overlap <= set(one.of[overlapping_others(one)].tolist())
    apart = [(t, 100 * i, 50) for i, (t, _, _) in enumerate(all_rows)]
    assert not overlapping_others(intervals(apart)).any()


@given(some)
def test_what_each_adds_makes_up_the_union(one: Intervals) -> None:
    added = covered_ns(one)
    for thread in np.unique(one.of):
        union = {at for of, begin, end in rows(one) if of == thread for at in range(begin, end)}
        assert len(union) == added[one.of == thread].sum()
    assert (added <= one.end_ns - one.begin_ns).all()


def test_times_of_a_host_that_has_run_for_years_and_a_request_of_hours() -> None:
    boot = 5 * 365 * 24 * HOUR_NS
    outer = Intervals(np.array([2**63 + 7], np.uint64), np.array([boot]), np.array([boot + 3 * HOUR_NS]))
    inner = Intervals(outer.of, outer.begin_ns + 5, outer.begin_ns + HOUR_NS)
    assert nest(outer, inner).within.tolist() == [0]
    assert covered_ns(inner).tolist() == [HOUR_NS - 5]


def test_nothing_is_within_nothing() -> None:
    none, one = intervals([]), intervals([(1, 0, 5)])
    assert nest(none, one).within.tolist() == [-1]
    assert nest(one, none).within.tolist() == []
    assert covered_ns(none).tolist() == []
