"""Levels: every count is kept in a minute, an hour and a day row at once, each kept for its own time. Pure.

So compaction only deletes, a late minute is right in every level, and a long window is read from few rows: days inside,
hours and minutes at its edges. `sqlite.py` asks here which rows make up a window.
"""

import itertools
import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from latencyprobe.slo.evaluate import COMPLETE_FROM
from latencyprobe.slo.windows import DAY_S, HOUR_S, MINUTE_S

WIDTHS_S = (MINUTE_S, HOUR_S, DAY_S)
# Minutes carry the burn-rate windows of up to a day and 24 h of late counts; hours the 28 d and 30 d windows.
MINUTES_KEPT_S = 2 * DAY_S
HOURS_KEPT_S = 35 * DAY_S
DAYS_KEPT_S = 400 * DAY_S
_TEN_S = 10 * MINUTE_S


class Horizons(NamedTuple):
    """From which Unix second on the rows of each width are all there."""

    minutes: int = 0
    hours: int = 0
    days: int = 0

    def finest_s(self, second: int) -> int:
        """Return the width in seconds of the finest rows that tell of a Unix second."""
        if second >= self.minutes:
            return MINUTE_S
        return HOUR_S if second >= self.hours else DAY_S

    def tells(self, since: int, length_s: int) -> bool:
        """Return whether what is read of a window is hardly more than it: the row that it begins in is read whole."""
        return length_s >= COMPLETE_FROM * (length_s + since % self.finest_s(since))


class Span(NamedTuple):
    """Rows of one width with `since` ≤ start < `until`, in Unix seconds."""

    width_s: int
    since: int
    until: int

    @property
    def lasting(self) -> bool:
        """Whether it is a piece of the windows that end in the next minutes too: see `pieces`."""
        return self.width_s > MINUTE_S or self.until - self.since == _TEN_S


def horizons(now: int) -> Horizons:
    """Return what has to be kept at `now`; each begins where a row of the next level does."""
    return Horizons(
        down(now - MINUTES_KEPT_S, HOUR_S),
        down(now - HOURS_KEPT_S, DAY_S),
        down(now - DAYS_KEPT_S, DAY_S),
    )


class Pace:
    """How late it may be believed to be: a clock that jumps ahead takes no minutes away. Twice as fast as time passes,
    so that a store that was closed for long catches up. `steady`: seconds that nobody sets."""

    def __init__(self, steady: Callable[[], float]) -> None:
        self._reached: float | None = None
        self._steady = steady
        self._at = steady()

    def believed(self, now: float, began: Callable[[], float]) -> float:
        """Return `now`, or how late it can be at most. `began`: how late it was for sure when this was made."""
        at, reached = self._steady(), began() if self._reached is None else self._reached
        believed = min(now, reached + 2 * (at - self._at))
        self._reached, self._at = max(reached, believed), at
        return believed


def boot_s() -> float:
    """Return seconds since the machine was started, those included in which it slept."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def spans(since: int, until: int, kept: Horizons, widest_s: int = DAY_S) -> list[Span]:
    """Return the fewest rows that make up a window, each second of it in exactly one, in the order of time.

    Its start is aligned down and its end up to a bound of the finest row that is kept there. `widest_s`: no wider rows
    are wanted, where finer ones are kept.
    """
    since = down(since, kept.finest_s(since))
    until = -down(-until, kept.finest_s(until))
    widths_s = [width_s for width_s in WIDTHS_S if width_s <= max(widest_s, kept.finest_s(since))]
    found = []
    for width_s, wider_s in itertools.pairwise(widths_s):
        first, last = -down(-since, wider_s), down(until, wider_s)
        if first >= last:
            break
        found += [Span(width_s, since, first), Span(width_s, last, until)]
        since, until = first, last
    else:
        width_s = widths_s[-1]
    found.append(Span(width_s, since, until))
    return sorted((span for span in found if span.since < span.until), key=lambda span: span.since)


def pieces(rows: Sequence[Span]) -> list[Span]:
    """Return the same rows in pieces, most of which stay what they are while time passes: minutes by the ten, and the
    last hour apart, which may still get counts."""
    found: list[Span] = []
    for span, after in itertools.zip_longest(rows, rows[1:]):
        cuts: Iterable[int] = ()
        if span.width_s == MINUTE_S:
            cuts = range(down(span.since, _TEN_S) + _TEN_S, span.until, _TEN_S)
        elif span.width_s == HOUR_S and (after is None or after.width_s < HOUR_S):
            cuts = [span.until - HOUR_S] if span.until - span.since > HOUR_S else []
        found += (Span(span.width_s, *bounds) for bounds in itertools.pairwise((span.since, *cuts, span.until)))
    return found


def down(second: int, width_s: int) -> int:
    """Return the start of the row that `second` lies in."""
    return second - second % width_s
