"""Join the two halves of an exchange when this agent holds both: client and server run on the same node.

The halves meet by their 128-bit trace id, whatever batches they come in; `app` calls `join()` once per batch.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.records import Role
from latencyprobe_agent.measure.halves import Halves, no_halves
from latencyprobe_agent.measure.stages import PAIR_STAGES, pair_stages

_NETWORK = PAIR_STAGES.index("network")


@dataclass(frozen=True)
class Pairs:
    """m joined pairs. `client_at`, `server_at`: row of the half in the batch just joined, -1 if it came before.

    `stages`: i64[m, 6] ns, PAIR_STAGES, summing to the client's duration; `dominant`: index of the largest.
    `network_excess`: f8[m] ns, `network` less the round trip that TCP measured: may be negative by that sample's
    error, NaN without a sample.
    """

    client: Halves
    server: Halves
    client_at: NDArray[np.intp]
    server_at: NDArray[np.intp]
    stages: NDArray[np.int64]
    dominant: NDArray[np.uint8]
    network_excess: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.client)


class LocalJoin:
    """Keeps halves whose other half has not come: at most `limit` of them, for `keep_ns`; the oldest go first.

    Halves of one exchange leave the kernel within ms of each other, or with the same quiet flush; a half whose other
    end is on another node waits here in vain, so the limit also bounds memory (about 400 bytes each).
    """

    def __init__(self, limit: int = 16_384, keep_ns: int = 30_000_000_000) -> None:
        self._limit = limit
        self._keep_ns = keep_ns
        self._waiting = no_halves()

    def __len__(self) -> int:
        return len(self._waiting)

    def join(self, batch: Halves) -> Pairs:
        """Join a batch with itself and with what waits. A trace id seen twice on one side is ambiguous: no pair."""
        waiting = self._waiting
        at = np.flatnonzero(batch.counted & (batch.rec["role"] != Role.UNKNOWN))
        high, low = np.concatenate([waiting.trace_id, batch.trace_id[at]]).T
        server = np.concatenate([waiting.rec["role"], batch.rec["role"][at]]) == Role.SERVER
        order = np.argsort(high, kind="stable")
        ordered = high[order]
        first = np.flatnonzero(np.concatenate([[True], ordered[1:] != ordered[:-1]])) if len(order) else order
        size = np.diff(np.append(first, len(order)))
        one, other = order[first[size == 2]], order[first[size == 2] + 1]
        good = (server[one] != server[other]) & (low[one] == low[other])
        one, other = one[good], other[good]
        swap = server[one]
        client, server_half = np.where(swap, other, one), np.where(swap, one, other)

        pairs = self._pairs(batch, at, client, server_half)
        alone = np.sort(order[first[size == 1]])
        self._keep(batch, at, alone)
        return pairs

    def _pairs(self, batch: Halves, at: NDArray[np.intp], client: NDArray[np.intp], server: NDArray[np.intp]) -> Pairs:
        waiting = len(self._waiting)
        row = np.concatenate([np.full(waiting, -1), at])
        both = [self._rows(batch, at, positions) for positions in (client, server)]
        stages = pair_stages(both[0].stages, both[1].stages)
        rtt_us = np.where(both[0].rec["srtt_us"] > 0, both[0].rec["srtt_us"], both[1].rec["srtt_us"])
        return Pairs(
            client=both[0],
            server=both[1],
            client_at=row[client],
            server_at=row[server],
            stages=stages,
            dominant=stages.argmax(axis=1).astype(np.uint8),
            network_excess=stages[:, _NETWORK].astype(np.float64) - np.where(rtt_us > 0, rtt_us * 1e3, np.nan),
        )

    def _rows(self, batch: Halves, at: NDArray[np.intp], positions: NDArray[np.intp]) -> Halves:
        """Rows of the waiting halves followed by those of the batch, in the order of `positions`."""
        waiting = len(self._waiting)
        old = positions < waiting
        if not old.any():
            return batch.take(at[positions - waiting])
        rows = Halves.concatenate([self._waiting.take(positions[old]), batch.take(at[positions[~old] - waiting])])
        place = np.concatenate([np.flatnonzero(old), np.flatnonzero(~old)])
        return rows.take(np.argsort(place))

    def _keep(self, batch: Halves, at: NDArray[np.intp], alone: NDArray[np.intp]) -> None:
        waiting = len(self._waiting)
        fresh = batch.take(at[alone[alone >= waiting] - waiting])
        kept = Halves.concatenate([self._waiting.take(alone[alone < waiting]), fresh])
        if len(kept):
            young = kept.end_ns >= kept.end_ns.max() - self._keep_ns
            young[: -self._limit] = False
            kept = kept if young.all() else kept.take(young)
        self._waiting = kept
