"""Ids that both hosts must compute alike: the same for the same place and key, different for any other."""

import hashlib

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.keys import child_span_ids, join_keys, span_ids, trace_ids
from latencyprobe_agent.vocabulary import ids as text

U64 = st.integers(0, 2**64 - 1)


@given(st.lists(st.tuples(U64, U64, U64, U64, U64), min_size=1, max_size=9), st.binary(max_size=100))
def test_a_trace_id_is_the_keyed_hash_of_five_words(places, pair_key):
    key = hashlib.blake2b(pair_key, digest_size=32, person=b"trace id").digest()
    messages = [b"".join(word.to_bytes(8, "little") for word in place) for place in places]
    expected = [hashlib.blake2b(message, digest_size=16, key=key).hexdigest() for message in messages]

    assert expected == text.to_hex(trace_ids(np.array(places, np.uint64).T, pair_key))


def test_agents_of_another_version_compute_the_same_id():
    assert (
        "dc3d752a59937bdc8634ab162099b0aa" == text.to_hex(trace_ids(np.arange(5, dtype=np.uint64)[:, None], b"key"))[0]
    )


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


@given(U64)
def test_ids_of_child_spans_are_the_next_numbers_of_splitmix64_and_all_differ(half):
    def splitmix64(state):
        mixed = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 % 2**64
        mixed = (mixed ^ mixed >> 27) * 0x94D049BB133111EB % 2**64
        return mixed ^ mixed >> 31

    seeds = np.array([half], np.uint64)
    found = [*span_ids(seeds).tolist(), *child_span_ids(seeds, 4)[:, 0].tolist()]
    expected = [splitmix64((half + (1 + child) * 0x9E3779B97F4A7C15) % 2**64) or 1 for child in range(5)]

    assert expected == found
    assert 5 == len(set(found))


def test_span_ids_are_never_zero():
    # the finaliser is a bijection: this half is the one that it maps to 0
    assert 1 == span_ids(np.array([2**64 - 0x9E3779B97F4A7C15], np.uint64))[0]
