"""Join the two halves of an exchange when this agent holds both: client and server run on the same node.

The halves meet by their join key, whatever batches they come in. Receives halves batch by batch, returns pairs.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import NO_HALVES, WHOLE, Halves, halves
from latencyprobe_agent.measure.stages import NETWORK_AT, pair_stages
from latencyprobe_agent.vocabulary.records import EXCHANGE, Role


@dataclass(frozen=True)
class Pairs:
    """m joined pairs of halves of the batch just joined, and of `early` ones that came before it.

    `client_place`, `server_place`: row of each half, of the `early` ones first and then of the batch. `stages`:
    i64[m, p] ns, a column for each of `stages.PAIR`, summing to the client's duration.
    """

    early: Halves
    batch: Halves
    client_place: NDArray[np.intp]
    server_place: NDArray[np.intp]
    stages: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.client_place)

    def of_clients(self, column: Callable[[Halves], NDArray[Any]]) -> NDArray[Any]:
        """Return a column of the client halves, a row for each pair: less work than `client`, which has all."""
        return self._of(column, self.client_place)

    def of_servers(self, column: Callable[[Halves], NDArray[Any]]) -> NDArray[Any]:
        """Return a column of the server halves, a row for each pair."""
        return self._of(column, self.server_place)

    def clients(self, rows: NDArray[np.intp]) -> Halves:
        """Return the client halves of some pairs."""
        return self._halves(self.client_place[rows])

    def servers(self, rows: NDArray[np.intp]) -> Halves:
        """Return the server halves of some pairs."""
        return self._halves(self.server_place[rows])

    @cached_property
    def client(self) -> Halves:
        """The client halves."""
        return self._halves(self.client_place)

    @cached_property
    def server(self) -> Halves:
        """The server halves."""
        return self._halves(self.server_place)

    @property
    def client_at(self) -> NDArray[np.intp]:
        """intp[m]: row of the client half in the batch, -1 if it came before."""
        return np.maximum(self.client_place - len(self.early), -1)

    @property
    def server_at(self) -> NDArray[np.intp]:
        """intp[m]: row of the server half in the batch, -1 if it came before."""
        return np.maximum(self.server_place - len(self.early), -1)

    @cached_property
    def dominant(self) -> NDArray[np.uint8]:
        """u8[m]: the index of the longest stage."""
        longest: NDArray[np.uint8] = self.stages.argmax(axis=1).astype(np.uint8)
        return longest

    @cached_property
    def network_excess(self) -> NDArray[np.float64]:
        """f8[m] ns: `network` less the round trip that TCP measured. Negative by that sample's error at most, NaN
        without a sample."""
        of_client, of_server = self.of_clients(_srtt_us), self.of_servers(_srtt_us)
        rtt_us = np.where(of_client > 0, of_client, of_server)
        return self.stages[:, NETWORK_AT].astype(np.float64) - np.where(rtt_us > 0, rtt_us * 1e3, np.nan)

    def _of(self, column: Callable[[Halves], NDArray[Any]], place: NDArray[np.intp]) -> NDArray[Any]:
        values = column(self.batch)
        return (np.concatenate([column(self.early), values]) if len(self.early) else values).take(place)

    def _halves(self, place: NDArray[np.intp]) -> Halves:
        some = self.batch.take(np.maximum(place - len(self.early), 0))
        if len(self.early):
            rows = np.flatnonzero(place < len(self.early))
            some.put(rows, self.early.take(place[rows]))
        return some

    @property
    def events(self) -> "Pairs":
        """The pairs of which both halves are SLI events: all but those of streaming calls.

        Not cached: pairs that refer to themselves would keep their turn's memory until the garbage collector comes.
        """
        counted = self.of_clients(_counted) & self.of_servers(_counted)
        if counted.all():
            return self
        return replace(
            self,
            client_place=self.client_place[counted],
            server_place=self.server_place[counted],
            stages=self.stages[counted],
        )

    @property
    def adjusted_count(self) -> NDArray[np.int64]:
        """i64[m]: how many exchanges each pair stands for: the half at the higher level came, so the other did too."""
        count: NDArray[np.int64] = np.maximum(self.of_clients(_adjusted_count), self.of_servers(_adjusted_count))
        return count


class LocalJoin:
    """Keeps the last `limit` halves whose other half has not come.

    Halves of one exchange leave the kernel within ms of each other, or at the same idle timeout; a half whose other end
    is on another node stays until newer ones take its place, and `pull()` finds it for that node (remote join). The
    limit bounds memory (242 bytes each) and time (one look at each waiting key per batch).
    """

    def __init__(self, limit: int = 16_384) -> None:
        self._keys = np.zeros(limit, np.uint64)  # 0 = free
        self._waiting = np.zeros(limit, WHOLE)
        self._sampled = np.zeros(limit, np.uint8)
        self._trace_ids = np.zeros((limit, 2), np.uint64)  # of server halves, once another node asks; 0 = not there
        self._unhashed = np.zeros(limit, np.bool_)
        self._first_bits = np.zeros(1 << 16, np.bool_)  # of keys, while they are looked for
        self._slots = np.arange(limit)  # the order in which they are taken: what waits in them came in it

    def __len__(self) -> int:
        return int(np.count_nonzero(self._keys))

    def join(self, batch: Halves) -> Pairs:
        """Join a batch with itself and with what waits. A key seen twice on one side is ambiguous: no pair."""
        at = np.flatnonzero(batch.shown & (batch.rec["role"] != Role.UNKNOWN))
        keys = batch.join_key if len(at) == len(batch) else batch.join_key[at]
        slots = self._likely(keys)
        groups = _grouped(np.concatenate([self._keys[slots], keys]))
        met = groups.several[groups.several < len(slots)]  # each meets its other half now, or another of its own side
        early, places = self._at(slots[met]), np.full(len(slots) + len(at), -1)
        places[met] = np.arange(len(met))
        places[len(slots) :] = at + len(met)
        self._keys[slots[met]] = 0
        self._keep(batch, at[groups.single[groups.single >= len(slots)] - len(slots)])
        return _pairs(early, batch, places[groups.one], places[groups.other])

    def pull(self, join_key: NDArray[np.uint64]) -> Halves:
        """Take the waiting halves with these keys out: they have met their other half elsewhere."""
        slots = self._likely(join_key)
        slots = slots[np.isin(self._keys[slots], join_key)]
        self._keys[slots] = 0
        return self._at(slots)

    def pull_servers(self, trace_id: NDArray[np.uint64], pair_key: bytes) -> tuple[Halves, NDArray[np.uint64]]:
        """Take the waiting server halves with these trace ids (u64[m, 2]) out. Return them and their own ids."""
        new = np.flatnonzero(self._unhashed & (self._keys != 0))
        self._trace_ids[new] = self._at(new).trace_ids(pair_key)
        self._unhashed[new] = False
        high, low = self._trace_ids.T
        slots = np.flatnonzero((self._keys != 0) & (low != 0) & np.isin(low, trace_id[:, 1]))
        slots = slots[np.isin(high[slots], trace_id[:, 0])]
        self._keys[slots] = 0
        return self._at(slots), self._trace_ids[slots]

    def _likely(self, join_key: NDArray[np.uint64]) -> NDArray[np.intp]:
        """Return the slots of the waiting halves that have one of these keys, and of some others."""
        bits = (join_key >> np.uint64(48)).astype(np.intp)
        self._first_bits[bits] = True  # sorts out nearly all of them before anything is compared
        likely = self._first_bits.take((self._keys >> np.uint64(48)).astype(np.intp))
        self._first_bits[bits] = False
        return np.flatnonzero(likely & (self._keys != 0))

    def _at(self, slots: NDArray[np.intp]) -> Halves:
        """Return the halves that wait in these slots."""
        if not len(slots):
            return NO_HALVES
        return replace(halves(self._waiting.take(slots).view(EXCHANGE)), sampled=self._sampled[slots])

    def _keep(self, batch: Halves, lone: NDArray[np.intp]) -> None:
        """Put the rows `lone` where nothing waits, and then in the place of the oldest ones."""
        newest = np.sort(lone)[-len(self._keys) :]
        slots = self._room(len(newest))
        self._waiting[slots] = batch.rec.view(WHOLE).take(newest)
        self._keys[slots] = batch.join_key[newest]
        self._sampled[slots] = batch.sampled[newest]
        self._trace_ids[slots] = 0
        self._unhashed[slots] = batch.rec["role"][newest] == Role.SERVER

    def _room(self, many: int) -> NDArray[np.intp]:
        """Return so many slots for new halves: free ones first."""
        if self._keys[self._slots[:many]].any() and not self._keys.all():
            waits = self._keys.take(self._slots) != 0
            self._slots = np.concatenate([self._slots.compress(~waits), self._slots.compress(waits)])
        taken = self._slots[:many]
        self._slots = np.concatenate([self._slots[many:], taken])
        return taken


class _Groups(NamedTuple):
    """Places of keys: `single` have one that no other has, `several` one that others have too; `one` and `other` are
    the two of each key that two have."""

    single: NDArray[np.intp]
    several: NDArray[np.intp]
    one: NDArray[np.intp]
    other: NDArray[np.intp]


def _grouped(keys: NDArray[np.uint64]) -> _Groups:
    """Find equal keys, in one sort of numbers that carry their own places in the lowest bits."""
    if not len(keys):
        return _Groups(*(np.zeros(0, np.intp),) * 4)
    place_bits = np.uint64(len(keys).bit_length())
    places = np.arange(len(keys), dtype=np.uint64)
    packed = np.sort(keys >> place_bits << place_bits | places)
    order = (packed & ((np.uint64(1) << place_bits) - np.uint64(1))).astype(np.intp)
    same_bits = packed[1:] >> place_bits == packed[:-1] >> place_bits
    in_order = keys[order]
    if (same_bits & (in_order[1:] != in_order[:-1])).any():  # two keys that differ in the lowest bits only
        order = np.argsort(keys, kind="stable")
        in_order = keys[order]
    same = np.concatenate([[False], in_order[1:] == in_order[:-1], [False]])
    before, after = same[:-1], same[1:]
    two = np.flatnonzero((~before & after)[:-1] & (before & ~after)[1:])
    return _Groups(order[~before & ~after], order[before | after], order[two], order[two + 1])


def _pairs(early: Halves, batch: Halves, one: NDArray[np.intp], other: NDArray[np.intp]) -> Pairs:
    """Return the pairs of halves in these places: first those of `early`, then those of `batch`."""
    server = batch.rec["role"] == Role.SERVER
    if len(early):
        server = np.concatenate([early.rec["role"] == Role.SERVER, server])
    first, second = server[one], server[other]
    if not (first != second).all():
        good = first != second
        one, other, first = one[good], other[good], first[good]
    client, server_half = np.where(first, other, one), np.where(first, one, other)
    stages = batch.stages.T
    if len(early):
        stages = np.concatenate([early.stages.T, stages], axis=1)
    both = (stages.take(place, axis=1).T for place in (client, server_half))
    return Pairs(early, batch, client, server_half, pair_stages(*both))


def _counted(some: Halves) -> NDArray[np.bool_]:
    return some.counted


def _adjusted_count(some: Halves) -> NDArray[np.int64]:
    return some.adjusted_count


def _srtt_us(some: Halves) -> NDArray[np.uint32]:
    column: NDArray[np.uint32] = some.rec["srtt_us"]
    return column


NO_PAIRS = LocalJoin(1).join(NO_HALVES)
