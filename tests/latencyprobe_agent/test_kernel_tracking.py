"""Knobs of a tracker as the kernel reads them."""

import os

import numpy as np

from latencyprobe_agent.kernel import tracking
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.vocabulary.records import TRACKER_KNOBS, StackOptionFlags


def packed(knobs: Knobs) -> np.void:
    return np.frombuffer(knobs.packed(4096), TRACKER_KNOBS)[0]


def test_each_knob_is_where_the_kernel_looks():
    knobs = Knobs(
        threshold_ns=1,
        timeout_ns=2,
        gc_threshold_ns=3,
        worst_only=True,
        tgid=4,
        cgroup_id=5,
        comm="worker",
        left_out=frozenset({0, 63, 64, 441}),
        stacks=StackOptionFlags.USER,
        records_per_second=6,
        stacks_per_second=7,
    )
    value = packed(knobs)
    names = ("threshold_ns", "timeout_ns", "gc_threshold_ns", "tgid", "cgroup_id", "records_per_second")
    assert [1, 2, 3, 4, 5, 6] == [int(value[name]) for name in names]
    assert (7, 4096, 2, 1, 1) == tuple(
        int(value[name]) for name in ("stacks_per_second", "wakeup_bytes", "stacks", "tracking_on", "worst_threshold")
    )
    assert b"worker\0" == value["comm"].tobytes()[:7]
    assert [1 | 1 << 63, 1, 0, 0, 0, 0, 1 << 57, 0] == value["left_out"].tolist()


def test_a_number_beyond_the_table_is_left_out_of_it():
    assert 0 == packed(Knobs(1, left_out=frozenset({100_000})))["left_out"].sum()


def test_the_tracker_does_not_follow_itself_unless_it_is_asked_to(monkeypatch):
    monkeypatch.setattr(tracking, "has_the_kernels_numbers", lambda: True)
    assert os.getpid() == packed(Knobs(1))["own_tgid"]
    assert 0 == packed(Knobs(1, tgid=os.getpid()))["own_tgid"]


def test_where_its_number_is_another_process_to_the_kernel_nobody_is_left_out(monkeypatch):
    monkeypatch.setattr(tracking, "has_the_kernels_numbers", lambda: False)
    assert 0 == packed(Knobs(1))["own_tgid"]


def test_only_what_decides_who_is_followed_makes_a_turned_knob_forget():
    knobs = Knobs(1, tgid=4)
    assert knobs.whose == Knobs(2, timeout_ns=9, tgid=4).whose
    assert knobs.whose != Knobs(1, tgid=5).whose
    assert knobs.whose != Knobs(1, tgid=4, left_out=frozenset({1})).whose
