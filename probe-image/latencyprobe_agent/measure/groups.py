"""Rows with equal values in some columns: few groups among many rows, as target set, role and owner make them.

Pure. Called wherever halves are added up by group, SLI rows and histograms of records, and where spans say the same.
"""

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

_FEW = 1 << 14  # combinations of which a table is quicker than sorting


class Groups(NamedTuple):
    """`first`: the first row of each group; `of_row`: the group of each row, as its place in `first`."""

    first: NDArray[np.intp]
    of_row: NDArray[np.intp]

    def rows(self, group: int) -> NDArray[np.intp]:
        """Return the rows of one group, ascending."""
        return np.arange(len(self.of_row)) if len(self.first) == 1 else np.flatnonzero(self.of_row == group)


def groups(columns: Sequence[NDArray[Any]]) -> Groups:
    """Return the groups of rows that are equal in all columns of integers or bools (at least one, of equal length).

    No rows, no groups. Each combination of values has a number; where many are possible, those that exist are numbered.
    """
    number, possible = np.zeros(len(columns[0]), np.intp), 1
    if not len(number):
        return Groups(number, number)
    for column in columns:
        values = column.view(np.uint8) if column.dtype == np.bool_ else column
        least = values.min()
        spread = int(values.max()) - int(least) + 1
        if spread == 1:
            continue
        if possible * spread < 1 << 62:
            place = (values - least).astype(np.intp)
        else:
            (number, possible), (place, spread) = _numbered(number), _numbered(values)
        number = number * spread + place
        possible *= spread
    return _by_table(number, possible) if possible <= _FEW else _by_sorting(number)


def _numbered(values: NDArray[Any]) -> tuple[NDArray[np.intp], int]:
    existing, number = np.unique(values, return_inverse=True)
    return number, len(existing)


def _by_table(number: NDArray[np.intp], possible: int) -> Groups:
    exists = np.zeros(possible, np.bool_)
    exists[number] = True
    of_row = (np.cumsum(exists) - 1)[number]
    first = np.empty(np.count_nonzero(exists), np.intp)
    first[of_row[::-1]] = np.arange(len(number))[::-1]  # the last one that is written stays
    return Groups(first, of_row)


def _by_sorting(number: NDArray[np.intp]) -> Groups:
    _, first, of_row = np.unique(number, return_index=True, return_inverse=True)
    return Groups(first, of_row)
