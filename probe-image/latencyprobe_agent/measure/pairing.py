"""Join the two halves of an exchange when this agent holds both: client and server run on the same node.

The halves meet by their join key, whatever batches they come in. Receives halves batch by batch, returns pairs.
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


class LocalJoin:
    """Keeps the last `limit` halves whose other half has not come.

    Halves of one exchange leave the kernel within ms of each other, or at the same idle timeout; a half whose other end
    is on another node stays until newer ones take its place, and `pull()` finds it for that node (remote join). The
    limit bounds memory (202 bytes each) and time (one comparison of each waiting key per batch).
    """

    def __init__(self, limit: int = 16_384) -> None:
        self._keys = np.zeros(limit, np.uint64)  # 0 = free
        self._waiting = np.zeros(limit, KEPT)
        self._trace_ids = np.zeros((limit, 2), np.uint64)  # of server halves, once another node asks; 0 = not there
        self._unhashed = np.zeros(limit, np.bool_)
        self._next = 0

    def __len__(self) -> int:
        return int(np.count_nonzero(self._keys))

    def join(self, batch: Halves) -> Pairs:
        """Join a batch with itself and with what waits. A key seen twice on one side is ambiguous: no pair."""
        at = np.flatnonzero(batch.counted & (batch.rec["role"] != Role.UNKNOWN))
        slots = self._among(batch.join_key[at])
        halves = Halves.concatenate([unpack(self._waiting[slots]), batch.take(at)])
        self._keys[slots] = 0  # each meets its other half now, or another of its own side
        row = np.concatenate([np.full(len(slots), -1), at])

        server = halves.rec["role"] == Role.SERVER
        order = np.argsort(halves.join_key, kind="stable")
        sorted_keys = halves.join_key[order]
        first = np.flatnonzero(np.diff(sorted_keys, prepend=~sorted_keys[:1]))
        size = np.diff(first, append=len(order))
        one, other = order[first[size == 2]], order[first[size == 2] + 1]
        good = server[one] != server[other]
        one, other = one[good], other[good]
        client, server_half = np.where(server[one], other, one), np.where(server[one], one, other)
        self._keep(halves, np.sort(order[first[size == 1]]))
        return _pairs(halves, row, client, server_half)

    def pull(self, join_key: NDArray[np.uint64]) -> Halves:
        """Take the waiting halves with these keys out: they have met their other half elsewhere."""
        slots = self._among(join_key)
        self._keys[slots] = 0
        return unpack(self._waiting[slots])

    def pull_servers(self, trace_id: NDArray[np.uint64], pair_key: bytes) -> tuple[Halves, NDArray[np.uint64]]:
        """Take the waiting server halves with these trace ids (u64[m, 2]) out. Return them and their own ids."""
        new = np.flatnonzero(self._unhashed & (self._keys != 0))
        self._trace_ids[new] = unpack(self._waiting[new]).trace_ids(pair_key)
        self._unhashed[new] = False
        high, low = self._trace_ids.T
        slots = np.flatnonzero((self._keys != 0) & (low != 0) & np.isin(low, trace_id[:, 1]))
        slots = slots[np.isin(high[slots], trace_id[:, 0])]
        self._keys[slots] = 0
        return unpack(self._waiting[slots]), self._trace_ids[slots]

    def _among(self, join_key: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the slots of the waiting halves that have one of these keys."""
        first_bits = np.zeros(1 << 16, np.bool_)  # sorts out nearly all of them before anything is compared
        first_bits[join_key >> np.uint64(48)] = True
        likely = np.flatnonzero(first_bits[self._keys >> np.uint64(48)] & (self._keys != 0))
        return likely[np.isin(self._keys[likely], join_key)]

    def _keep(self, halves: Halves, lone: NDArray[np.intp]) -> None:
        """Put the rows `lone` in the place of the oldest ones."""
        limit = len(self._keys)
        newest = halves.take(lone[-limit:])
        slots = (self._next + np.arange(len(newest))) % limit
        self._waiting.view(_WHOLE)[slots] = pack(newest).view(_WHOLE)
        self._keys[slots] = newest.join_key
        self._trace_ids[slots] = 0
        self._unhashed[slots] = newest.rec["role"] == Role.SERVER
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
