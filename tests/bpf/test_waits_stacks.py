"""Stacks of programs in records of waits, and who ended a wait: of a server whose functions are known (waiter.c)."""

import platform
import subprocess
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from latencyprobe.plan import WaitPolicy
from latencyprobe_agent.signals.table import WAITS
from latencyprobe_agent.signals.waits import describe, reason
from latencyprobe_agent.signals.wakers import stacks, woken_by
from latencyprobe_agent.symbols.symbolizer import Symbolizer, inside_calls
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute
from latencyprobe_agent.vocabulary.records import WaitFlags, WaitKind, WakerKind
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.recorder import Recorder
from tests.truth.tracking import cgroup
from tests.truth.waiting_client import BOTH, MS, Asked, Server, Told, split_of, waiting_server

pytestmark = [
    pytest.mark.root,
    pytest.mark.hideable,
    pytest.mark.usefixtures("needs_storage"),
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its program is in assembly of x86-64"),
]

USER = WaitPolicy(slow_call_ns=20 * MS, slow_offcpu_ns=20 * MS, stacks=True, user_stacks=True)
N = 200


@pytest.fixture(scope="module")
def symbols() -> Iterator[Symbolizer]:
    with Symbolizer() as one:
        yield one


def built(folder: Path, *flags: str) -> Path:
    program = folder / "waiter"
    source = Path(workload.__file__).with_name("waiter.c")
    common = ["-O1", "-Wall", "-Werror", "-pthread", "-fno-optimize-sibling-calls"]
    subprocess.run(["cc", *common, *flags, "-o", program, source], check=True)
    return program


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With frame pointers."""
    return built(tmp_path_factory.mktemp("waiter"), "-fno-omit-frame-pointer")


@pytest.fixture
def user_waits(session, port, record) -> Recorder:
    session.measure(port, evidence=BOTH, waits=USER)
    return record(WAITS)


@pytest.fixture
def waiter(user_waits: Recorder, port: int, program: Path) -> Iterator[Server]:
    with waiting_server(port, program=program) as one:
        yield one


@pytest.fixture
def client(waiter: Server) -> Asked:
    return waiter.connect()


def functions(symbols: Symbolizer, record: np.void, which: Attribute) -> list[str]:
    """Names of one of a record's stacks, as the agent finds them."""
    (stack,) = [one for one in stacks(record) if one.attribute is which]
    return symbols.user(stack.tgid, inside_calls(stack.addresses), taken_ns=stack.taken_ns) if stack.tgid else []


def longest(waits: Recorder, told: Told) -> np.void:
    """The wait of the thread in which it was blocked longest; for a CPU it may have waited longer."""
    split_of(waits, told)  # it comes behind those of its waits
    found = waits.records(kind=WaitKind.ONE, owner_tid=told.tid)
    during = found[(found["flow"]["boot_ns"] > told.began_ns) & (found["start_ns"] < told.ended_ns)]
    return during[during["blocked_ns"].argmax()]


def test_a_wait_has_the_functions_of_its_program_up_to_the_threads_first(user_waits, client, symbols):
    waits = []

    def has_kernel_frames() -> bool:
        waits.append(longest(user_waits, client.ask("sleep 50")))
        return waits[-1]["frames"] > 3

    wait_until(has_kernel_frames, "the kernel's stack is there as well; it may keep one from all programs")
    wait = waits[-1]
    found = functions(symbols, wait, names.WAIT_USER_STACK)
    assert ["nap", "sleeps_deeper", "sleeps", "serve", "entry"] == found
    assert WaitFlags.USER_COMPLETE & wait["flags"]


