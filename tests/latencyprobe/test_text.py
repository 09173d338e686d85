"""Names that others chose are fit for a terminal."""

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.text import printable


@given(st.text())
def test_a_name_carries_no_terminal_escapes_and_keeps_its_length(name: str) -> None:
    assert printable(name).isprintable()
    assert len(printable(name)) == len(name)
