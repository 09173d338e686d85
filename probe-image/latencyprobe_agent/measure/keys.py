"""Ids of an exchange that both hosts compute alike without talking, from its place on the connection.

Inside the process an exchange is known by its join key, a plain mix of its place. What leaves the process is a keyed
hash, the trace id: SipHash-2-4 with 128 bits of output (Aumasson, Bernstein: "SipHash: a fast short-input PRF", 2012,
and the authors' reference code for the long output), over columns: every step is one numpy operation on all exchanges.
Without the key nobody can read sequence numbers from an id, or forge one.
"""

import hashlib
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

# Odd, half of the bits set: the finaliser of MurmurHash3 (Appleby) and the golden ratio. The kernel samples records by
# another mix of the same fields (bpf/exchange_sampling.bpf.h), and what it leaves must not be what spans are made of.
_MIX = (0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53, 0x9E3779B97F4A7C15)

_CHUNK = 4096  # rows at a time: four state words and one of scratch, 160 KiB, stay in the second-level cache
_INITIAL = (0x736F6D6570736575, 0x646F72616E646F6D, 0x6C7967656E657261, 0x7465646279746573)


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
    ids = np.empty((place.shape[1], 2), np.uint64)
    key = hashlib.blake2b(pair_key, digest_size=16, person=b"trace id").digest()
    for start in range(0, place.shape[1], _CHUNK):
        chunk = slice(start, start + _CHUNK)
        ids[chunk, 0], ids[chunk, 1] = siphash128(key, place[:, chunk], 8 * len(place))
    ids[:, 1] |= ids[:, 1] == 0
    return ids


def span_ids(half_of_trace_id: U64) -> U64:
    """Return a span id per exchange from one half of its trace id: the high half for client spans, low for server.

    The trace id is public beside it, so this mixing needs no key: the finaliser of SplitMix64. Never zero.
    """
    x = half_of_trace_id + np.uint64(0x9E3779B97F4A7C15)
    x = (x ^ (x >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    x = (x ^ (x >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    x ^= x >> np.uint64(31)
    x |= x == 0
    return x


def siphash128(key: bytes, words: Sequence[U64] | U64, length: int) -> tuple[U64, U64]:
    """Return both output words of SipHash-2-4-128 for n messages at once.

    `key`: 16 bytes. `words`: the message's whole 8-byte little-endian words, one array of n each; `length` in bytes
    must be a multiple of 8, as nothing else is hashed here.
    """
    k0, k1 = np.frombuffer(key, "<u8")
    n = len(words[0]) if len(words) else 1
    state = [np.full(n, np.uint64(i) ^ k) for i, k in zip(_INITIAL, (k0, k1, k0, k1), strict=True)]
    v0, v1, v2, _ = state
    scratch = np.empty(n, np.uint64)
    v1 ^= np.uint64(0xEE)
    for word in [*words, np.uint64((length & 0xFF) << 56)]:
        state[3] ^= word
        _rounds(2, state, scratch)
        v0 ^= word
    v2 ^= np.uint64(0xEE)
    _rounds(4, state, scratch)
    first = state[0] ^ state[1] ^ state[2] ^ state[3]
    v1 ^= np.uint64(0xDD)
    _rounds(4, state, scratch)
    return first, state[0] ^ state[1] ^ state[2] ^ state[3]


def _rounds(count: int, state: list[U64], scratch: U64) -> None:
    v0, v1, v2, v3 = state
    for _ in range(count):
        v0 += v1
        v2 += v3
        _rotate(v1, 13, scratch)
        _rotate(v3, 16, scratch)
        v1 ^= v0
        v3 ^= v2
        _rotate(v0, 32, scratch)
        v2 += v1
        v0 += v3
        _rotate(v1, 17, scratch)
        _rotate(v3, 21, scratch)
        v1 ^= v2
        v3 ^= v0
        _rotate(v2, 32, scratch)


def _rotate(v: U64, bits: int, scratch: U64) -> None:
    np.left_shift(v, np.uint64(bits), out=scratch)
    np.right_shift(v, np.uint64(64 - bits), out=v)
    np.bitwise_or(v, scratch, out=v)
