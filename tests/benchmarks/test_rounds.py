from contextlib import contextmanager

import numpy as np

from benchmarks.rounds import interleaved, quiet


def test_every_round_has_every_variant_in_rotated_order():
    order = []

    @contextmanager
    def variant(name):
        yield name

    def one(name):
        order.append(name)
        return float(len(order))

    slices, foreign = interleaved("rounds", one, {name: lambda name=name: variant(name) for name in "abc"}, 3)
    assert "".join(order) == "abcbcacab"
    assert slices["a"].tolist() == [1, 6, 8]
    assert len(foreign) == 3


def test_rounds_in_which_others_worked_are_left_out():
    slices, note = quiet({"a": np.arange(8.0)}, np.array([0, 0, 0.5, 0, 0, 0.06, 0, 0.0]))
    assert slices["a"].tolist() == [0, 1, 3, 4, 6, 7]
    assert note == "6 of 8 rounds used"


def test_where_hardly_any_round_was_quiet_all_are_used_and_it_is_said():
    slices, note = quiet({"a": np.arange(8.0)}, np.full(8, 0.5))
    assert len(slices["a"]) == 8
    assert note.startswith("NOISY: only 0 of 8 rounds")
