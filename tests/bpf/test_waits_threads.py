"""Threads and processes come and go: each record is its own thread's, and nothing is left of who has gone."""

import os
from collections import Counter

import pytest

from latencyprobe.plan import WaitPolicy
from latencyprobe_agent.signals.waits import call
from latencyprobe_agent.symbols.kallsyms import KernelNames
from latencyprobe_agent.vocabulary.records import Served, WaitKind
from tests.support.waiting import wait_until
from tests.truth.waiting_client import BOTH, split_of, waiting_server

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

N = int(os.environ.get("WAITS", "400"))
THREADS = int(os.environ.get("THREADS", "2000"))
US = 1_000
WHERE = {"clock_nanosleep": "hrtimer_nanosleep", "select": "do_select", "pselect6": "do_select", "futex": "futex_wait"}


def watched(waits) -> tuple[list[int], int]:
    """The processes that are watched, and how many threads are known that read requests."""
    (programs,) = waits.programs
    tgids, readers = (list(programs.map(name).keys()) for name in ("processes", "readers"))
    return [int.from_bytes(tgid, "little") for tgid in tgids], len(readers)


def test_of_two_threads_in_different_calls_each_stack_is_its_own(session, waits, port, server):
    session.measure(port, evidence=BOTH, waits=WaitPolicy(slow_call_ns=500 * US, slow_offcpu_ns=10**9, stacks=True))
    sleeper, poller = server.connect(), server.connect()
    told: dict[int, str] = {}
    symbols, seen, bare, wrong, done = KernelNames(), Counter[str](), 0, [], 0
    while sum(seen.values()) < N:
        sleeper.say("naps 1")
        poller.say("polls 1")
        told |= {sleeper.hear().tid: "clock_nanosleep", poller.hear().tid: "select"}
        waits.until(len, "waits", kind=WaitKind.ONE)
        records = waits.records(kind=WaitKind.ONE)[done:]
        done += len(records)
        for record in records:
            name = call(int(record["call_nr"][0]))
            stack = symbols(record["stack"][: record["frames"]])
            expected = told.get(int(record["flow"]["owner_tid"]))
            if expected is None:
                continue  # another thread of the server
            seen[name] += 1
            bare += not stack  # its end was not seen
            # a busy interpreter's lock is waited for, too
            own = name == "futex" or name.removeprefix("p").removesuffix("6") == expected
            if not own or (stack and WHERE[name] not in stack):
                wrong.append((name, expected, stack))
    print(f"{dict(seen)}, {bare} without a stack; left out by the limit: {waits.lost()}; wrong: {wrong}")
    assert not wrong
    assert {"clock_nanosleep"} < set(seen)
    assert bare < N / 10


def test_nothing_is_left_of_threads_and_processes_that_have_gone(waits, port):
    with waiting_server(port) as server:
        connections = [server.connect() for _ in range(4)]
        for one in connections:
            one.ask("nothing")
        connections[0].ask(f"threads {THREADS}")
        assert [server.pid] == watched(waits)[0]
        assert 4 == watched(waits)[1]
        connections[0].say("sleep 60")  # killed inside it
    wait_until(lambda: watched(waits) == ([], 0), "nobody is watched", seen=lambda: watched(waits))
    assert waits.lost().keys() <= {"recursion"}, "Linux 7 skips a program where it has preempted it (limits.md)"


def test_nothing_is_left_of_threads_that_end_at_once(waits, port):
    """The last of them to end may be the first of which the kernel tells."""
    for _ in range(20):
        with waiting_server(port) as server:
            for connection in [server.connect() for _ in range(16)]:
                connection.ask("nothing")
            assert 16 == watched(waits)[1]
        wait_until(lambda: watched(waits) == ([], 0), "nobody is watched", seen=lambda: watched(waits))


def test_a_process_that_runs_another_program_is_watched_no_more(waits, port):
    with waiting_server(port) as server:
        first, second = server.connect(), server.connect()
        first.ask("nothing")
        second.say("exec")
        wait_until(lambda: watched(waits) == ([], 0), "nobody is watched", seen=lambda: watched(waits))
        assert server.process.poll() is None


def test_a_process_is_watched_again_when_it_serves_again(waits, port):
    for _ in range(2):
        with waiting_server(port) as server:
            split_of(waits, server.connect().ask("sleep 0.03"))
    assert 2 == waits.counted()["served"][Served.SPLIT]


def test_above_its_limit_records_of_a_target_are_counted_as_left_out(session, waits, port, server):
    session.measure(port, evidence=BOTH, waits=WaitPolicy(slow_call_ns=100 * US, slow_offcpu_ns=100 * US))
    several = [server.connect() for _ in range(8)]  # however long each of them takes to wake up
    for one in several:
        one.say("naps 1")
    for one in several:
        one.hear()
    waits.until(lambda _: waits.lost()["limit"], "the limit")
    counted = waits.counted()
    assert counted["lost_records"] == waits.lost()["limit"]
    assert counted["waits"].sum() == len(waits.records(kind=WaitKind.ONE)) + counted["lost_records"]
