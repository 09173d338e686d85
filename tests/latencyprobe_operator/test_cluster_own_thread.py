"""A thread of its own for calls: one after the other, until its end."""

import threading

import pytest

from latencyprobe_operator.cluster.own_thread import OwnThread


def test_calls_are_answered_one_after_the_other_by_one_daemon_thread() -> None:
    thread, order = OwnThread("store"), []

    def call(number: int) -> threading.Thread:
        order.append(number)
        return threading.current_thread()

    def failing() -> None:
        raise OSError("gone")

    answers = [thread.submit(lambda number=number: call(number)) for number in range(50)]  # type: ignore[misc]
    failed, last = thread.submit(failing), thread.submit(lambda: call(50))
    with pytest.raises(OSError, match="gone"):
        failed.result(10)
    (same,) = {last.result(10), *(answer.result(10) for answer in answers)}
    assert (same.name, same.daemon) == ("store", True)
    assert order == list(range(51))
    thread.end()
    same.join(10)
    assert not same.is_alive()


def test_what_nobody_waits_for_any_more_is_not_begun_and_all_else_is_done_before_the_end() -> None:
    thread, go_on, done = OwnThread("store"), threading.Event(), list[str]()
    first = thread.submit(lambda: go_on.wait(10))
    cancelled, last = (thread.submit(lambda name=name: done.append(name)) for name in ("cancelled", "last"))  # type: ignore[misc]
    assert cancelled.cancel()
    thread.end()
    with pytest.raises(RuntimeError, match="store has ended"):
        thread.submit(done.clear)
    go_on.set()
    assert first.result(10)
    last.result(10)
    assert done == ["last"]
