"""The flight recorder as a command: what came before a trigger, beside the log of who did it."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.recording.snapshot import CALL, SWITCH, WAKEUP, Snapshot, decode
from latencyprobe_agent.recording.untold import untold
from latencyprobe_agent.vocabulary.syscalls import number
from tests.bpf.waiting_programs import SLEEPS, go, program, said
from tests.support.waiting import wait_until
from tests.truth.tracking import MS

pytestmark = [pytest.mark.root, pytest.mark.hideable, pytest.mark.usefixtures("needs_storage")]

COMMAND = str(Path(sys.executable).with_name("latencyprobe"))


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
    asked_ms = [2] * 100 + [2000]
    with (
        program(SLEEPS, json.dumps(asked_ms)) as running,
        recording(
            tmp_path, "--pid", str(running.pid), "--window", "30s", "--stacks", "kernel", "--slower-than", "1500ms"
        ),
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
    # the kernel may keep the switch at which it is taken from all programs (docs/design/tracker.md)
    assert not frames or any("nanosleep" in frame for frame in frames), trigger.kernel_stacks
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


def test_triggers_that_come_too_soon_are_counted(tmp_path):
    with (
        program(SLEEPS, json.dumps([60] * 30)) as running,
        recording(tmp_path, "--pid", str(running.pid), "--slower-than", "50ms"),
    ):
        go(running)
        assert 30 == len(json.loads(said(running)))
        running.wait(60)
    found = snapshots(tmp_path)
    told = re.search(r"snapshots: (\d+); suppressed triggers: (\d+)", (tmp_path / "err").read_text())
    assert told
    n, suppressed = map(int, told.groups())
    assert len(found) == n
    assert 30 == n + suppressed
    assert 0 == found[0].header.suppressed
    assert sum(one.header.suppressed for one in found) <= suppressed


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


def test_it_ends_after_as_many_snapshots_as_were_asked_for(tmp_path):
    with (
        program(SLEEPS, json.dumps([60] * 5)) as running,
        recording(tmp_path, "--pid", str(running.pid), "--slower-than", "50ms", "--count", "1") as tool,
    ):
        go(running)
        assert 0 == tool.wait(30)
    assert 1 == len(snapshots(tmp_path))
    assert "lost: none" in (tmp_path / "err").read_text()
