"""From what is kept to a snapshot: the window, what it covers, and how often there is one."""

import numpy as np

from latencyprobe_agent.recording.snapshot import CALL, COMPAT, EVENT, Cpu
from latencyprobe_agent.recording.taking import AT_MOST_EVERY_NS, Pace, calls, window
from latencyprobe_agent.vocabulary.records import RECORDED_VALUE

S = AT_MOST_EVERY_NS


def kept(*times_ns: int) -> np.ndarray:
    values = np.zeros(len(times_ns), RECORDED_VALUE)
    values["number"] = np.arange(len(times_ns)) + 40
    values["record"]["time_ns"] = times_ns
    values["record"]["comm"][:, :3] = np.frombuffer(b"abc", np.uint8)
    values["record"]["ret"] = -4
    return values


def test_there_is_at_most_one_snapshot_a_second_and_the_others_are_counted():
    pace = Pace()
    assert [True, False, False, True] == [pace.allows(now_ns) for now_ns in (5, 6, S + 4, S + 5)]
    assert [2, 0] == [pace.told(), pace.told()]
    assert not pace.allows(S + 6)
    assert 1 == pace.told()


def test_a_window_has_what_is_younger_than_its_beginning():
    cpu, events = window(kept(10, 20, 30, 40), Cpu(1, 0, 5, 45, 3, 0), 25)
    assert Cpu(1, 2, 25, 45, 3, 0) == cpu
    assert [(42, 30, b"abc", -4), (43, 40, b"abc", -4)] == events[["number", "time_ns", "comm", "ret"]].tolist()


def test_a_window_that_reaches_further_back_than_what_is_kept_says_how_far():
    cpu, events = window(kept(10, 20), Cpu(1, 0, 10, 45, 3, 0), 2)
    assert 10 == cpu.from_ns
    assert [40, 41] == events["number"].tolist()


def test_an_event_with_an_earlier_stamp_and_a_later_number_is_in_the_window():
    _, events = window(kept(10, 26, 24, 40), Cpu(1, 0, 5, 45, 0, 0), 25)
    assert [41, 42, 43] == events["number"].tolist()


def test_a_window_after_all_events_covers_it_and_has_none():
    cpu, events = window(kept(10), Cpu(1, 0, 5, 45, 0, 0), 30)
    assert (0, 30, 45) == (cpu.events, cpu.from_ns, cpu.to_ns)
    assert 0 == len(events)


def test_only_calls_of_this_machines_table_have_names():
    events = np.zeros(3, EVENT)
    events["kind"], events["nr"], events["flags"] = (CALL, CALL, 2), (1, 2, 3), (0, COMPAT, 0)
    assert {1: "call 1"} == calls([events], lambda nr: f"call {nr}")
