"""`latencyprobe syscalls`, `offcpu` and `track` as a person runs them, on a program whose calls are known."""

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.support.waiting import wait_until
from tests.truth.tracking import MS, blocked

pytestmark = pytest.mark.root

COMMAND = str(Path(sys.executable).with_name("latencyprobe"))


class Tool:
    """A tool that runs; `out` and `err` are what it has said so far."""

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        self._out, self._err = folder / "out", folder / "err"
        with self._out.open("w") as stdout, self._err.open("w") as stderr:
            self.process = subprocess.Popen([COMMAND, *words], stdout=stdout, stderr=stderr)

    @property
    def out(self) -> list[str]:
        return self._out.read_text().splitlines()

    @property
    def err(self) -> str:
        return self._err.read_text()


@contextmanager
def tool(folder: Path, *words: str) -> Iterator[Tool]:
    """Run it until the block ends, as Ctrl-C does."""
    running = Tool(folder, words)
    try:
        wait_until(lambda: "attached" in running.err or running.process.poll(), "the tool runs", timeout_s=30)
        yield running
    finally:
        running.process.send_signal(signal.SIGINT)
        running.process.wait(20)
    assert running.process.returncode == 0, running.err


@pytest.fixture
def sleeper() -> Iterator[int]:
    """A program that sleeps 60 ms, again and again: its process id."""
    program = subprocess.Popen(blocked("again", 60))
    yield program.pid
    program.kill()
    program.wait()


def rows(told: Tool, n: int = 3) -> list[str]:
    """Rows of the table, once there are so many."""
    return wait_until(lambda: len(told.out) > n and told.out[1:], "rows", seen=lambda: (told.out, told.err))


def test_calls_above_the_threshold_have_a_row_each(sleeper, tmp_path):
    with tool(tmp_path, "syscalls", "--pid", str(sleeper)) as told:
        found = rows(told)
    assert ["TIME", "COMM", "TGID", "TID", "SYSCALL", "DURATION", "RET"] == told.out[0].split()
    row = re.compile(rf"\d\d:\d\d:\d\d\.\d{{6}} blocked +{sleeper} +{sleeper} +clock_nanosleep +[\d.]+m?s 0")
    assert all(map(row.fullmatch, found)), found
    assert "not reported: none" in told.err
    assert "lost: none" in told.err


def test_stacks_name_where_it_waits_and_who_calls(sleeper, tmp_path):
    with tool(tmp_path, "syscalls", "--comm", "blocked", "--stacks", "user") as told:
        found = rows(told, 12)
    text = "\n".join(found)
    assert re.search(r" waited [\d.]+m?s:\n => hrtimer_nanosleep\n", text)
    assert re.search(r" called by.*:\n => \S+", text)


def test_a_frame_keeps_only_calls_below_it(sleeper, tmp_path):
    words = ["syscalls", "--pid", str(sleeper), "--stacks", "user", "--duration", "300ms"]
    with tool(tmp_path, *words, "--frame", "nowhere$") as told:
        told.process.wait(20)
    assert 1 == len(told.out)


def test_json_has_an_object_a_line(sleeper, tmp_path):
    with tool(tmp_path, "syscalls", "--pid", str(sleeper), "--stacks", "kernel", "-o", "json") as told:
        found = [json.loads(row) for row in rows(told)]
    assert any("kernel_stacks" in one for one in found)
    for one in found:
        assert ("blocked", sleeper, sleeper, "clock_nanosleep", 0, False) == tuple(
            one[name] for name in ("comm", "tgid", "tid", "syscall", "ret", "goes_on")
        )
        assert one["duration_ns"] >= 60 * MS
        # none where the kernel told nobody of the switch back (docs/design/tracker.md)
        assert all(stack["waited_ns"] > 0 for stack in one.get("kernel_stacks", ()))
        assert sum(stack["waited_ns"] for stack in one.get("kernel_stacks", ())) <= one["duration_ns"]


def test_statistics_count_all_calls_at_the_end(sleeper, tmp_path):
    with tool(tmp_path, "syscalls", "--pid", str(sleeper), "--stats", "--duration", "400ms") as told:
        told.process.wait(20)
    header, *lines = told.out
    assert ["SYSCALL", "COUNT", "MIN", "AVERAGE", "MAX", "TOTAL"] == header.split()
    (line,) = [line.split() for line in lines if line.startswith("clock_nanosleep")]
    assert int(line[1]) > 1


def test_waits_for_work_are_left_out_unless_they_are_asked_for(tmp_path):
    code = "import select\nwhile True: select.epoll().poll(0.05)"
    waiting = subprocess.Popen([sys.executable, "-c", code])
    try:
        with tool(tmp_path, "syscalls", "--pid", str(waiting.pid), "--include", "epoll_wait") as told:
            assert "epoll_wait" in rows(told, 1)[0]
        with tool(tmp_path, "syscalls", "--pid", str(waiting.pid), "--duration", "300ms") as told:
            told.process.wait(20)
        assert 1 == len(told.out)
    finally:
        waiting.kill()
        waiting.wait()


def test_what_goes_on_is_shown_after_its_timeout(tmp_path):
    program = subprocess.Popen(blocked("again", 1000))
    try:
        with tool(tmp_path, "syscalls", "--pid", str(program.pid), "--timeout", "50ms") as told:
            row = wait_until(lambda: [row for row in told.out if ">" in row], "a call that goes on")[0]
    finally:
        program.kill()
        program.wait()
    assert "clock_nanosleep" in row
    assert row.endswith(" -")


def test_waits_have_a_reason_a_stack_and_a_waker(sleeper, tmp_path):
    with tool(tmp_path, "offcpu", "--pid", str(sleeper), "--waker") as told:
        found = "\n".join(rows(told, 20))
    assert ["TIME", "COMM", "TGID", "TID", "REASON", "DURATION"] == told.out[0].split()
    assert re.search(
        rf" blocked +{sleeper} +{sleeper} +interruptible +[\d.]+m?s\n blocked in:\n => hrtimer_nanosleep\n", found
    )
    assert re.search(r" woken by an interrupt \(of .*\):\n => try_to_wake_up\n", found), "a timer wakes it"


@pytest.mark.parametrize("words", [["offcpu"], ["track", "wakeup"], ["track", "ttfb"], ["track", "net"]])
def test_each_tool_ends_by_itself_with_its_statistics(words, tmp_path):
    with tool(tmp_path, *words, "--all", "--stats", "--duration", "200ms") as told:
        told.process.wait(20)
    assert ["COUNT", "MIN", "AVERAGE", "MAX", "TOTAL"] == told.out[0].split()[1:]
    assert "lost: " in told.err


def test_a_wake_up_has_a_row(sleeper, tmp_path):
    with tool(tmp_path, "track", "wakeup", "--pid", str(sleeper), "--slower-than", "0.001ms") as told:
        found = rows(told)
    assert ["TIME", "COMM", "TGID", "TID", "DURATION"] == told.out[0].split()
    assert all(str(sleeper) in row for row in found)
