"""options.py: moments and durations as people give them."""

import time

import click
import pytest

from latencyprobe.options import Duration, Moment

DAY_S = 86_400


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-03-01", 1_772_323_200 + DAY_S),
        ("20260301", 1_772_323_200 + DAY_S),
        ("2026-03-01T00:00", 1_772_323_200),
        ("2026-03-01 00:00:59Z", 1_772_323_259),
        ("2026-03-01T02:00+02:00", 1_772_323_200),
    ],
)
def test_date_is_its_end_and_an_instant_is_utc_unless_it_says_otherwise(text: str, expected: int) -> None:
    assert expected == Moment().convert(text, None, None)


def test_today_is_now() -> None:
    before = int(time.time())
    today = time.strftime("%Y-%m-%d", time.gmtime(before))
    assert before <= Moment().convert(today, None, None) <= time.time()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("yesterday", "'yesterday' is no date such as 2026-11-01 and no instant such as 2026-11-01T14:30Z"),
        ("2026-02-30", "'2026-02-30' is no date"),
        ("", "'' is no date"),
        ("2999-01-01", "2999-01-01 is still to come"),
        ("0001-01-01T00:00+14:00", "is before 1970"),
    ],
)
def test_what_is_no_moment_of_the_past_is_refused(text: str, said: str) -> None:
    with pytest.raises(click.BadParameter, match="^" + said if said.startswith("'") else said):
        Moment().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "seconds"), [("300ms", 0.3), ("90s", 90.0), ("1.5m", 90.0), ("1m30s", 90.0), ("2h", 7200.0)]
)
def test_durations_have_units(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "5", "5x", "-1s", "0s", "1 m", "1m30", "1m 30s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="no duration"):
        Duration().convert(text, None, None)


def test_a_duration_that_no_clock_counts_to_is_refused() -> None:
    assert 36_500 * DAY_S == Duration().convert("36500d", None, None)
    for text in ("36501d", "999999999d", f"{10**17}d", f"{10**400}s"):
        with pytest.raises(click.BadParameter, match="is longer than 36500d"):
            Duration().convert(text, None, None)
