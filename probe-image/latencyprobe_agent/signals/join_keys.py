"""Join keys: by what the records of a signal find the exchange that they explain.

Pure functions over arrays of recent halves (RECENT_HALF) and of keys, one per record. A signal that is about something
else than a connection's bytes or its beginning brings a key of its own; the join (`measure.evidence_join`) knows none.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

# A half that has ended. `at`: order of arrival, from 1; 0: no half. `join_key`: the same in both halves of an exchange.
# `seq`..`end_seq`: the message that this side sent; `fresh`: the first on its connection, seen from the handshake;
# `tid`: the thread that sent the request, or read it; `adjusted_count`: how many exchanges it stands for; `of_stream`:
# it is a call of HTTP/2, between whose bytes are others'.
RECENT_HALF = np.dtype(
    [
        *(("at", "u8"), ("sock_cookie", "u8"), ("join_key", "u8"), ("start_ns", "i8"), ("end_ns", "i8")),
        *(("send_start_ns", "i8"), ("send_end_ns", "i8"), ("duration_ns", "i8"), ("seq", "u4"), ("end_seq", "u4")),
        *(("read_last_ns", "i8"),),
        *(("target_set", "u4"), ("tid", "u4"), ("adjusted_count", "u4"), ("local_port", "u2"), ("peer_port", "u2")),
        *(("role", "u1"), ("excluded", "u1"), ("outcome", "u1"), ("fresh", "?"), ("of_stream", "?")),
    ]
)

_NONE = np.zeros(0, np.intp)

Find = Callable[[NDArray[np.void], NDArray[np.void]], NDArray[np.intp]]
Also = Callable[[NDArray[np.void], NDArray[np.void], NDArray[np.intp]], tuple[NDArray[np.intp], NDArray[np.intp]]]


def _nothing_else(
    _recent: NDArray[np.void], _key: NDArray[np.void], _found: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    return _NONE, _NONE


@dataclass(frozen=True)
class JoinKey:
    """`columns`: dtype of one record's key; `at_ns`, the record's time in ns of the boot clock, is among them.

    `find`: (RECENT_HALF[m], key[n]) → intp[n], the place of the half that each record explains, -1 for none so far. It
    reads columns by name: a key with those of another one can use that one's `find`.
    `also`: (RECENT_HALF[m], key[n], intp[n], what `find` found) → (k places of keys, k places of halves), what else a
    record explains.
    """

    columns: np.dtype[np.void]
    find: Find
    also: Also = _nothing_else

    def of(self, flow: NDArray[np.void], **columns: NDArray[Any]) -> NDArray[np.void]:
        """Return the keys of records with these FLOW_HEADERs, which give each column that is not among `columns`."""
        key = np.zeros(len(flow), self.columns)
        for name in key.dtype.names or ():
            key[name] = columns[name] if name in columns else flow["boot_ns" if name == "at_ns" else name]
        return key


def _by_sent_bytes(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    found = np.empty(len(key), np.intp)
    ranged = key["seq"] != key["end_seq"]
    for rows, find in ((ranged, _with_bytes), (~ranged, _last_begun)):
        found[rows] = find(recent, key.take(np.flatnonzero(rows)))
    return found


def _with_bytes(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    slots, low, high = _of_connections(recent, ~recent["of_stream"] & _sent(recent), key)
    if not len(slots):
        return np.full(len(key), -1)
    end, seq = _unwrapped(recent["end_seq"][slots], high, key["seq"])
    found = _first(low, high, lambda at: end[at] > seq)  # messages of a connection are in order
    there = found < high
    at = np.where(there, found, 0)
    there &= (key["end_seq"] - recent["seq"][slots[at]]).astype(np.int32) > 0
    return np.where(there, slots[at], -1)


def _last_begun(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    slots, low, high = _of_connections(recent, ~recent["of_stream"], key)
    start_ns = recent["start_ns"][slots]
    found = _first(low, high, lambda at: start_ns[at] > key["at_ns"])
    return np.append(-1, slots)[np.where(found > low, found, 0)]


class _Streams:
    """The streams of HTTP/2 among the recent halves, of the connections that these keys are about."""

    def __init__(self, recent: NDArray[np.void], key: NDArray[np.void]) -> None:
        self._key = key
        self._slots, self._low, self._high = _of_connections(recent, recent["of_stream"] & _sent(recent), key)
        self._send_start_ns = recent["send_start_ns"][self._slots]
        if len(self._slots):
            self._end, self._seq = _unwrapped(recent["end_seq"][self._slots], self._high, key["seq"])

    @property
    def there(self) -> NDArray[np.bool_]:
        """bool[n]: whether there are any of each key's connection."""
        return self._low < self._high

    def behind(self, i: int) -> NDArray[np.intp]:
        """Places of those of which some bytes lie at the `seq` of key `i` or behind, and had been sent before that
        happened."""
        own = slice(self._low[i], self._high[i])
        waited = self._send_start_ns[own] < self._key["at_ns"][i]
        if waited.any():
            waited &= self._end[own] > self._seq[i]
        behind: NDArray[np.intp] = self._slots[own][waited]
        return behind


