"""Groups of rows: as a dictionary of tuples would have them, however many there are."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.groups import groups

ROWS = st.lists(st.tuples(st.integers(0, 2**64 - 1) | st.integers(0, 3), st.integers(0, 40)), max_size=60)


@given(ROWS)
def test_rows_are_in_one_group_if_all_their_columns_are_equal(rows):
    columns = [np.array([row[0] for row in rows], np.uint64), np.array([row[1] for row in rows], np.uint32)]

    found = groups(columns)

    assert sorted(set(rows)) == sorted(rows[first] for first in found.first.tolist())
    assert rows == [rows[found.first[group]] for group in found.of_row.tolist()]
    for group in range(len(found.first)):
        assert [i for i, of_row in enumerate(found.of_row.tolist()) if of_row == group] == found.rows(group).tolist()
