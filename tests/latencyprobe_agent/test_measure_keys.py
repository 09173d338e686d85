"""SipHash against the authors' vectors, and ids that both hosts must compute alike."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.keys import join_keys, siphash128, span_ids, trace_ids

KEY = bytes(range(16))
MASK = 2**64 - 1
U64 = st.integers(0, MASK)
# Output for the key 00..0f and messages 00 01 02 ... of so many bytes, by another implementation:
# `openssl mac -macopt hexkey:000102...0f -macopt size:16 SIPHASH`.
VECTORS = {
    0: "a3817f04ba25a8e66df67214c7550293",
    8: "3b62a9ba6258f5610f83e264f31497b4",
    16: "6ee2a4ca67b054bbfd3315bf85230577",
    40: "df6a301e95c95dad97ae0cc8c6913bd8",
}


def scalar_siphash(key: bytes, message: bytes, *, wide: bool) -> int:
    """SipHash-2-4 as the paper writes it, byte by byte; `wide`: the authors' 128-bit variant."""

    def rotate(x: int, bits: int) -> int:
        return (x << bits | x >> (64 - bits)) & MASK

    def rounds(count: int) -> None:
        nonlocal v0, v1, v2, v3
        for _ in range(count):
            v0, v2 = v0 + v1 & MASK, v2 + v3 & MASK
            v1, v3 = rotate(v1, 13) ^ v0, rotate(v3, 16) ^ v2
            v0 = rotate(v0, 32)
            v2, v0 = v2 + v1 & MASK, v0 + v3 & MASK
            v1, v3 = rotate(v1, 17) ^ v2, rotate(v3, 21) ^ v0
            v2 = rotate(v2, 32)

    k0, k1 = int.from_bytes(key[:8], "little"), int.from_bytes(key[8:], "little")
    v0, v1, v2, v3 = (k ^ int.from_bytes(c, "big") for k, c in zip(
        (k0, k1, k0, k1), (b"somepseu", b"dorandom", b"lygenera", b"tedbytes"), strict=True
    ))  # fmt: skip
    v1 ^= 0xEE if wide else 0
    padded = message + b"\0" * (7 - len(message) % 8) + bytes([len(message) & 0xFF])
    for start in range(0, len(padded), 8):
        word = int.from_bytes(padded[start : start + 8], "little")
        v3 ^= word
        rounds(2)
        v0 ^= word
    v2 ^= 0xEE if wide else 0xFF
    rounds(4)
    first = v0 ^ v1 ^ v2 ^ v3
    if not wide:
        return first
    v1 ^= 0xDD
    rounds(4)
    return first | (v0 ^ v1 ^ v2 ^ v3) << 64


def vectorised(key: bytes, messages: list[bytes]) -> list[int]:
    words = np.array([np.frombuffer(m, "<u8") for m in messages], np.uint64).T
    low, high = siphash128(key, words, len(messages[0]))
    return [int(a) | int(b) << 64 for a, b in zip(low, high, strict=True)]


def test_the_scalar_reference_yields_the_example_of_the_paper():
    # Appendix A: key 00..0f, message 00..0e
    assert 0xA129CA6149BE45E5 == scalar_siphash(KEY, bytes(range(15)), wide=False)


@pytest.mark.parametrize(("length", "expected"), VECTORS.items())
def test_the_published_vectors_hold(length, expected):
    message = bytes(range(length))

    assert expected == vectorised(KEY, [message])[0].to_bytes(16, "little").hex()


@given(st.binary(min_size=16, max_size=16), st.lists(st.binary(min_size=40, max_size=40), min_size=1, max_size=9))
def test_columns_hash_as_single_messages_do(key, messages):
    assert [scalar_siphash(key, m, wide=True) for m in messages] == vectorised(key, messages)


def test_more_rows_than_one_chunk_hash_as_they_do_alone():
    place = np.random.default_rng(7).integers(0, 2**63, (5, 5000), dtype=np.uint64)

    together = trace_ids(place, b"key")

    for row in (0, 4095, 4096, 4999):
        assert np.array_equal(trace_ids(place[:, row : row + 1], b"key")[0], together[row])


def test_another_key_gives_other_ids_and_no_id_repeats():
    place = np.zeros((5, 1000), np.uint64)
    place[0] = np.arange(1000)

    one, other = trace_ids(place, b"one key"), trace_ids(place, b"another key")

    assert 2000 == len(np.unique(np.concatenate([one[:, 0], other[:, 0]])))


@given(st.tuples(U64, U64, U64, U64, U64), st.integers(0, 4), st.integers(0, 63))
def test_every_bit_of_the_place_matters(place, column, bit):
    changed = list(place)
    changed[column] ^= 1 << bit
    both = np.array([place, changed], np.uint64).T
    ids, keys = trace_ids(both, b"key"), join_keys(both)

    assert not np.array_equal(ids[0], ids[1])
    assert keys[0] != keys[1]


def test_a_join_key_is_never_zero():
    assert join_keys(np.zeros((5, 1), np.uint64)).all()


def test_span_ids_are_never_zero():
    # the finaliser is a bijection: this half is the one that it maps to 0
    assert 1 == span_ids(np.array([2**64 - 0x9E3779B97F4A7C15], np.uint64))[0]
