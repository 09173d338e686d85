"""Stacks of what goes on, until their record comes: whose they are, what they weigh, and that they are bounded."""

import numpy as np

from latencyprobe_agent.measure.calls_in_progress import Call, CallsInProgress, Stacks, by_weight, call
from latencyprobe_agent.vocabulary.records import StackKind, StackWalkFlags, TrackedFlag
from tests.support.tracked import record, stacks

MS = 1_000_000
KERNEL, USER, WAKER = StackKind.KERNEL, StackKind.USER, StackKind.WAKER


def test_each_call_gets_its_own_stacks_by_thread_and_start():
    calls = CallsInProgress()
    calls.keep(stacks((KERNEL, 0, 20 * MS, [1, 2]), (KERNEL, 0, 40 * MS, [3]), (USER, 1, 50 * MS, [7, 8, 9])))
    calls.keep(stacks((KERNEL, 0, 30 * MS, [4]), tid=79))
    calls.keep(stacks((KERNEL, 0, 10 * MS, [5]), start_ns=2 * 10**9))
    ((of, found),) = calls.ended(np.array([record(payload=[230, 0])]))
    assert Stacks(((20 * MS, (1, 2)), (40 * MS, (3,))), (7, 8, 9), user_complete=True) == found
    kernel = ((20 * MS, (1, 2)), (40 * MS, (3,)))
    assert Call("worker", 77, 78, 10**9, 50 * MS, 230, (7, 8, 9), kernel) == call(of, found)
    assert 2 == len(calls), "those of others stay"


def test_stacks_of_what_ended_unreported_are_let_go_of():
    calls = CallsInProgress()
    calls.keep(stacks((KERNEL, 0, 20 * MS, [1])))
    assert [] == list(calls.ended(np.array([record(flag=TrackedFlag.LET_GO)])))
    assert (0, 0) == (len(calls), calls.dropped)


def test_what_goes_on_keeps_its_stacks_for_its_end():
    calls = CallsInProgress()
    calls.keep(stacks((KERNEL, 0, 20 * MS, [1])))
    (going_on,) = calls.ended(np.array([record(flag=TrackedFlag.TIMEOUT)]))
    assert Stacks() == going_on[1]
    (ended,) = calls.ended(np.array([record()]))
    assert ((20 * MS, (1,)),) == ended[1].kernel


def test_a_waker_belongs_to_the_wait_that_it_ended():
    calls = CallsInProgress()
    calls.keep(stacks((KERNEL, 0, 50 * MS, [1]), (WAKER, 0, 49 * MS, [6])))
    waker = record(flag=TrackedFlag.WAKER, tgid=90, tid=91, comm=b"gc", payload=[78, 0])
    ((_, found),) = calls.ended(np.array([waker, record()]))
    assert (("gc", 90, 91), (6,)) == (found.woken_by, found.waker)


def test_a_stack_that_was_cut_says_so():
    calls = CallsInProgress()
    calls.keep(stacks((KERNEL, StackWalkFlags.TRUNCATED, 50 * MS, [1])))
    assert calls.take(record()).truncated


def test_of_too_many_stacks_the_oldest_call_goes_and_is_counted():
    calls = CallsInProgress(limit=10)
    for tid in range(20):
        calls.keep(stacks((KERNEL, 0, MS, [tid + 1]), tid=tid))
    assert (10, 10) == (len(calls), calls.dropped)
    assert () == calls.take(record(tid=9)).kernel
    assert ((MS, (11,)),) == calls.take(record(tid=10)).kernel


def test_a_call_that_waits_very_often_keeps_the_latest_and_every_second_one_before():
    calls = CallsInProgress(per_call=8)
    calls.keep(stacks(*((KERNEL, 0, i, [i]) for i in range(1, 10))))
    kept = [elapsed_ns for elapsed_ns, _ in calls.take(record()).kernel]
    assert [1, 3, 5, 7, 9] == kept
    assert 4 == calls.dropped


def test_a_stack_weighs_what_went_by_since_the_one_before_it():
    kernel = ((10, (1,)), (30, (2,)), (35, (1,)))
    assert [(20, (2,)), (15, (1,))] == by_weight(kernel)
    assert [] == by_weight(())
