"""Values that many rows share, each kept once: rows hold their codes."""

from collections.abc import Hashable
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

T = TypeVar("T", bound=Hashable)


class Codes(Generic[T]):
    """`values`: by code."""

    def __init__(self) -> None:
        self.values: list[T] = []
        self._of: dict[T, int] = {}

    def of(self, value: T) -> int:
        """Return the code of a value; a new one gets the next."""
        code = self._of.setdefault(value, len(self.values))
        if code == len(self.values):
            self.values.append(value)
        return code

    def keep(self, codes: NDArray[np.uint32]) -> NDArray[np.uint32]:
        """Forget all values but those of `codes` (u32[n]). Return u32[n], the new codes of the same values."""
        kept, new = np.unique(codes, return_inverse=True)
        self.values = [self.values[code] for code in kept.tolist()]
        self._of = {value: code for code, value in enumerate(self.values)}
        return new.astype(np.uint32)
