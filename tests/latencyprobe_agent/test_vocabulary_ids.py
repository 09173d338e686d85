"""Trace ids survive the way through text."""

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.vocabulary import ids

HALF = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(HALF, HALF)))
def test_ids_come_back_from_hex(pairs: list[tuple[int, int]]) -> None:
    keys = [f"{high:016x}{low:016x}" for high, low in pairs]
    found = ids.from_hex(keys)
    assert found.tolist() == [list(pair) for pair in pairs]
    assert ids.to_hex(found) == keys
