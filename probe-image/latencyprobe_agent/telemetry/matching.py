"""Values of 64 bits in columns: where in another one a value is, and addresses as two of them."""

import numpy as np
from numpy.typing import NDArray


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
