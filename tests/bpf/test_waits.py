"""Waits of real servers: where the time of each request went, by call, ready and on CPU; it always adds up."""

import select

import pytest

from latencyprobe.plan import WaitPolicy
from latencyprobe_agent.signals.waits import call, reason
from latencyprobe_agent.vocabulary.records import Served, Waiter, WaitFlags, WaitKind, WaitNr
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.waiting_client import BOTH, MS, SLOW, blocked, blocked_ms, mostly_ms, split_of, wait_of, waiting_server

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

LONG = WaitPolicy(slow_call_ns=1000 * MS, slow_offcpu_ns=1000 * MS)  # no machine makes anybody wait as long


def test_a_sleep_is_its_call(waits, asked):
    told = asked.ask("sleep 0.05")
    record = split_of(waits, told)
    wait = wait_of(waits, told)
    assert 50 <= mostly_ms(record, "clock_nanosleep")
    assert blocked_ms(record)["clock_nanosleep"] <= (told.ended_ns - told.began_ns) / MS
    assert ("clock_nanosleep", "interruptible", told.tid) == (
        call(wait["call_nr"][0]),
        reason(wait),
        wait["flow"]["owner_tid"],
    )
    assert Waiter.THREAD == wait["waiter"]
    assert wait["flow"]["sock_cookie"] == record["flow"]["sock_cookie"]


def test_a_wait_has_the_kernels_stack(waits, asked):
    """Of several: a kernel may keep a switch from all programs (docs/design/tracker.md)."""
    wait_until(lambda: wait_of(waits, asked.ask("sleep 0.05"))["frames"] > 3, "a stack")


def test_what_is_quicker_than_the_threshold_has_no_record(session, waits, port, asked):
    session.measure(port, evidence=BOTH, waits=LONG)
    for _ in range(20):
        asked.ask("sleep 0.002")
    split_of(waits, asked.ask("sleep 1.05"))
    assert len(waits.records(kind=WaitKind.SERVED)) == 1
    assert waits.counted()["served"].tolist() == [1, 0, 0, 0]


def test_pure_computing_is_on_cpu(waits, asked):
    record = split_of(waits, asked.ask("burn 0.06"))
    assert record["on_cpu_ns"] > 55 * MS
    assert record["blocked_ns"] < 5 * MS


def test_fsync_on_a_slow_file_system_is_its_call(waits, asked, files):
    files.fsync_s = 0.06
    told = asked.ask(f"fsync {files.path}")
    record, wait = split_of(waits, told), wait_of(waits, told)
    assert blocked_ms(record)["fsync"] > 55
    assert "fsync" == call(wait["call_nr"][0])


def test_a_request_has_the_calls_that_it_waited_in_each_on_its_own(waits, asked, files):
    files.fsync_s = 0.03
    record = split_of(waits, asked.ask(f"both {files.path}"))
    assert blocked_ms(record)["fsync"] > 29
    assert blocked_ms(record)["clock_nanosleep"] > 49


def test_a_lock_that_another_thread_holds_is_a_futex(waits, asked):
    assert mostly_ms(split_of(waits, asked.ask("lock 0.05")), "futex") > 45


def test_a_page_that_comes_from_a_slow_file_is_a_fault(waits, asked, files):
    files.read_s = 0.04
    told = asked.ask(f"fault {files.path}")
    record, wait = split_of(waits, told), wait_of(waits, told)
    assert blocked_ms(record)["page_fault"] > 35
    assert WaitNr.NR_FAULT == wait["call_nr"][0]
    assert reason(wait) in ("disk", "interruptible"), "FUSE can be interrupted where it reads ahead"


def test_a_call_that_signals_interrupt_is_the_sum_of_its_waits(waits, asked):
    record = split_of(waits, asked.ask("signals 0.06"))
    assert blocked_ms(record)["clock_nanosleep"] > 40


def test_a_request_that_another_thread_answers_has_no_split_and_is_counted(waits, asked):
    asked.ask("handed sleep 0.05")
    waits.until(lambda _: waits.counted()["served"][Served.HANDED_OVER], "its count")
    assert waits.counted()["served"].tolist() == [0, 0, 1, 0]
    asked.ask("sleep 0.05")
    waits.until(lambda _: waits.counted()["served"][Served.SPLIT], "the next one, which its own thread answers")


def test_a_wait_of_another_thread_is_the_only_requests_of_its_process(waits, asked, files):
    files.fsync_s = 0.06
    asked.ask(f"pool {files.path}")  # makes the thread
    told = asked.ask(f"pool {files.path}")
    waits.until(lambda evidence: (evidence.rec["waiter"] == Waiter.PROCESS).any(), "its wait", kind=WaitKind.ONE)
    record = split_of(waits, told)
    of_process = blocked(waits.records(kind=WaitKind.ONE, waiter=Waiter.PROCESS))
    assert mostly_ms(record, "futex") > 50
    assert {"fsync"} == {call(wait["call_nr"][0]) for wait in of_process}
    assert told.tid not in of_process["flow"]["owner_tid"]
    assert {record["flow"]["sock_cookie"]} == set(of_process["flow"]["sock_cookie"])


