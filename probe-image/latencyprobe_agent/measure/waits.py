"""How long an exchange had waited until something was done again, by its records: an upper bound of what that cost."""

from collections.abc import Hashable

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Repeats


class Waits:
    """Remembers when the same was last done again. With more than `limit` of them it starts anew."""

    def __init__(self, repeats: Repeats, limit: int) -> None:
        self._repeats = repeats
        self._limit = limit
        self._last_ns: dict[Hashable, tuple[int, int]] = {}  # and the time before

    def since_last(self, half: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.int64]:
        """Return the time from when the same was last done to each record; 0 if that is not known.

        `half`: RECENT_HALF[n], what the records were joined to, one maybe to several; `key`: theirs, in order of time.
        """
        at_ns, last_ns = key["at_ns"], self._repeats.first_ns(half, key).copy()
        if len(self._last_ns) > self._limit:
            self._last_ns.clear()
        for i, same in enumerate(self._repeats.same(key).tolist()):
            last, before = self._last_ns.get(same, (0, 0))
            if last != at_ns[i]:
                last, before = int(at_ns[i]), last
                self._last_ns[same] = last, before
            last_ns[i] = max(int(last_ns[i]), before)
        wait_ns: NDArray[np.int64] = np.where(last_ns > 0, np.maximum(at_ns - last_ns, 0), 0)
        return wait_ns
