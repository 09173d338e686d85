"""Which processes serve and call: only their halves can concern each other. Pure; kept for `measure.calls`."""

import numpy as np
from numpy.typing import NDArray

_KINDS = 1 << 12  # of processes, by the low bits of their numbers; one that shares its bits costs time, no error
_KNOWN_S = 600  # a process does what it has done within this time


class Processes:
    """What processes have done, by `kind` (intp[n], of their tgids). Times in ns of the boot clock."""

    def __init__(self) -> None:
        self.both = np.zeros(_KINDS, np.bool_)
        self.newest_ns = 0  # when a process was seen that had not been before
        self._first_ns = np.zeros(_KINDS, np.int64)
        self._served_s, self._called_s, self._sampled_out_s = (np.zeros(_KINDS, np.int64) for _ in range(3))

    def note(
        self, kind: NDArray[np.intp], server: NDArray[np.bool_], client: NDArray[np.bool_], now_ns: int
    ) -> NDArray[np.bool_]:
        """Note who served and who called (bool[n] each). Return by kind (bool[4,096]) who does both now and did not."""
        seen = np.maximum(self._served_s, self._called_s) >= self._since_s(now_ns)
        self._served_s[kind[server]] = self._called_s[kind[client]] = now_ns // 10**9
        served, called = (last_s >= self._since_s(now_ns) for last_s in (self._served_s, self._called_s))
        first = (served | called) & ~seen
        if first.any():
            self._first_ns[first] = self.newest_ns = now_ns
        before, self.both = self.both, served & called
        return self.both & ~before

    def note_sampled_out(self, kind: NDArray[np.intp], now_ns: int) -> None:
        """Note of whom records of what they served were left out."""
        self._sampled_out_s[kind] = now_ns // 10**9

    def sampled_out(self, kind: NDArray[np.intp], now_ns: int) -> NDArray[np.bool_]:
        """Return bool[n]: of whom some were left out within ten minutes."""
        return self._sampled_out_s[kind] >= self._since_s(now_ns)

    def younger(self, kind: NDArray[np.intp], than_ns: int, now_ns: int) -> NDArray[np.bool_]:
        """Return bool[n]: who was first seen `than_ns` ago or later."""
        return now_ns - self._first_ns[kind] <= than_ns

    @staticmethod
    def _since_s(now_ns: int) -> int:
        return max(now_ns // 10**9 - _KNOWN_S, 1)


def kinds(tgid: NDArray[np.uint32]) -> NDArray[np.intp]:
    """Return the kind of each process."""
    return (tgid & np.uint32(_KINDS - 1)).astype(np.intp)