def test_a_wait_of_another_thread_beside_two_requests_is_ambiguous(waits, server, files):
    files.fsync_s = 0.08
    first, second = server.connect(), server.connect()
    first.ask(f"pool {files.path}")
    second.say("sleep 0.3")
    first.ask(f"pool {files.path}")
    waits.until(lambda _: waits.counted()["waits"][Waiter.AMBIGUOUS], "its count")
    ambiguous = waits.records(kind=WaitKind.ONE, waiter=Waiter.AMBIGUOUS)
    assert {0} == set(ambiguous["flow"]["sock_cookie"])
    second.hear()


def test_a_thread_that_waits_for_its_next_request_has_no_record(waits, asked):
    for _ in range(3):
        told = asked.ask("sleep 0.03")
        asked.socket.settimeout(0.1)
        with pytest.raises(TimeoutError):
            asked.hear()
        asked.socket.settimeout(None)
        asked.ask("nothing")
        split_of(waits, told)
    assert {"clock_nanosleep"} == {call(record["call_nr"][0]) for record in blocked(waits.records(kind=WaitKind.ONE))}


def test_nothing_is_attributed_where_one_thread_serves_requests_that_overlap(waits, port):
    with waiting_server(port, "async") as server:
        several = [server.connect() for _ in range(4)]
        for one in several:
            one.say("sleep 0.08")
        for one in several:
            one.hear()
        waits.until(lambda _: waits.counted()["served"][Served.AMBIGUOUS] == 4, "four of them")
        assert waits.counted()["served"].tolist() == [0, 4, 0, 0]
        assert not len(waits.records(kind=WaitKind.SERVED))
        assert not len(waits.records(waiter=Waiter.THREAD, kind=WaitKind.ONE))
        told = several[0].ask("sleep 0.05")
        assert mostly_ms(split_of(waits, told), "epoll_wait") > 45, "alone again"


def test_requests_that_nobody_answers_keep_no_thread_from_its_next(waits, port):
    """An event loop whose clients go away unanswered serves the next one alone."""
    with waiting_server(port, "async") as server:
        gone = server.connect()
        gone.say("sleep 0.02")
        gone.socket.shutdown(2)
        asked = server.connect()
        asked.ask("sleep 0")
        gone.socket.close()
        waits.until(lambda _: asked.ask("sleep 0.03") and waits.counted()["served"][Served.SPLIT], "alone")


def test_a_stack_is_told_only_where_it_is_asked_for(session, waits, port, server):
    session.measure(port, evidence=("syscalls",), waits=WaitPolicy(slow_call_ns=20 * MS))
    told = server.connect().ask("sleep 0.05")
    assert 0 == wait_of(waits, told)["frames"]


def test_a_threshold_that_changes_holds_from_the_next_wait_on(session, waits, port, asked):
    told = asked.ask("sleep 0.03")
    split_of(waits, told)
    session.measure(port, evidence=BOTH, waits=LONG)
    asked.ask("sleep 0.03")
    split_of(waits, asked.ask("sleep 1.05"))
    assert 2 == len(waits.records(kind=WaitKind.SERVED))


def test_a_plan_that_changes_while_a_request_is_served_takes_no_wait_from_it(session, waits, port, asked, files):
    """Plans change with every pod that comes or goes. The request's thread waits for another one, both to the end."""
    asked.ask(f"pool {files.path}")  # makes that thread
    files.fsync_s = 0.4
    asked.say(f"pool {files.path}")
    while not select.select([asked.socket], [], [], 0.05)[0]:
        session.measure(port, evidence=BOTH, waits=SLOW)
    told = asked.hear()
    assert "futex" == call(wait_of(waits, told)["call_nr"][0])
    (other,) = blocked(waits.until(len, "the other thread's", kind=WaitKind.ONE, waiter=Waiter.PROCESS).rec)
    assert "fsync" == call(other["call_nr"][0])


def test_a_request_whose_target_is_dropped_before_its_answer_leaves_its_thread_free(session, waits, port, asked):
    """Its connection stays, as those of pools do, and others are measured. Each wait of the thread would be its own."""
    (programs,) = waits.programs
    asked.say("sleep 0.2")
    wait_until(lambda: list(programs.map("readers").keys()), "its thread has read it")
    session.measure(free_port(), evidence=BOTH, waits=SLOW)
    first = asked.hear()
    session.programs.flush()
    waits.flush()
    for _ in range(3):
        asked.ask("sleep 0.03")  # in which it serves nobody who is measured
    session.measure(port, evidence=BOTH, waits=SLOW)
    last = asked.ask("sleep 0.05")
    split_of(waits, last)
    ended_ns = waits.records(kind=WaitKind.ONE, owner_tid=first.tid)["flow"]["boot_ns"].tolist()
    assert not [ns for ns in ended_ns if first.ended_ns < ns < last.began_ns]


def test_flags_are_few(waits, asked):
    wait = wait_of(waits, asked.ask("sleep 0.05"))
    assert WaitFlags.SERVING == wait["flags"]
