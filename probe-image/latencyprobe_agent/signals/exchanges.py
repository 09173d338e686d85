"""The signal `exchanges`: records of one half each, as the columns that measuring works on.

Receives the ring's batches (dtype EXCHANGE), returns them with the hot fields side by side.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded, Role

# Cut points of a half in their order, docs/design/measurement.md, "Stages".
SERVER_POINTS = ("ready_first_ns", "ready_last_ns", "read_last_ns", "send_start_ns", "send_end_ns")
CLIENT_POINTS = ("send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_last_ns")
_TIMES = ("send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_first_ns", "read_last_ns")
_SERVER_ROWS, _CLIENT_ROWS = ([_TIMES.index(name) for name in names] for names in (SERVER_POINTS, CLIENT_POINTS))
PLACE = ("request_offset", "response_offset", "request_bytes", "response_bytes")
PLACE_WORDS = len(PLACE) + 1  # and both sequence numbers in one


@dataclass(frozen=True)
class Exchanges:
    """A batch of n exchanges. `stamps`: i64[5, n], rows in the order of the half's own cut points, 0 = not taken.

    `place`: u64[5, n], what both hosts know alike: offsets, byte counts, and the two sequence numbers in one word. Of a
    stream of HTTP/2, whose ends may see a reset before or after an answer: where the request lies, the stream, and
    where the other direction began.
    """

    rec: NDArray[np.void]
    server: NDArray[np.bool_]
    counted: NDArray[np.bool_]
    stamps: NDArray[np.int64]
    place: NDArray[np.uint64]


def columns(batch: NDArray[np.void]) -> Exchanges:
    """Return a batch of EXCHANGE records as columns. The records themselves stay the batch's memory. Raises TypeError
    for records of another kind."""
    if batch.dtype != EXCHANGE:
        raise TypeError(f"expected records of EXCHANGE, got {batch.dtype}")
    server = batch["role"] == Role.SERVER
    words = _words(batch, _TIMES)
    stamps = np.empty((len(SERVER_POINTS), len(batch)), np.int64)
    for row, as_server, as_client in zip(stamps, _SERVER_ROWS, _CLIENT_ROWS, strict=True):
        row[:] = np.where(server, words[as_server], words[as_client])
    return Exchanges(batch, server, batch["excluded"] == Excluded.NONE, stamps, place(batch))


def place(batch: NDArray[np.void]) -> NDArray[np.uint64]:
    """Return `Exchanges.place` (u64[5, n]) of EXCHANGE[n]."""
    found = np.empty((PLACE_WORDS, len(batch)), np.uint64)
    found[:-1] = _words(batch, PLACE)
    found[-1] = batch["response_seq"]
    found[-1] <<= np.uint64(32)
    found[-1] |= batch["request_seq"]
    if (stream := batch["stream_id"]).any():
        of_streams = np.flatnonzero(stream)
        began = batch["response_seq"][of_streams] - batch["response_offset"][of_streams].astype(np.uint32)
        found[1:-1, of_streams] = 0
        found[2, of_streams] = stream[of_streams]
        found[-1, of_streams] = began.astype(np.uint64) << np.uint64(32) | batch["request_seq"][of_streams]
    return found


def _words(batch: NDArray[np.void], names: Sequence[str]) -> NDArray[np.uint64]:
    """Return u64[len(names), n] of fields of 8 bytes that lie side by side: in one pass over the records."""
    assert EXCHANGE.fields
    first = EXCHANGE.fields[names[0]][1] // 8
    words = batch.view(np.uint64).reshape(len(batch), EXCHANGE.itemsize // 8)[:, first : first + len(names)]
    return np.ascontiguousarray(words.T)
