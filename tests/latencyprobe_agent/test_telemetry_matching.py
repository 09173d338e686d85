import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.telemetry.matching import find

NUMBERS = st.sampled_from([0, 1, 2, 2**63, 2**64 - 1])


@given(st.lists(NUMBERS), st.lists(NUMBERS, unique=True))
def test_a_value_is_found_where_it_is(values: list[int], among: list[int]) -> None:
    places = find(np.array(values, np.uint64), np.array(among, np.uint64))
    assert places.tolist() == [among.index(value) if value in among else -1 for value in values]
