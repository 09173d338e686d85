"""The flight recorder's programs: nothing is lost untold while it is copied, and what is asked for is kept."""

import json
import os
import select
import threading
import time

import numpy as np
import pytest

from latencyprobe_agent.kernel.recording import SLOT_BYTES, Copied, RecorderPrograms
from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.signals.trackers import RECORDER
from latencyprobe_agent.vocabulary.records import RecordedKind
from latencyprobe_agent.vocabulary.syscalls import number
from tests.bpf.waiting_programs import SLEEPS, go, program, said
from tests.truth.recorder import OBJECTS
from tests.truth.tracking import MS, tracking

pytestmark = [pytest.mark.root, pytest.mark.usefixtures("needs_storage")]

NEVER = Knobs(1 << 62)
# Waits for a word, then makes so many calls that nothing else makes.
CALLS = """
import os, sys
sys.stdin.readline()
for _ in range(int(sys.argv[1])):
    os.getppid()
print("done", flush=True)
"""


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


def test_a_slow_call_is_told_as_syscalls_tells_it_and_one_that_is_left_out_is_not():
    mine = Knobs(50 * MS, tgid=os.getpid(), left_out=frozenset({number("poll") or 0}))
    with tracking(RECORDER, mine) as tracked:
        select.poll().poll(60)
        time.sleep(0.06)
        found = tracked.until(lambda found: found, "the sleep")
    assert [number("clock_nanosleep")] == [
        int(record["payload"][0]) for record, _ in found if record["tid"] == threading.get_native_id()
    ]
