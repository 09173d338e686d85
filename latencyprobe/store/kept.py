"""Sums that are kept from one evaluation to the next, while nothing of what they are made of changes.

`windows.py` and `past.py` sum the rows of a piece of a window, and ask here first; `sqlite.py` says what changes. Only
the file's one writer keeps any: nobody else knows of every change.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeVar

import msgspec

from latencyprobe.store.levels import WIDTHS_S, Horizons, Span

FORGOTTEN_S = 150.0  # twice as long as evaluations are apart, and more
_T = TypeVar("_T")
_Packed = dict[tuple[type, Span, tuple[int, ...]], bytes]


class Kept:
    """Packed sums by series and piece. What nobody asks for, while others are asked for, is forgotten within twice
    FORGOTTEN_S: so they are those of the last evaluations. `steady`: seconds that nobody sets; `None`: nothing is kept.
    """

    def __init__(self, steady: Callable[[], float] | None) -> None:
        self._steady = steady
        self._began = steady() if steady else 0.0
        self._asked: dict[int, _Packed] = {}  # since then
        self._before: dict[int, _Packed] = {}

    def sum(self, kind: type[_T], series: int, span: Span, make: Callable[[], _T], *how: int) -> _T:
        """Return the sum of a piece, as `make` makes it of its rows. `kind`: what msgspec packs; `how`: what it depends
        on besides."""
        if self._steady is None or not span.lasting:
            return make()
        if (now := self._steady()) >= self._began + FORGOTTEN_S:
            self._before, self._asked, self._began = self._asked, {}, now
        which = (kind, span, how)
        asked = self._asked.setdefault(series, {})
        packed = asked.get(which) or self._before.get(series, {}).pop(which, None)
        if packed is not None:
            asked[which] = packed
            return msgspec.msgpack.decode(packed, type=kind)
        made = make()
        with suppress(OverflowError):  # more than 64 bits: centuries of ns
            asked[which] = msgspec.msgpack.encode(made)
        return made

    def changed(self, series: int, minute: int) -> None:
        """Forget the sums that hold a minute (Unix s) of a series."""
        for packed in (self._asked.get(series, {}), self._before.get(series, {})):
            for which in [one for one in packed if one[1].since <= minute < one[1].until]:
                del packed[which]

    def compacted(self, left: Horizons) -> None:
        """Forget the sums of rows from before those that are `left`."""
        first = dict(zip(WIDTHS_S, left, strict=True))
        for packed in (*self._asked.values(), *self._before.values()):
            for which in [one for one in packed if one[1].since < first[one[1].width_s]]:
                del packed[which]

    def dropped(self, series: Iterable[int]) -> None:
        """Forget the sums of series whose rows are gone."""
        for one in series:
            self._asked.pop(one, None)
            self._before.pop(one, None)
