"""Kept halves come back as they were, as far as a pair, a span or a row asks."""

from dataclasses import fields
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.kept import KEPT, pack, unpack
from latencyprobe_agent.vocabulary.records import EXCHANGE, Excluded

# What nobody asks a kept half for: its stamps are in the stages.
FORGOTTEN = {
    *("sock_cookie", "send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_first_ns"),
    *("read_last_ns", "send_calls", "recv_calls"),
}


@given(st.binary(min_size=EXCHANGE.itemsize * 4, max_size=EXCHANGE.itemsize * 4), st.integers(0, 4))
def test_every_column_and_field_that_is_asked_for_comes_back(noise: bytes, n: int) -> None:
    batch = np.frombuffer(noise, EXCHANGE).copy()[:n]
    batch["excluded"] = Excluded.NONE
    for stamp in (name for name in EXCHANGE.names or () if name.endswith("_ns")):
        batch[stamp] >>= np.uint64(8)  # boot time: two years
    before = halves(batch)
    before.sampled[:] = np.arange(n)

    after = unpack(pack(before))

    for column in (field.name for field in fields(Halves) if field.name != "rec"):
        np.testing.assert_array_equal(getattr(before, column), getattr(after, column), err_msg=column)
    for name in set(EXCHANGE.names or ()) - FORGOTTEN:
        np.testing.assert_array_equal(before.rec[name], after.rec[name], err_msg=name)
    assert not any(after.rec[name].any() for name in FORGOTTEN)


def test_a_kept_half_takes_what_the_arithmetic_of_the_memory_says(make_halves: Any) -> None:
    assert KEPT.itemsize == 177
