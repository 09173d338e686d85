"""Equal values in columns: which rows are alike, and where in another column a value is."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEW = 1 << 14  # combinations of which a table is quicker than sorting


def group(*columns: NDArray[Any]) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the distinct combinations of equally long columns of integers, at least one row.

    Return the first row of each combination, and for every row which combination it has.
    """
    code, size = np.zeros(len(columns[0]), np.int64), 1
    for values in columns:
        least, most = values.min(), values.max()
        spread = int(most) - int(least) + 1
        if size * spread < 1 << 62:
            place = (values - least).astype(np.int64) if spread > 1 else np.int64(0)
        else:
            (code, size), (place, spread) = _dense(code), _dense(values)
        code = code * spread + place
        size *= spread
    if size > _FEW:
        _, first, code = np.unique(code, return_index=True, return_inverse=True)
        return first, code
    exists = np.zeros(size, np.bool_)
    exists[code] = True
    code = (np.cumsum(exists) - 1)[code]
    first = np.empty(np.count_nonzero(exists), np.intp)
    first[code[::-1]] = np.arange(len(code))[::-1]  # the last one that is written stays
    return first, code


def find(values: NDArray[np.uint64], among: NDArray[np.uint64]) -> NDArray[np.intp]:
    """Return where each value is in `among`, whose values differ; -1 where it is not."""
    if not len(among):
        return np.full(len(values), -1)
    order = np.argsort(among)
    place = order[np.minimum(np.searchsorted(among, values, sorter=order), len(among) - 1)]
    return np.where(among[place] == values, place, -1)


def halves_of(addresses: NDArray[np.uint8]) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    """Return addresses (u1[n, 16]) as two columns of integers."""
    both = np.ascontiguousarray(addresses).view(np.uint64)
    return both[:, 0], both[:, 1]


def _dense(values: NDArray[Any]) -> tuple[NDArray[np.int64], int]:
    distinct, code = np.unique(values, return_inverse=True)
    return code.astype(np.int64), len(distinct)
