import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.telemetry.ragged import lengths, pick, write

TEXTS = st.lists(st.binary(max_size=40), min_size=1, max_size=6)


@given(TEXTS, TEXTS, st.lists(st.tuples(st.integers(0, 5), st.integers(-1, 5)), min_size=1))
def test_strings_are_their_pieces_one_after_the_other(
    heads: list[bytes], tails: list[bytes], chosen: list[tuple[int, int]]
) -> None:
    """Every string has a head, some have a tail."""
    code = np.array(chosen)
    with_tail = np.flatnonzero(code[:, 1] >= 0)
    columns = [
        pick(heads, code[:, 0] % len(heads)),
        pick(tails, code[with_tail, 1] % len(tails), with_tail),
    ]
    size = lengths(columns, len(code))
    body, starts = np.zeros(size.sum(), np.uint8), np.cumsum(size) - size
    write(body, columns, starts)
    assert starts.tolist() == np.cumsum(size).tolist()
    texts = [heads[a % len(heads)] + (tails[b % len(tails)] if b >= 0 else b"") for a, b in chosen]
    assert body.tobytes() == b"".join(texts)


def test_of_no_texts_there_are_no_pieces() -> None:
    assert pick([], np.zeros(0, np.intp)) == []
