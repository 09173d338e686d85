"""Where a thread waited, and who ended it: what a record of `waits` tells of one wait."""

import numpy as np
import pytest

from latencyprobe.bounds import MAX_WORD
from latencyprobe_agent.signals import waits, wakers
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary import syscalls
from latencyprobe_agent.vocabulary.records import WaitFlags, WakerKind
from tests.latencyprobe_agent.test_signals_waits import FUTEX, MS, START_NS, served, wait


def woken(made, kind=WakerKind.THREAD, comm=b"gc"):
    made["waker"]["kind"], made["waker"]["tgid"], made["waker"]["tid"] = kind, 70, 78
    made["waker"]["comm"] = np.frombuffer(comm.ljust(16, b"\0"), np.uint8)
    return made


def test_a_stack_is_as_long_as_it_is_said_to_be():
    made = wait(frames=2, flags=WaitFlags.TRUNCATED)
    made["stack"][0, :3] = (3, 4, 5)
    kernel, user, waker = wakers.stacks(made[0])
    assert ((3, 4), False, 0) == (kernel.addresses, kernel.whole, kernel.tgid)
    assert ((), ()) == (user.addresses, waker.addresses)


def test_stacks_of_programs_are_theirs_at_the_time_when_they_were_taken():
    made = woken(wait(to_ms=50, ready_ns=5 * MS, user_frames=2, waker_frames=1, flags=WaitFlags.USER_COMPLETE))
    made["flow"]["owner_tgid"] = 70
    made["user_stack"][0, :3], made["waker_stack"][0, :2] = (3, 4, 5), (6, 7)
    _, user, waker = wakers.stacks(made[0])
    assert ((3, 4), True, 70, START_NS) == user[1:5]
    assert ((6,), False, 70, START_NS + 45 * MS) == waker[1:5]
    assert (names.WAIT_WAKER_STACK, names.WAIT_WAKER_STACK_COMPLETE) == (waker.attribute, waker.told_whole)


@pytest.mark.parametrize(
    ("kind", "said", "told"),
    [
        (WakerKind.THREAD, 'thread "gc"', {names.WAIT_WAKER_NAME: "gc", names.WAIT_WAKER_ID: 78}),
        (WakerKind.PROCESS, 'process "gc"', {names.WAIT_WAKER_NAME: "gc", names.WAIT_WAKER_ID: 78}),
        (WakerKind.KERNEL, 'kernel thread "gc"', {names.WAIT_WAKER_NAME: "gc", names.WAIT_WAKER_ID: 78}),
        (WakerKind.OUTSIDE, "another container", {}),
        (WakerKind.INTERRUPT, "an interrupt", {}),
    ],
)
def test_who_ended_a_wait(kind, said, told):
    (one,) = woken(wait(FUTEX), kind)
    assert said == wakers.woken_by(one)
    found = waits.fields(one)
    assert kind.name.lower() == found[names.WAIT_WAKER]
    assert told == {name: found[name] for name in (names.WAIT_WAKER_NAME, names.WAIT_WAKER_ID) if name in found}


def test_of_a_wait_that_nobody_was_seen_to_end_nothing_is_told():
    assert names.WAIT_WAKER not in waits.fields(wait(FUTEX)[0])
    assert "" == wakers.woken_by(wait(FUTEX)[0])


def test_a_name_that_would_steer_a_terminal_does_not():
    assert 'thread "\ufffd[2J"' == wakers.woken_by(woken(wait(), comm=b"\x1b[2J")[0])


@pytest.mark.parametrize(("times", "lock"), [(1, "futex (woken by {})"), (7, "futex (longest woken by {})")])
def test_a_requests_lock_is_named_by_who_let_go_of_it(times, lock):
    made = woken(served(), comm=b"123456789012345")
    made["call_count"][0, 0] = times
    made["waker_ns"] = 2 * MS
    calls = [what for what, *_ in waits.describe(made[0], 0)]
    by = 'thread "123456789012345"'
    assert ["fsync", "on CPU", lock.format(by)] == calls[:3]
    assert "futex" in waits.by_cause(made, np.array([1])), "shares of all requests are by call"


def test_the_longest_text_of_a_lock_is_told_whole():
    made = woken(served(), WakerKind.KERNEL, b"123456789012345")
    made["call_nr"][0, 0] = syscalls.number("futex_waitv")
    (lock,) = [what for what, *_ in waits.describe(made[0], 0) if what.startswith("futex")]
    assert len(lock) <= MAX_WORD
