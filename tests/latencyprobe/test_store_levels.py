"""store/levels.py: which rows make up a window."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.store.levels import Horizons, Span, down, horizons, pieces, spans

DAY_S, HOUR_S, MINUTE_S = 86400, 3600, 60
NOW = 20_000 * DAY_S + 5 * HOUR_S + 17 * MINUTE_S + 3


def test_long_window_is_read_from_days_with_finer_edges() -> None:
    today, since = 20_000 * DAY_S, NOW - 28 * DAY_S
    assert [
        (HOUR_S, down(since, HOUR_S), today - 27 * DAY_S),
        (DAY_S, today - 27 * DAY_S, today),
        (HOUR_S, today, today + 5 * HOUR_S),
        (MINUTE_S, today + 5 * HOUR_S, today + 5 * HOUR_S + 18 * MINUTE_S),
    ] == spans(since, NOW, horizons(NOW))


def test_five_minutes_are_read_from_minutes() -> None:
    start = down(NOW, MINUTE_S) - 300
    assert [(MINUTE_S, start, down(NOW, MINUTE_S) + 60)] == spans(NOW - 300, NOW, horizons(NOW))


def test_nothing_is_made_up_of_nothing() -> None:
    assert [] == spans(60, 60, Horizons())


@given(st.integers(0, 500 * DAY_S), st.integers(0, 400 * DAY_S), st.integers(0, 30 * DAY_S))
def test_each_second_is_in_exactly_one_row_that_is_kept(age_s: int, length_s: int, unread_s: int) -> None:
    kept = horizons(NOW - unread_s)  # the last compaction
    since = max(0, NOW - age_s)
    until = min(NOW, since + length_s)
    found = spans(since, until, kept)
    for span in found:
        assert 0 == span.since % span.width_s == span.until % span.width_s
        assert span.since >= dict(zip((MINUTE_S, HOUR_S, DAY_S), (*kept[:2], 0), strict=True))[span.width_s]
    assert all(one.until == other.since for one, other in itertools.pairwise(found))
    if since < until:
        assert found[0].since <= since < found[0].since + DAY_S
        assert until <= found[-1].until < until + DAY_S


@given(st.integers(0, 500 * DAY_S), st.integers(0, 400 * DAY_S), st.integers(0, 30 * DAY_S))
def test_pieces_are_the_same_rows(age_s: int, length_s: int, unread_s: int) -> None:
    whole = spans(NOW - age_s, min(NOW, NOW - age_s + length_s), horizons(NOW - unread_s))

    def rows(of: list[Span]) -> list[tuple[int, int]]:
        return [(one.width_s, at) for one in of for at in range(one.since, one.until, one.width_s)]

    assert rows(whole) == rows(pieces(whole))


def test_most_pieces_of_a_window_are_those_of_the_minute_before() -> None:
    one, next_one = (pieces(spans(now - 28 * DAY_S, now + 1, horizons(now))) for now in (NOW, NOW + MINUTE_S))
    today = 20_000 * DAY_S
    ten = Span(MINUTE_S, today + 5 * HOUR_S, today + 5 * HOUR_S + 600)
    assert [Span(HOUR_S, today + 4 * HOUR_S, today + 5 * HOUR_S), ten] == one[-3:-1]
    assert one[:-1] == next_one[:-1]
    assert [True] * 5 + [False] == [piece.lasting for piece in one]


def test_no_rows_are_wider_than_wanted_where_finer_ones_are_kept() -> None:
    kept = Horizons(minutes=38 * DAY_S, hours=5 * DAY_S)
    hours = spans(10 * DAY_S, 40 * DAY_S, kept, widest_s=HOUR_S)
    assert {HOUR_S} == {span.width_s for span in hours}
    assert 30 * DAY_S == sum(span.until - span.since for span in hours)
    assert {DAY_S} == {span.width_s for span in spans(DAY_S, 4 * DAY_S, kept, widest_s=HOUR_S)}, "none are finer there"


def test_a_window_is_told_where_the_row_that_it_begins_in_adds_little() -> None:
    kept = Horizons(minutes=38 * DAY_S, hours=5 * DAY_S)
    begin = 38 * DAY_S - HOUR_S
    assert [True, True, False] == [kept.tells(since, HOUR_S) for since in (begin, begin + 360, begin + 420)]
    assert [True, False] == [kept.tells(38 * DAY_S + after_s, MINUTE_S) for after_s in (60, -60)]
    assert [True, True, False] == [kept.tells(4 * DAY_S, DAY_S), *(kept.tells(DAY_S // 2, n * DAY_S) for n in (5, 3))]
