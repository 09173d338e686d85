"""What a snapshot should have and has not: known by what does not fit together."""

import numpy as np
import pytest

from latencyprobe_agent.recording.snapshot import (
    EVENT,
    FOLLOWED,
    OTHER_FOLLOWED,
    PREEMPTED,
    SWITCH,
    WAKEUP,
    Cpu,
    Snapshot,
)
from latencyprobe_agent.recording.text import lines
from latencyprobe_agent.recording.untold import Untold, untold
from tests.latencyprobe_agent.test_recording_timeline import header

LEFT, CAME, WOKEN, PREEMPTED_ONE = "left", "came", "woken", "preempted"


def snapshot(
    *of: tuple[str, int], missing: int = 0, from_ns: int = 0, to_ns: int = 1000, contents: str = "switches,wakeups"
) -> Snapshot:
    """Events one after the other, of a thread each; even ones on one CPU, odd ones on another."""
    events = np.zeros(len(of), EVENT)
    for at, (event, (what, tid)) in enumerate(zip(events, of, strict=True)):
        event["time_ns"] = 100 + at
        event["kind"] = WAKEUP if what == WOKEN else SWITCH
        event["tid" if what in (LEFT, PREEMPTED_ONE) else "other_tid"] = tid
        if what != WOKEN:
            event["flags"] = OTHER_FOLLOWED if what == CAME else FOLLOWED | PREEMPTED * (what == PREEMPTED_ONE)
    cpus = [Cpu(0, 0, 0, to_ns, 0, 0), Cpu(1, 0, from_ns, 1000, 9 * bool(from_ns), missing)]
    return Snapshot(header(cpus=cpus, contents=contents.split(",")), [events[::2], events[1::2]])


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ([(CAME, 1), (LEFT, 1), (WOKEN, 1), (CAME, 1), (PREEMPTED_ONE, 1), (CAME, 1)], (0, 0)),
        ([(CAME, 1), (LEFT, 1), (CAME, 1)], (0, 1)),
        ([(CAME, 1), (WOKEN, 1), (LEFT, 1), (CAME, 1)], (0, 0)),
        ([(CAME, 1), (LEFT, 1), (LEFT, 1)], (1, 1)),
        ([(CAME, 1), (LEFT, 1), (WOKEN, 1), (LEFT, 1), (CAME, 1)], (1, 1)),
        ([(CAME, 1), (CAME, 1)], (1, 0)),
        ([(CAME, 1), (LEFT, 1), (CAME, 2), (LEFT, 2), (WOKEN, 1), (CAME, 1), (WOKEN, 2), (CAME, 2)], (0, 0)),
        ([(LEFT, 1), (CAME, 1), (CAME, 2)], (0, 0)),
        ([(CAME, 1), (LEFT, 1), (WOKEN, 2)], (0, 0)),
        ([], (0, 0)),
    ],
    ids=[
        "all of it",
        "blocked, and came unwoken",
        "woken while it was about to block",
        "a coming and its wake-up",
        "a coming, and the next wake-up",
        "a leaving",
        "two threads, each its own",
        "what was before is not known",
        "it has not come again",
        "nothing",
    ],
)
def test_what_does_not_fit_together_is_counted(of: list[tuple[str, int]], expected: tuple[int, int]):
    assert Untold(*expected) == untold(snapshot(*of))


def test_what_is_counted_or_overwritten_or_not_kept_is_not_counted_once_more():
    of = [(CAME, 1), (LEFT, 1), (CAME, 1), (CAME, 1)]
    assert Untold(1, 1) == untold(snapshot(*of))
    assert Untold(0, 0) == untold(snapshot(*of, missing=1))
    assert Untold(1, 0) == untold(snapshot(*of, from_ns=102))
    assert Untold(1, 0) == untold(snapshot(*of, contents="switches"))
    assert Untold(0, 0) == untold(snapshot(contents="wakeups"))


@pytest.mark.parametrize(
    ("of", "expected"),
    [
        ([(CAME, 1), (WOKEN, 2), (WOKEN, 3), (CAME, 1)], (0, 0)),
        ([(CAME, 1), (CAME, 2), (LEFT, 1), (CAME, 1)], (0, 0)),
        ([(CAME, 1), (CAME, 1), (LEFT, 1), (CAME, 1)], (1, 0)),
    ],
    ids=["its leaving", "its wake-up", "what is missing before that"],
)
def test_what_the_cpu_that_was_copied_first_had_after_that_is_not_missing(
    of: list[tuple[str, int]], expected: tuple[int, int]
) -> None:
    assert Untold(*expected) == untold(snapshot(*of, to_ns=102))


def test_the_summary_says_it():
    said = list(lines(snapshot((CAME, 1), (LEFT, 1), (CAME, 1), (CAME, 1))))
    assert "the kernel told no program of 1 switches, 1 wake-ups" in said
    assert not [line for line in lines(snapshot((CAME, 1), (LEFT, 1))) if "no program" in line]
