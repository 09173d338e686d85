"""Lines out of pieces, however they are cut."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import lines as module
from latencyprobe.lines import Lines, LineTooLong


class Counted(bytearray):
    """Counts the bytes that are copied into it, and out of it, or looked at."""

    touched = 0

    def __init__(self, source=b""):
        super().__init__(source)
        Counted.touched += len(source)

    def __iadd__(self, more):
        Counted.touched += len(more)
        return super().__iadd__(more)

    def __bytes__(self):
        Counted.touched += len(self)
        return bytes(memoryview(self))

    def split(self, *separators):
        Counted.touched += len(self)
        return super().split(*separators)


@given(st.lists(st.binary(max_size=8).filter(lambda line: b"\n" not in line)), st.data())
def test_lines_are_whole_wherever_they_are_cut(lines, data):
    stream = b"".join(line + b"\n" for line in lines) + b"begun"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)))))
    reader = Lines(8)
    assert [line for a, b in pairwise([0, *cuts, len(stream)]) for line in reader.add(stream[a:b])] == lines


@pytest.mark.parametrize("pieces", [[b"123456789"], [b"12345", b"6789"], [b"ok\n12345", b"6789\n"]])
def test_line_that_is_too_long_is_refused_before_its_end(pieces):
    reader, (*begun, last) = Lines(8), pieces
    for piece in begun:
        reader.add(piece)
    with pytest.raises(LineTooLong, match="a line of more than 8 bytes"):
        reader.add(last)
    assert reader.add(b"12345678\n") == [b"12345678"], "nothing is kept of it"


def test_long_line_in_small_pieces_is_copied_no_more_often_than_a_short_one(monkeypatch):
    monkeypatch.setattr(module, "bytearray", Counted, raising=False)
    monkeypatch.setattr(Counted, "touched", 0)
    reader, length = Lines(1 << 21), 1 << 20
    for _ in range(length >> 12):
        assert reader.add(b"a" * (1 << 12)) == []
    assert len(reader.add(b"\n")[0]) == length
    assert length <= Counted.touched <= 3 * length
