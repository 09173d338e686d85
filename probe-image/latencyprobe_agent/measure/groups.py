"""Rows with equal values in some columns: few groups among many rows, as target set, role and owner make them.

Pure. Called wherever halves are added up by group: SLI rows and histograms of records.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

_FEW = 8  # groups that are found one by one, in a few looks at the column each; sorting takes as long as some ten


class Groups(NamedTuple):
    """`first`: a row of each group; `of_row`: the group of each row, as its place in `first`."""

    first: NDArray[np.intp]
    of_row: NDArray[np.intp]

    def rows(self, group: int) -> NDArray[np.intp]:
        """Return the rows of one group, ascending."""
        return np.arange(len(self.of_row)) if len(self.first) == 1 else np.flatnonzero(self.of_row == group)


def groups(columns: Sequence[NDArray[np.generic]]) -> Groups:
    """Return the groups of rows that are equal in all columns (at least one, of equal length). No rows, no groups."""
    found = _of_one(columns[0])
    for column in columns[1:]:
        other = _of_one(column)
        if len(other.first) > 1:
            found = _of_one(found.of_row * len(other.first) + other.of_row) if len(found.first) > 1 else other
    return found


def _of_one(column: NDArray[np.generic]) -> Groups:
    first: list[int] = []
    of_row = np.zeros(len(column), np.intp)
    row, rest = 0, column[:1] == column[:1]
    while rest.any():
        if len(first) == _FEW:
            return _by_sorting(column)
        first.append(row)
        others = column != column[row]
        rest = rest & others
        row = int(rest.argmax())
        of_row += rest
    return Groups(np.array(first, np.intp), of_row)


def _by_sorting(column: NDArray[np.generic]) -> Groups:
    order = np.argsort(column)
    in_order = column[order]
    begins = np.concatenate([[True], in_order[1:] != in_order[:-1]])
    of_row = np.empty(len(column), np.intp)
    of_row[order] = np.cumsum(begins) - 1
    return Groups(order[begins], of_row)
