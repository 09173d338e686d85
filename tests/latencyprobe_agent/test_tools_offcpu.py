"""The rows, objects and sums of `latencyprobe offcpu` and `latencyprobe track`, made from records."""

import json

import numpy as np
import pytest

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.tools import offcpu, track
from latencyprobe_agent.tools.watching import Watching
from latencyprobe_agent.vocabulary.records import TRACKER_STATISTICS, OffcpuReason
from tests.support.tracked import record

UNIX_NS = 1_594_281_600 * 10**9  # 2020-07-09 08:00:00 UTC
MS = 1_000_000
DISK = OffcpuReason.DISK


class Names:
    """Names of frames, by their place."""

    NAMES = (
        "bpf_prog_1",
        "bpf_trace_run1",
        "try_to_wake_up",
        "futex_wake",
        "asm_sysvec_apic_timer_interrupt",
        "blocked",
    )

    def kernel(self, addresses):
        return [self.NAMES[address] for address in addresses]


def shown(capsys, *found, output="table", stats=False, statistics=None):
    table = offcpu.Table(Watching(Knobs(1), None, output, stats), Names())
    table.begin()
    for one, stacks in found:
        table.show(one, stacks, UNIX_NS)
    table.end(np.zeros(4, TRACKER_STATISTICS) if statistics is None else statistics)
    return capsys.readouterr().out


def test_row_is_as_wide_as_its_header_and_its_stacks_stand_below(capsys):
    wait = (record(payload=[DISK, 2]), Stacks(((50 * MS, (5,)),), (), (0, 1, 2, 3), woken_by=("gc", 90, 91)))
    header, row, *below = shown(capsys, wait).splitlines()
    assert row == "08:00:00.000000 worker          77      78      disk          50ms"
    assert header.index("REASON") == row.index("disk")
    assert below == [
        " blocked in:",
        " => blocked",
        " woken by gc, process 90, thread 91:",
        " => try_to_wake_up",
        " => futex_wake",
    ]


@pytest.mark.parametrize(
    ("by", "stack", "title"),
    [
        (("gc", 90, 91), (0, 2, 4), "woken by an interrupt (of gc, process 90, thread 91)"),
        (("swapper/0", 0, 0), (0, 2, 4), "woken by an interrupt (of an idle processor)"),
        (("gc", 90, 91), (), "woken by gc, process 90, thread 91"),
    ],
)
def test_an_interrupt_that_wakes_is_no_work_of_the_task_that_it_came_upon(capsys, by, stack, title):
    assert f" {title}:\n" in shown(capsys, (record(payload=[1, 1]), Stacks((), (), stack, woken_by=by)))


def test_json_has_an_object_a_line(capsys):
    wait = (record(payload=[DISK, 2]), Stacks(((50 * MS, (5,)),), (), (2, 4), woken_by=("gc", 90, 91)))
    found = json.loads(shown(capsys, wait, output="json"))
    assert ("disk", ["blocked"], 50 * MS) == (found["reason"], found["kernel_stack"], found["duration_ns"])
    waker = {"comm": "gc", "tgid": 90, "tid": 91, "interrupt": True}
    assert {**waker, "kernel_stack": ["try_to_wake_up", "asm_sysvec_apic_timer_interrupt"]} == found["waker"]


def test_statistics_are_a_line_a_reason(capsys):
    statistics = np.zeros(4, TRACKER_STATISTICS)
    statistics[DISK] = (2, 30 * MS, 10 * MS, 20 * MS)
    _, line = shown(capsys, stats=True, statistics=statistics).splitlines()
    assert ["disk", "2", "10ms", "15ms", "20ms", "30ms"] == line.split()


@pytest.mark.parametrize("output", ["table", "json"])
def test_the_other_trackers_have_a_row_each(capsys, output):
    table = track.Table("net", Watching(Knobs(1), None, output, stats=False))
    table.begin()
    table.show(record(payload=[1448, 0]), UNIX_NS)
    out = capsys.readouterr().out
    if output == "table":
        header, row = out.splitlines()
        assert row == "08:00:00.000000 worker          77      78      50ms"
        assert header.index("DURATION") == row.index("50ms")
    else:
        found = json.loads(out)
        assert ("net", 1448, 50 * MS, "worker") == tuple(
            found[name] for name in ("tracker", "bytes", "duration_ns", "comm")
        )
