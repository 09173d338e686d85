"""Who had a CPU, as far as its switches tell; and never more than that."""

import numpy as np
import pytest

from latencyprobe_agent.recording.snapshot import (
    CALL,
    COMPAT,
    EVENT,
    FOLLOWED,
    OTHER_FOLLOWED,
    SWITCH,
    Cpu,
    Header,
    Snapshot,
    Trigger,
)
from latencyprobe_agent.recording.timeline import Slice, busy, called, lanes, name, running, stacked, tracks

CPU = Cpu(0, 0, 100, 1000, 0, 0)
ONE, TWO, IDLE = ("one", 1, 11), ("two", 2, 22), ("idle", 0, 0)


def header(**more: object) -> Header:
    told = {"contents": ["syscalls", "switches"], "calls": {74: "fsync"}, "cpus": [CPU]}
    return Header(
        version=1,
        trigger=Trigger(time_ns=900),
        unix_offset_ns=0,
        window_ns=800,
        keep_above_ns=0,
        fields=[],
        **{**told, **more},  # type: ignore[arg-type]
    )


def switches(*of: tuple[int, tuple[str, int, int], tuple[str, int, int]]) -> np.ndarray:
    """Switches at a time, of who leaves and who comes; followed is everybody but the idle task."""
    events = np.zeros(len(of), EVENT)
    events["kind"], events["number"] = SWITCH, np.arange(len(of)) + 1
    for event, (time_ns, leaves, comes) in zip(events, of, strict=True):
        event["time_ns"] = time_ns
        event["comm"], event["tgid"], event["tid"] = leaves
        event["other_comm"], event["other_tgid"], event["other_tid"] = comes
        event["flags"] = FOLLOWED * bool(leaves[1]) | OTHER_FOLLOWED * bool(comes[1])
    return events


def test_a_task_has_the_cpu_from_the_switch_to_it_until_the_switch_from_it():
    events = switches((200, ONE, TWO), (300, TWO, IDLE), (400, IDLE, ONE))
    assert [Slice(100, 200, *ONE), Slice(200, 300, *TWO), Slice(400, 1000, *ONE)] == running(events, CPU, header())


def test_who_is_not_followed_ran_for_an_unknown_time():
    """Of `one` only the switches from and to `two` are kept: it may have left and come again meanwhile."""
    events = switches((200, ONE, TWO), (300, TWO, ONE), (400, ONE, TWO), (500, TWO, ONE))
    events["flags"] = OTHER_FOLLOWED, FOLLOWED, OTHER_FOLLOWED, FOLLOWED
    assert [Slice(200, 300, *TWO), Slice(400, 500, *TWO)] == running(events, CPU, header())


def test_where_a_switch_is_missing_nobody_is_said_to_have_run():
    assert [Slice(300, 1000, *TWO)] == running(switches((200, IDLE, ONE), (300, IDLE, TWO)), CPU, header())


@pytest.mark.parametrize("whose", [{"comm": "two"}, {"cgroup_id": 7}], ids=str)
def test_who_became_one_of_those_that_are_followed_while_it_ran_has_not_run_since_the_window_began(whose):
    first = switches((200, TWO, IDLE), (300, IDLE, TWO), (400, TWO, IDLE))
    assert [Slice(300, 400, *TWO)] == running(first, CPU, header(**whose))
    between = switches((200, TWO, ONE), (300, ONE, IDLE))
    between["flags"] = FOLLOWED, FOLLOWED  # `one` came before it had the name
    assert [] == running(between, CPU, header(**whose))


def test_a_call_lasts_until_its_end_and_has_its_name():
    events = np.zeros(2, EVENT)
    events["kind"], events["time_ns"], events["duration_ns"] = CALL, (500, 700), (100, 400)
    events["nr"], events["flags"], events["ret"], events["comm"] = (74, 74), (0, COMPAT), (0, -5), b"one"
    events["tgid"], events["tid"] = 1, 11
    assert [Slice(300, 700, *ONE, "compat_74", -5), Slice(400, 500, *ONE, "fsync", 0)] == called(events, header())


def test_what_overlaps_has_lanes_of_its_own():
    of = [Slice(start, end, "", 1, 1) for start, end in ((0, 10), (1, 3), (2, 4), (3, 9), (10, 11))]
    assert [0, 1, 2, 1, 0] == lanes(of)


def test_calls_that_wait_for_work_lie_below_all_others():
    of = [Slice(start, end, "", 1, 1, idle=idle) for start, end, idle in ((0, 9, True), (1, 3, False), (2, 4, False))]
    assert [2, 0, 1] == stacked(of)
    events = np.zeros(2, EVENT)
    events["kind"], events["nr"], events["flags"] = CALL, 74, (0, COMPAT)
    assert {"fsync": True, "compat_74": False} == {call.what: call.idle for call in called(events, header(idle=[74]))}


def test_shares_are_of_each_part():
    slices = [Slice(*of, *ONE) for of in ((5, 10), (20, 30), (35, 37), (37, 38))]
    assert [0.5, 0.0, 1.0, 0.3] == busy(slices, 0, 40, 4)


def test_names_from_a_file_are_safe_for_a_terminal():
    assert "\ufffd[31mred" == name(b"\x1b[31mred")
    assert "\ufffd" == name(b"\xff")


def test_each_cpu_has_a_track():
    snapshot = Snapshot(header(), [switches((200, ONE, TWO))])
    ((cpu, ran, calls),) = tracks(snapshot)
    assert (CPU, 2, 0) == (cpu, len(ran), len(calls))
