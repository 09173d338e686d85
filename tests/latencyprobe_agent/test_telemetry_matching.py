import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.telemetry.matching import find, group

NUMBERS = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])


@given(st.lists(st.tuples(NUMBERS, st.integers(0, 255), NUMBERS, NUMBERS), min_size=1))
def test_rows_are_of_one_group_exactly_where_all_columns_are_equal(rows: list[tuple[int, ...]]) -> None:
    columns = [
        np.array(column, dtype) for column, dtype in zip(zip(*rows, strict=True), ("u8", "u1", "u8", "u8"), strict=True)
    ]
    first, code = group(*columns)
    assert len(first) == len(set(rows))
    assert [rows[at] for at in first[code]] == rows


@given(st.lists(NUMBERS), st.lists(NUMBERS, unique=True))
def test_a_value_is_found_where_it_is(values: list[int], among: list[int]) -> None:
    places = find(np.array(values, np.uint64), np.array(among, np.uint64))
    assert places.tolist() == [among.index(value) if value in among else -1 for value in values]
