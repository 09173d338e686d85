"""Many byte strings at once, made of pieces of different lengths, without a Python object for each.

A column of pieces gives every string at most one; what is written at once has one length. Bytes are copied by views
that begin at every byte of a buffer: numpy then moves one whole piece per element.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Rows = NDArray[np.void]
Numbers = NDArray[np.intp]


class Piece(NamedTuple):
    """Of the strings `at` (m of them) these bytes, V{w}[m]."""

    at: Numbers
    rows: Rows


def pick(table: Sequence[bytes], code: Numbers, at: Numbers | None = None) -> list[Piece]:
    """Return a column of pieces: `table[code[i]]` for string `at[i]`; for string `i` without `at`."""
    if not len(code):
        return []
    lengths = np.fromiter(map(len, table), np.intp, len(table))
    flat = np.frombuffer(b"".join(table), np.uint8)
    starts = np.cumsum(lengths) - lengths
    widths, of_text = np.unique(lengths, return_inverse=True)
    of_row = of_text[code].astype(np.uint16)  # short integers sort quickly; there are few lengths
    order = np.argsort(of_row, kind="stable")
    ends = np.cumsum(np.bincount(of_row, minlength=len(widths))).tolist()
    pieces = []
    for width, first, end in zip(widths.tolist(), [0, *ends], ends, strict=False):
        rows = order[first:end]
        if width and len(rows):
            pieces.append(Piece(rows if at is None else at[rows], _at_every_byte(flat, width)[starts[code[rows]]]))
    return pieces


def lengths(columns: Iterable[Iterable[Piece]], count: int) -> NDArray[np.int64]:
    """Return how long the pieces of each of `count` strings are together."""
    found = np.zeros(count, np.int64)
    for column in columns:
        for at, rows in column:
            _move(found, at, rows)
    return found


def write(into: NDArray[np.uint8], columns: Iterable[Iterable[Piece]], starts: NDArray[np.int64]) -> None:
    """Write the pieces of each string one after the other from where it starts in the buffer; `starts`, by string, is
    where it ends then."""
    for column in columns:
        for at, rows in column:
            _at_every_byte(into, rows.itemsize)[starts[at]] = rows
            _move(starts, at, rows)


def _move(place: NDArray[np.int64], at: Numbers, rows: Rows) -> None:
    if len(at) == len(place):
        place += rows.itemsize
    else:
        place[at] += rows.itemsize


def _at_every_byte(buffer: NDArray[np.uint8], width: int) -> Rows:
    return np.ndarray((len(buffer) - width + 1,), f"V{width}", buffer, 0, (1,))
