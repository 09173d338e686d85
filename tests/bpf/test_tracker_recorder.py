"""The flight recorder: what came before a trigger, beside the log of who did it; nothing is lost untold."""

import json
import os
import re
import select
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.kernel.recording import SLOT_BYTES, Copied, RecorderPrograms
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.recording.snapshot import CALL, SWITCH, WAKEUP, Snapshot, decode
from latencyprobe_agent.recording.untold import untold
from latencyprobe_agent.signals.trackers import RECORDER
from latencyprobe_agent.vocabulary.records import RecordedKind
from latencyprobe_agent.vocabulary.syscalls import number
from tests.support.waiting import wait_until
from tests.truth.recorder import OBJECTS
from tests.truth.tracking import MS, tracking

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

COMMAND = str(Path(sys.executable).with_name("latencyprobe"))
NEVER = Knobs(1 << 62)
# Waits for a word, then sleeps each of so many ms, and logs when it asked and when it came back (ns of boot time).
SLEEPS = """
import json, sys, time
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
sys.stdin.readline()
log = []
for ms in json.loads(sys.argv[1]):
    before = now()
    time.sleep(ms / 1000)
    log.append((before, now()))
print(json.dumps(log), flush=True)
"""
# Waits for a word, then makes so many calls that nothing else makes.
CALLS = """
import os, sys
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    os.getppid()
print("done", flush=True)
"""