def test_of_two_threads_in_different_calls_each_user_stack_is_its_own(session, waiter, user_waits, port, symbols):
    session.measure(port, evidence=BOTH, waits=WaitPolicy(MS // 2, 10**9, stacks=True, user_stacks=True))
    sleeper, poller = waiter.connect(), waiter.connect()
    expected, wrong, done = {}, [], 0
    for _ in range(N):
        sleeper.say("sleep 2")
        poller.say("poll 2")
        expected |= {sleeper.hear().tid: "sleeps", poller.hear().tid: "polls"}
    for record in user_waits.until(lambda evidence: len(evidence) >= N, "waits", kind=WaitKind.ONE).rec:
        if (own := expected.get(int(record["flow"]["owner_tid"]))) and record["user_frames"]:
            done += 1
            if functions(symbols, record, names.WAIT_USER_STACK)[2:4] != [own, "serve"]:
                wrong.append((own, functions(symbols, record, names.WAIT_USER_STACK)))
    assert not wrong
    assert done > N / 2
    print(f"{done} stacks, none wrong; lost: {user_waits.lost()}")


def test_who_does_not_ask_for_user_stacks_has_none(waits, port, program):
    with waiting_server(port, program=program) as server:
        wait = longest(waits, server.connect().ask("lock 50"))
    assert (0, 0) == (wait["user_frames"], wait["waker_frames"])
    assert WakerKind.THREAD == wait["waker"]["kind"]


def test_code_without_frame_pointers_says_that_its_stack_is_not_complete(user_waits, port, tmp_path, symbols):
    with waiting_server(port, program=built(tmp_path, "-fomit-frame-pointer")) as server:
        wait = longest(user_waits, server.connect().ask("sleep 50"))
        assert "nap" == functions(symbols, wait, names.WAIT_USER_STACK)[0]
    assert not WaitFlags.USER_COMPLETE & wait["flags"]


def test_a_lock_that_another_thread_holds_is_named_by_it(user_waits, waiter, client, symbols):
    told = client.ask("lock 50")
    wait, split = longest(user_waits, told), split_of(user_waits, told)
    assert ["wait_for_lock"] == functions(symbols, wait, names.WAIT_USER_STACK)[:1]
    assert 'thread "gc"' == woken_by(wait) == woken_by(split)
    assert waiter.pid == wait["waker"]["tgid"]
    assert told.tid != wait["waker"]["tid"]
    assert ["let_go", "collect"] == functions(symbols, wait, names.WAIT_WAKER_STACK)[:2]
    (lock,) = [what for what, *_ in describe(split, 0) if what.startswith("futex")]
    assert lock in ('futex (woken by thread "gc")', 'futex (longest woken by thread "gc")')
    assert wait["blocked_ns"] == split["waker_ns"] <= split["call_ns"].max()


def test_another_process_of_the_container_is_named_and_one_outside_is_not(user_waits, client, symbols):
    wait = longest(user_waits, client.ask("process 50"))
    assert 'process "other"' == woken_by(wait)
    with cgroup("waker") as folder:
        wait = longest(user_waits, client.ask(f"process 50 {folder}/cgroup.procs"))
    assert "another container" == woken_by(wait)
    assert b"" == wait["waker"]["comm"].tobytes().strip(b"\0")
    assert (0, 0, 0) == (wait["waker"]["tid"], wait["waker"]["tgid"], wait["waker_frames"])


@pytest.mark.parametrize("busy", [False, True])
def test_what_a_timer_ends_has_no_waker_whatever_it_comes_upon(user_waits, client, busy):
    """`busy`: it comes upon programs in user mode, that have nothing to do with it. A wake-up may be unseen: the kernel
    runs no program inside itself, nor one upon the host's first process (docs/design/kernel.md)."""
    burning = [subprocess.Popen(["sh", "-c", "while :; do :; done"]) for _ in range(2 * busy)]
    try:
        waits = [longest(user_waits, client.ask(act)) for act in 4 * ["sleep 30", "timeout 30"]]
        seen = [wait for wait in waits if woken_by(wait)]
        assert ["an interrupt"] * len(seen) == [woken_by(wait) for wait in seen], [reason(wait) for wait in waits]
        assert len(seen) > len(waits) / 2
    finally:
        for one in burning:
            one.kill()
            one.wait()
