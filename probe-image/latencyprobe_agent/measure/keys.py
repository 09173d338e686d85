"""Ids of an exchange that both hosts compute alike without talking, from its place on the connection.

Inside the process an exchange is known by its join key, a plain mix of its place. What leaves the process, a few of
them, has a trace id: BLAKE2b of the place with 128 bits of output, keyed (RFC 7693). Without the key nobody can read
sequence numbers from an id, or forge one.
"""

import hashlib

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

# Odd, half of the bits set: the finaliser of MurmurHash3 (Appleby) and the golden ratio. The kernel samples records by
# another mix of the same fields (bpf/exchange_sampling.bpf.h), and what it leaves must not be what spans are made of.
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x9E3779B97F4A7C15)

_GAMMA = np.uint64(0x9E3779B97F4A7C15)  # the step of SplitMix64
_ID_BYTES = 16


def join_keys(place: U64) -> U64:
    """Return u64[n] from `Exchanges.place` (u64[5, n]): equal for both halves of an exchange, never zero.

    Every bit of it is as good as random over honest exchanges; it hides nothing.
    """
    mixed = np.zeros(place.shape[1], np.uint64)
    scratch = np.empty_like(mixed)
    for word in place:
        mixed ^= word
        mixed *= np.uint64(_MIX[0])
        np.right_shift(mixed, np.uint64(32), out=scratch)
        mixed ^= scratch
    mixed *= np.uint64(_MIX[1])
    np.right_shift(mixed, np.uint64(29), out=scratch)
    mixed ^= scratch
    mixed *= np.uint64(_MIX[2])
    np.right_shift(mixed, np.uint64(32), out=scratch)
    mixed ^= scratch
    mixed |= mixed == 0
    return mixed


def trace_ids(place: U64, pair_key: bytes) -> U64:
    """Return u64[n, 2], high and low half of the trace id, from `Exchanges.place` (u64[5, n]). Never zero.

    `pair_key` may have any length; agents that share it compute the same id from either half of an exchange.
    """
    key = hashlib.blake2b(pair_key, digest_size=32, person=b"trace id").digest()
    keyed = hashlib.blake2b(digest_size=_ID_BYTES, key=key)
    messages = np.ascontiguousarray(place.T, "<u8").view(f"V{8 * len(place)}").ravel().tolist()
    ids = np.frombuffer(b"".join([_digest(keyed, message) for message in messages]), ">u8").reshape(-1, 2)
    low = ids[:, 1].astype(np.uint64)
    return np.stack([ids[:, 0].astype(np.uint64), low | (low == 0)], axis=1)


def span_ids(half_of_trace_id: U64) -> U64:
    """Return a span id per exchange from one half of its trace id: the high half for client spans, low for server.

    The trace id is public beside it, so this mixing needs no key: it is SplitMix64's first number with this seed. Never
    zero.
    """
    x = half_of_trace_id + _GAMMA
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    x |= x == 0
    return x


def child_span_ids(half_of_trace_id: U64, count: int) -> U64:
    """Return u64[count, n], the ids of that many child spans of each span: the numbers after its own, which differ."""
    return span_ids(half_of_trace_id + _GAMMA * np.arange(1, count + 1, dtype=np.uint64)[:, None])


def _digest(keyed: "hashlib.blake2b", message: bytes) -> bytes:
    mac = keyed.copy()
    mac.update(message)
    return mac.digest()