@contextmanager
def program(code: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def go(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()


@contextmanager
def recording(folder: Path, *words: str) -> Iterator[subprocess.Popen[str]]:
    """The tool, once it has attached; `folder`: of its snapshots and of what it says."""
    command = [COMMAND, "record", "--dir", str(folder), *words]
    with (
        (folder / "out").open("w") as out,
        (folder / "err").open("w") as err,
        subprocess.Popen(command, stdout=out, stderr=err, text=True) as tool,
    ):
        try:
            wait_until(lambda: "attached" in (folder / "err").read_text() or tool.poll() is not None, "attached", 60)
            yield tool
            tool.terminate()
            assert 0 == tool.wait(30), (folder / "err").read_text()
        finally:
            tool.kill()


def snapshots(folder: Path) -> list[Snapshot]:
    found = []
    for path in sorted(folder.glob("*.lprec")):
        with path.open("rb") as file:
            found.append(decode(file))
    return found


def taken(folder: Path) -> list[Snapshot]:
    return wait_until(lambda: snapshots(folder), "a snapshot", seen=(folder / "err").read_text)


def slept(snapshot: Snapshot, tid: int) -> list[tuple[int, int]]:
    """Beginning and end of the sleeps of a thread, oldest first."""
    calls = np.concatenate(snapshot.events)
    calls = calls[(calls["kind"] == CALL) & (calls["tid"] == tid) & (calls["nr"] == number("clock_nanosleep"))]
    return sorted(
        (end_ns - ns, end_ns)
        for end_ns, ns in zip(calls["time_ns"].tolist(), calls["duration_ns"].tolist(), strict=True)
    )


def test_a_snapshot_holds_what_came_before_its_trigger(tmp_path):
    """Each sleep of the log, within its stamps, with its switch, and its wake-up unless the kernel told of none."""
    asked_ms = [2] * 100 + [150]
    with (
        program(SLEEPS, json.dumps(asked_ms)) as running,
        recording(tmp_path, "--pid", str(running.pid), "--window", "30s", "--stacks", "kernel"),
    ):
        go(running)
        log = json.loads(said(running))
        snapshot = taken(tmp_path)[0]
    trigger = snapshot.header.trigger
    assert ("syscalls", "clock_nanosleep", running.pid) == (trigger.tracker, trigger.what, trigger.tid)
    assert log[-1][0] <= trigger.start_ns
    assert trigger.time_ns <= log[-1][1]
    assert {} == snapshot.header.lost
    frames = [frame for stack in trigger.kernel_stacks for frame in stack.frames]
    assert any("nanosleep" in frame for frame in frames), trigger.kernel_stacks
    found = slept(snapshot, running.pid)
    assert len(log) == len(found)
    for (before_ns, after_ns), (start_ns, end_ns) in zip(log, found, strict=True):
        assert before_ns <= start_ns <= end_ns <= after_ns
    events = np.concatenate(snapshot.events)
    left = events[(events["kind"] == SWITCH) & (events["tid"] == running.pid)]["time_ns"]
    woken = events[(events["kind"] == WAKEUP) & (events["other_tid"] == running.pid)]["time_ns"]
    for start_ns, end_ns in found:
        assert ((left >= start_ns) & (left <= end_ns)).any()
    unwoken = sum(not ((woken >= start_ns) & (woken <= end_ns)).any() for start_ns, end_ns in found)
    assert unwoken <= untold(snapshot).wakeups
    print(f"{len(found)} sleeps before the trigger, within the log's stamps; {len(events)} events, {unwoken} untold")


def test_what_is_older_than_the_window_is_not_in_it(tmp_path):
    with (
        program(SLEEPS, "[2, 300, 2, 150]") as running,
        recording(tmp_path, "--pid", str(running.pid), "--window", "200ms"),
    ):
        go(running)
        log = json.loads(said(running))
        wait_until(lambda: "clock" in (tmp_path / "out").read_text(), "a row")
        ask = subprocess.run([COMMAND, "record", "trigger", "--dir", tmp_path], check=False, capture_output=True)
        assert ask.returncode in (0, 1)  # it may come within a second of the first one
    snapshot = snapshots(tmp_path)[0]
    assert log[1][0] <= snapshot.header.trigger.start_ns <= log[1][1]
    since_ns = snapshot.header.trigger.time_ns - 200 * MS
    for cpu, events in zip(snapshot.header.cpus, snapshot.events, strict=True):
        assert cpu.from_ns == since_ns
        assert (events["time_ns"] >= since_ns).all()
    assert not [end_ns for _, end_ns in slept(snapshot, running.pid) if end_ns <= log[0][1]]


def counted(copied: list[Copied]) -> tuple[int, int]:
    """Return how many events there were, and how many are kept; each number is kept or counted."""
    for one in copied:
        numbers = one.values["number"].astype(np.int64)
        assert (np.diff(numbers) > 0).all()
        assert one.overwritten + len(numbers) + one.missing >= (numbers[-1] if len(numbers) else 0)
    return sum(one.overwritten + len(one.values) + one.missing for one in copied), sum(
        len(one.values) for one in copied
    )


@pytest.mark.parametrize("slots", [100, 100_000])
def test_none_of_what_happens_while_it_is_copied_is_missing_without_being_counted(slots: int):
    """A program makes calls while copies are made, one after the other: each call is in the last copy, or counted."""
    calls = 30_000
    with program(CALLS, calls) as running:
        knobs = Knobs(NEVER.threshold_ns, tgid=running.pid)
        what = frozenset({"syscalls"})
        with RecorderPrograms.start(OBJECTS, knobs, what, bytes_per_cpu=slots * SLOT_BYTES) as recorder:
            go(running)
            copies = [recorder.copy()]
            while sum(counted(copies[-1])) == 0 or counted(copies[-1])[0] < calls:
                copies.append(recorder.copy())
            assert "done\n" == said(running)
            running.wait(20)
            last = recorder.copy()
            assert 0 == sum(recorder.lost().values())
    there, kept = counted(last)
    print(f"{calls} calls and {there - calls} others, {len(copies)} copies meanwhile; {kept} kept")
    assert 0 == sum(one.missing for one in last)
    for one in last:
        assert one.values["number"].tolist() == list(range(one.overwritten + 1, one.overwritten + len(one.values) + 1))
    if slots > calls:
        values = np.concatenate([one.values["record"] for one in last])
        assert calls == int((values["nr"] == number("getppid")).sum())
    else:
        assert calls <= there <= calls + 1000, "the interpreter ends with some more calls"
        assert kept <= slots * len(last)
        assert all(one.from_ns == one.values["record"]["time_ns"][0] for one in last if one.overwritten)


def test_triggers_that_come_too_soon_are_counted(tmp_path):
    with (
        program(SLEEPS, json.dumps([60] * 30)) as running,
        recording(tmp_path, "--pid", str(running.pid), "--slower-than", "50ms"),
    ):
        go(running)
        assert 30 == len(json.loads(said(running)))
        running.wait(20)
    found = snapshots(tmp_path)
    told = re.search(r"snapshots: (\d+); suppressed triggers: (\d+)", (tmp_path / "err").read_text())
    assert told
    n, suppressed = map(int, told.groups())
    assert len(found) == n
    assert 30 == n + suppressed
    assert 0 == found[0].header.suppressed
    assert sum(one.header.suppressed for one in found) <= suppressed


def test_only_what_is_asked_for_is_kept():
    with program(SLEEPS, "[2, 2, 2]") as running:
        knobs = Knobs(NEVER.threshold_ns, tgid=running.pid, keep_above_ns=MS)
        with (
            RecorderPrograms.start(OBJECTS, knobs, frozenset({"syscalls"})) as calls,
            RecorderPrograms.start(OBJECTS, knobs, frozenset({"wakeups"}), calls_trigger=False) as wakeups,
        ):
            assert {"enter", "exit", "switched"}.isdisjoint(wakeups.variants)
            go(running)
            json.loads(said(running))
            running.wait(20)
            kept = [np.concatenate([one.values["record"] for one in of.copy()]) for of in (calls, wakeups)]
    assert {RecordedKind.CALL} == set(kept[0]["kind"].tolist())
    assert (kept[0]["duration_ns"] > MS).all()
    assert 3 <= int((kept[0]["nr"] == number("clock_nanosleep")).sum())
    assert {RecordedKind.WAKEUP} == set(kept[1]["kind"].tolist())
    assert {running.pid} == set(kept[1]["other_tgid"].tolist())


@pytest.mark.parametrize(("on", "words"), [("offcpu", []), ("wakeup", ["--with", "switches,wakeups"])])
def test_another_tracker_can_trigger(on: str, words: list[str], tmp_path):
    slower = {"offcpu": "100ms", "wakeup": "0.001ms"}[on]
    with (
        program(SLEEPS, "[2, 150, 2]") as running,
        recording(tmp_path, "--pid", str(running.pid), "--on", on, "--slower-than", slower, *words),
    ):
        go(running)
        log = json.loads(said(running))
        snapshot = taken(tmp_path)[0]
    trigger = snapshot.header.trigger
    assert (on, running.pid) == (trigger.tracker, trigger.tid)
    if on == "offcpu":
        assert "interruptible" == trigger.what
        assert log[1][0] <= trigger.start_ns <= trigger.time_ns <= log[1][1]
    kinds = set(np.concatenate(snapshot.events)["kind"].tolist())
    assert SWITCH in kinds
    assert (CALL in kinds) == (on == "offcpu")


def test_a_snapshot_can_be_asked_for_and_shown(tmp_path):
    with (
        program(SLEEPS, json.dumps([5] * 2000)) as running,
        recording(tmp_path, "--pid", str(running.pid), "-o", "json", "--slower-than", "1h"),
    ):
        go(running)
        asked = subprocess.run([COMMAND, "record", "trigger", "--dir", tmp_path], check=True, capture_output=True)
        file = asked.stdout.decode().strip()
        row = json.loads(wait_until((tmp_path / "out").read_text, "a row"))
    assert Path(file).name == Path(row["file"]).name
    assert "" == row["trigger"]["tracker"]
    text = subprocess.run([COMMAND, "record", "show", file], check=True, capture_output=True, text=True).stdout
    assert text.startswith("asked for at ")
    assert f"of process {running.pid}" in text
    page = subprocess.run([COMMAND, "record", "show", file, "-o", "html"], check=True, capture_output=True, text=True)
    assert '<body class="full">' in page.stdout


def test_a_slow_call_is_told_as_syscalls_tells_it_and_one_that_is_left_out_is_not():
    mine = Knobs(50 * MS, tgid=os.getpid(), left_out=frozenset({number("poll") or 0}))
    with tracking(RECORDER, mine) as tracked:
        select.poll().poll(60)
        time.sleep(0.06)
        found = tracked.until(lambda found: found, "the sleep")
    assert [number("clock_nanosleep")] == [
        int(record["payload"][0]) for record, _ in found if record["tid"] == threading.get_native_id()
    ]


def test_it_ends_after_as_many_snapshots_as_were_asked_for(tmp_path):
    with (
        program(SLEEPS, json.dumps([60] * 5)) as running,
        recording(tmp_path, "--pid", str(running.pid), "--slower-than", "50ms", "--count", "1") as tool,
    ):
        go(running)
        assert 0 == tool.wait(30)
    assert 1 == len(snapshots(tmp_path))
    assert "lost: none" in (tmp_path / "err").read_text()