def _sent(recent: NDArray[np.void]) -> NDArray[np.bool_]:
    """Return which halves have sent something: an exchange that was never answered lies nowhere among the others."""
    sent: NDArray[np.bool_] = recent["seq"] != recent["end_seq"]
    return sent


def _unwrapped(
    end: NDArray[np.uint32], high: NDArray[np.intp], seq: NDArray[np.uint32]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return where messages `end`, and where `seq` of each key is, in numbers that do not come again after 4 GiB: an
    end lies within 2 GiB of the one before it, a key of its connection's newest end. Those of one connection can be
    compared. In the order of `_of_connections`, which tells `high` of each key."""
    unwrapped = np.cumsum(np.diff(end, prepend=end[:1]).view(np.int32), dtype=np.int64)
    newest = np.maximum(high - 1, 0)
    return unwrapped, unwrapped[newest] + (seq - end[newest]).view(np.int32)


def streams_behind(
    recent: NDArray[np.void], key: NDArray[np.void], found: NDArray[np.intp]
) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Find the other streams that waited for these bytes, among those that have ended: TCP delivers in order, so all of
    the connection that lay behind them and was sent before they were sent again. Takes and returns what
    `JoinKey.also` says."""
    hit = np.flatnonzero((found >= 0) & (key["seq"] != key["end_seq"]))
    hit = hit[recent["of_stream"][found[hit]]]
    streams = _Streams(recent, key.take(hit))
    others = [behind[behind != found[at]] for i, at in enumerate(hit.tolist()) for behind in [streams.behind(i)]]
    return np.repeat(hit, [len(one) for one in others]), np.concatenate([_NONE, *others])


def first_of_streams(recent: NDArray[np.void], key: NDArray[np.void], found: NDArray[np.intp]) -> None:
    """Put the oldest stream behind these bytes where nothing was found: streams are in no order."""
    streams = _Streams(recent, key)
    ranged = (key["seq"] != key["end_seq"]) & (found < 0)
    for i in np.flatnonzero(ranged & streams.there).tolist():
        behind = streams.behind(i)
        if len(behind):
            found[i] = behind[recent["at"][behind].argmin()]


def by_time_of_service(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    """Find the half of a connection that was served while something lasted, from `start_ns` to `at_ns`: the oldest one
    whose answer began after that had. Keys have a `sock_cookie` too. Returns intp[n], places among `recent`, -1 for
    none."""
    slots, low, high = _of_connections(recent, recent["send_start_ns"] > 0, key)
    if not len(slots):
        return np.full(len(key), -1)
    half = recent.take(slots)
    found = _first(low, high, lambda at: half["send_start_ns"][at] > key["start_ns"])
    there = found < high
    at = np.where(there, found, 0)
    there &= half["start_ns"][at] < key["at_ns"]
    return np.where(there, slots[at], -1)


def _by_beginning(recent: NDArray[np.void], key: NDArray[np.void]) -> NDArray[np.intp]:
    fresh = recent["fresh"] & (recent["at"] > 0)
    slots, low, high = _of_sockets(recent, fresh, key["sock_cookie"])
    end_ns = recent["end_ns"][slots]
    first = _first(low, high, lambda at: end_ns[at] >= key["at_ns"])
    found = np.append(slots, -1)[np.where(first < high, first, -1)]
    for i in np.flatnonzero(key["sock_cookie"] == 0).tolist():
        # a SYN-ACK is sent before its socket exists
        ports = (recent["local_port"] == key["local_port"][i]) & (recent["peer_port"] == key["peer_port"][i])
        same = np.flatnonzero(fresh & ports & (recent["seq"] == key["first_seq"][i]))
        found[i] = same[recent["at"][same].argmax()] if len(same) else -1
    return found


def _of_sockets(
    recent: NDArray[np.void], among: NDArray[np.bool_], cookies: NDArray[np.uint64]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return places of the halves of these sockets, one socket after the other, each in order of their beginning, the
    first of a connection first; and for each cookie where among those its own ones begin and end."""
    of_them = np.flatnonzero(among & np.isin(recent["sock_cookie"], cookies)) if among.any() else _NONE
    fresh, start_ns, cookie = (recent[name][of_them] for name in ("fresh", "start_ns", "sock_cookie"))
    order = np.lexsort((~fresh, start_ns, cookie))
    slots, cookie = of_them[order], cookie[order]
    return slots, np.searchsorted(cookie, cookies, side="left"), np.searchsorted(cookie, cookies, side="right")


def _of_connections(
    recent: NDArray[np.void], among: NDArray[np.bool_], key: NDArray[np.void]
) -> tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.intp]]:
    """Return places of the halves of these keys' sockets that are `among` those, one connection after the other, each
    in order of arrival; and for each key where those of its connection begin and end.

    A socket that connects again keeps its cookie: from a `fresh` half on, halves are of another connection. A key is
    of the last one that had begun."""
    slots, low, high = _of_sockets(recent, recent["at"] > 0, key["sock_cookie"])
    fresh, start_ns, cookie = (recent[name][slots] for name in ("fresh", "start_ns", "sock_cookie"))
    begun = _first(low, high, lambda at: start_ns[at] > key["at_ns"])
    connection = 1 + np.cumsum(fresh | (np.diff(cookie, prepend=cookie[:1]) != 0))
    of_key = np.append(0, connection)[np.where(begun > low, begun, 0)]  # 0: of none
    order = np.lexsort((recent["at"][slots], connection))
    order = order[among[slots[order]]]
    slots, connection = slots[order], connection[order]
    return slots, np.searchsorted(connection, of_key, side="left"), np.searchsorted(connection, of_key, side="right")


def _first(
    low: NDArray[np.intp], high: NDArray[np.intp], reached: Callable[[NDArray[np.intp]], NDArray[np.bool_]]
) -> NDArray[np.intp]:
    """Binary search in each range [low, high): the first place that is `reached`, `high` if none is."""
    low, high = low.copy(), high.copy()
    while (open_ := low < high).any():
        middle = (low + high) // 2
        yes = reached(np.where(open_, middle, 0))
        high = np.where(open_ & yes, middle, high)
        low = np.where(open_ & ~yes, middle + 1, low)
    return low


# By the bytes `seq`..`end_seq` that the local side sent on a connection: the oldest exchange whose message has some of
# them. Without any bytes: the last one that had begun. Never a stream, between whose bytes are others'.
SENT_BYTES = JoinKey(
    np.dtype([("at_ns", "i8"), ("sock_cookie", "u8"), ("seq", "u4"), ("end_seq", "u4")]),
    _by_sent_bytes,
)
# By the beginning of a connection: its first exchange, in which the local side's message begins at `first_seq`. Where
# the cookie is 0, the ports and that number are those of the connection.
BEGINNING = JoinKey(
    np.dtype([("at_ns", "i8"), ("sock_cookie", "u8"), ("first_seq", "u4"), ("local_port", "u2"), ("peer_port", "u2")]),
    _by_beginning,
)
