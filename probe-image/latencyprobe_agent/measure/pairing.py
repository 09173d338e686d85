"""Join the two halves of an exchange when this agent holds both: client and server run on the same node.

The halves meet by their 128-bit trace id, whatever batches they come in. Receives halves batch by batch, returns pairs.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.kept import KEPT, pack, unpack
from latencyprobe_agent.measure.stages import NETWORK_AT, pair_stages
from latencyprobe_agent.vocabulary.records import Role

_WHOLE = f"V{KEPT.itemsize}"  # so that rows are copied whole, not field by field


@dataclass(frozen=True)
class Pairs:
    """m joined pairs. `client_at`, `server_at`: row of the half in the batch just joined, -1 if it came before.

    `stages`: i64[m, p] ns, a column for each of `stages.PAIR`, summing to the client's duration; `dominant`: index of
    the largest. `network_excess`: f8[m] ns, `network` less the round trip that TCP measured: may be negative by that
    sample's error, NaN without a sample.
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

    @property
    def adjusted_count(self) -> NDArray[np.int64]:
        """i64[m]: how many exchanges each pair stands for: the half at the higher level came, so the other did too."""
        return np.maximum(self.client.adjusted_count, self.server.adjusted_count)


class LocalJoin:
    """Keeps the last `limit` halves whose other half has not come.

    Halves of one exchange leave the kernel within ms of each other, or at the same idle timeout; a half whose other end
    is on another node stays until newer ones take its place, and `pull()` finds it for that node (remote join). The
    limit bounds memory (165 bytes each) and time (one comparison of each waiting id per batch).
    """

    def __init__(self, limit: int = 16_384) -> None:
        self._high = np.zeros(limit, np.uint64)  # of the trace ids, 0 = free
        self._waiting = np.zeros(limit, KEPT)
        self._next = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._high))

    def join(self, batch: Halves) -> Pairs:
        """Join a batch with itself and with what waits. A trace id seen twice on one side is ambiguous: no pair."""
        at = np.flatnonzero(batch.counted & (batch.rec["role"] != Role.UNKNOWN))
        slots = self._with_ids_of(batch.trace_id[at, 0])
        halves = Halves.concatenate([unpack(self._waiting[slots]), batch.take(at)])
        self._high[slots] = 0  # each meets its other half now, or another of its own side
        row = np.concatenate([np.full(len(slots), -1), at])

        high, low = halves.trace_id.T
        server = halves.rec["role"] == Role.SERVER
        order = np.argsort(high, kind="stable")
        first = np.flatnonzero(np.diff(high[order], prepend=~high[order[:1]]))
        size = np.diff(first, append=len(order))
        one, other = order[first[size == 2]], order[first[size == 2] + 1]
        good = (server[one] != server[other]) & (low[one] == low[other])
        one, other = one[good], other[good]
        client, server_half = np.where(server[one], other, one), np.where(server[one], one, other)
        self._keep(halves, np.sort(order[first[size == 1]]))
        return _pairs(halves, row, client, server_half)

    def pull(self, trace_id: NDArray[np.uint64]) -> Halves:
        """Take the waiting halves with these ids (u64[m, 2]) out: they have met their other half elsewhere."""
        slots = self._with_ids_of(trace_id[:, 0])
        slots = slots[np.isin(self._waiting["trace_id"][slots, 1], trace_id[:, 1])]
        self._high[slots] = 0
        return unpack(self._waiting[slots])

    def _with_ids_of(self, high: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Slots of the waiting halves that share the first half of their id with one of the batch."""
        first_bits = np.zeros(1 << 16, np.bool_)  # sorts out nearly all of them before anything is compared
        first_bits[high >> np.uint64(48)] = True
        likely = np.flatnonzero(first_bits[self._high >> np.uint64(48)] & (self._high != 0))
        return likely[np.isin(self._high[likely], high)]

    def _keep(self, halves: Halves, lone: NDArray[np.intp]) -> None:
        """Put the rows `lone` in the place of the oldest ones."""
        limit = len(self._high)
        newest = halves.take(lone[-limit:])
        slots = (self._next + np.arange(len(newest))) % limit
        self._waiting.view(_WHOLE)[slots] = pack(newest).view(_WHOLE)
        self._high[slots] = newest.trace_id[:, 0]
        self._next = (self._next + len(newest)) % limit


def _pairs(halves: Halves, row: NDArray[np.intp], client_at: NDArray[np.intp], server_at: NDArray[np.intp]) -> Pairs:
    client, server = halves.take(client_at), halves.take(server_at)
    stages = pair_stages(client.stages, server.stages)
    rtt_us = np.where(client.rec["srtt_us"] > 0, client.rec["srtt_us"], server.rec["srtt_us"])
    return Pairs(
        client=client,
        server=server,
        client_at=row[client_at],
        server_at=row[server_at],
        stages=stages,
        dominant=stages.argmax(axis=1).astype(np.uint8),
        network_excess=stages[:, NETWORK_AT].astype(np.float64) - np.where(rtt_us > 0, rtt_us * 1e3, np.nan),
    )
