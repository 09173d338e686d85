"""The tracker table: each row has its object, its number and its tests."""

import re
from pathlib import Path

import pytest

from latencyprobe_agent.signals.trackers import TRACKERS
from latencyprobe_agent.vocabulary.records import Tracker as Number

ROOT = Path(__file__).parents[2]


def test_every_number_has_a_row():
    assert [f"tracker_{number.name.lower()}" for number in Number] == [tracker.name for tracker in TRACKERS]


@pytest.mark.parametrize("tracker", TRACKERS, ids=lambda tracker: tracker.name)
def test_a_row_has_an_object_with_the_events_that_it_names(tracker):
    source = (ROOT / f"bpf/{tracker.name}.bpf.c").read_text()
    assert f"#define TRACKER {tracker.name.upper()}\n" in source
    if '#include "tracker_calls.bpf.h"' in source:
        source += (ROOT / "bpf/tracker_calls.bpf.h").read_text()
    assert tracker.stacks == ('#include "tracker_stack.bpf.h"' in source)
    events = set(re.findall(r"BPF_PROG\(([a-z]+)__", source))
    assert {event for _, event in tracker.on_request} | set(tracker.optional) <= events


@pytest.mark.parametrize("tracker", TRACKERS, ids=lambda tracker: tracker.name)
def test_a_row_is_explained_and_tested(tracker):
    short = tracker.name.removeprefix("tracker_")
    assert f"`{short}`" in (ROOT / "docs/design/tracker.md").read_text()
    tests = "".join(path.read_text() for path in (ROOT / "tests/bpf").glob("test_tracker_*.py"))
    assert re.search(rf"tracking\({short.upper()}, ", tests)
