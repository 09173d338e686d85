"""The rows, objects and sums of `latencyprobe syscalls`, made from records."""

import json
import re

import numpy as np
import pytest
from click.testing import CliRunner

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.measure.calls_in_progress import Stacks
from latencyprobe_agent.tools.syscalls import IDLE, Table, returned, syscalls
from latencyprobe_agent.tools.watching import Watching
from latencyprobe_agent.vocabulary.records import TRACKER_STATISTICS, TrackedFlag
from latencyprobe_agent.vocabulary.syscalls import number
from tests.support.tracked import record

UNIX_NS = 1_594_281_600 * 10**9  # 2020-07-09 08:00:00 UTC
MS = 1_000_000


class Names:
    """Names of frames by their place: k1, k2 in the kernel, u1, u2 outside, 0 none. Of a caller it is one less."""

    def kernel(self, addresses):
        return [f"k{address}" for address in addresses]

    def user(self, tgid, addresses, *, taken_ns=0):
        return [f"u{address}" if address > 0 else "[unknown]" for address in addresses]


def shown(capsys, *found, output="table", stats=False, frame=None, statistics=None):
    table = Table(Watching(Knobs(1), None, output, stats), frame and re.compile(frame), Names())
    table.begin()
    for one, stacks in found:
        table.show(one, stacks, UNIX_NS)
    table.end(np.zeros(512, TRACKER_STATISTICS) if statistics is None else statistics)
    return capsys.readouterr().out


def fsync(**fields):
    return record(payload=[number("fsync"), 0], **fields)


def test_row_is_as_wide_as_its_header(capsys):
    header, row = shown(capsys, (fsync(ret=-5), Stacks())).splitlines()
    assert row == "08:00:00.000000 worker          77      78      fsync                  50ms -EIO"
    for name, value in {"COMM": "worker", "TGID": "77", "TID": "78 ", "SYSCALL": "fsync", "RET": "-EIO"}.items():
        assert header.index(name) == row.index(value)


def test_what_goes_on_has_no_return_value_yet(capsys):
    _, row = shown(capsys, (fsync(flag=TrackedFlag.TIMEOUT, comm=b"\0" * 16), Stacks())).splitlines()
    assert row.endswith(">50ms -")
    assert " -  " in row


def test_a_name_cannot_send_a_terminal_anything(capsys):
    assert "\ufffd[2Jx" in shown(capsys, (fsync(comm=b"\x1b[2Jx\0"), Stacks()))


def test_stacks_stand_below_their_row_the_longest_wait_first(capsys):
    stacks = Stacks(((10 * MS, (1, 3)), (45 * MS, (3,))), (4, 6), user_complete=True)
    lines = shown(capsys, (fsync(), stacks)).splitlines()[2:]
    assert lines == [" waited 35ms:", " => k3", " waited 10ms:", " => k1", " => k2", " called by:", " => u4", " => u5"]


@pytest.mark.parametrize("stacks", [Stacks((), (4,)), Stacks((), (4, 0), user_complete=True)])
def test_a_user_stack_that_leads_nowhere_says_so(capsys, stacks):
    assert "incomplete" in shown(capsys, (fsync(), stacks))


def test_only_calls_below_a_frame(capsys):
    found = [(fsync(tid=tid), Stacks((), (tid,))) for tid in (1, 2, 3)]
    assert ["1", "3"] == [
        line.split()[3] for line in shown(capsys, *found, frame="u[13]").splitlines() if "fsync" in line
    ]


def test_json_has_an_object_a_line(capsys):
    stacks = Stacks(((10 * MS, (1,)),), (4,), user_complete=True, truncated=True)
    lines = shown(capsys, (fsync(), stacks), (fsync(flag=TrackedFlag.TIMEOUT), Stacks()), output="json").splitlines()
    ended, going_on = map(json.loads, lines)
    assert ended == {
        "time": "2020-07-09T08:00:00.000000Z",
        "comm": "worker",
        "tgid": 77,
        "tid": 78,
        "cgroup_id": 5,
        "duration_ns": 50 * MS,
        "goes_on": False,
        "syscall": "fsync",
        "nr": number("fsync"),
        "ret": 0,
        "kernel_stacks": [{"waited_ns": 10 * MS, "frames": ["k1"]}],
        "user_stack": ["u4"],
        "user_stack_complete": True,
        "stack_truncated": True,
    }
    assert (True, None) == (going_on["goes_on"], going_on["ret"])


def test_a_call_of_the_32_bit_table_has_no_name_of_the_other(capsys):
    assert "compat_118" in shown(capsys, (record(payload=[118, 1]), Stacks()))


@pytest.mark.parametrize(("ret", "text"), [(0, "0"), (17, "17"), (-2, "-ENOENT"), (-514, "-ERESTARTNOHAND")])
def test_errors_have_names(ret, text):
    assert text == returned(ret)


@pytest.mark.parametrize("output", ["table", "json"])
def test_statistics_are_a_line_a_call_the_largest_total_first(capsys, output):
    statistics = np.zeros(512, TRACKER_STATISTICS)
    statistics[number("read")] = (2, 30 * MS, 10 * MS, 20 * MS)
    statistics[number("fsync")] = (1, 40 * MS, 40 * MS, 40 * MS)
    lines = shown(capsys, output=output, stats=True, statistics=statistics).splitlines()
    if output == "table":
        assert ["SYSCALL", "COUNT", "MIN", "AVERAGE", "MAX", "TOTAL"] == lines[0].split()
        assert [["fsync", "1", *["40ms"] * 4], ["read", "2", "10ms", "15ms", "20ms", "30ms"]] == [
            line.split() for line in lines[1:]
        ]
    else:
        assert ["fsync", "read"] == [json.loads(line)["syscall"] for line in lines]
        assert 15 * MS == json.loads(lines[1])["average_ns"]


def test_statistics_of_the_32_bit_table_are_not_those_of_other_calls_with_its_numbers(capsys):
    statistics = np.zeros(1024, TRACKER_STATISTICS)
    statistics[number("fsync")] = statistics[512 + number("fsync")] = (1, MS, MS, MS)
    lines = shown(capsys, stats=True, statistics=statistics).splitlines()
    assert ["SYSCALL", "fsync", f"compat_{number('fsync')}"] == [line.split()[0] for line in lines]


def test_calls_in_which_servers_wait_are_known_by_name():
    known = [name for name in IDLE if number(name) is not None]
    assert {"epoll_wait", "poll", "select", "futex", "accept4", "recvmsg"} <= set(known)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "say whose"),
        (["--all", "--pid", "1"], "exclude each other"),
        (["--all", "--frame", "main"], "--stacks user"),
        (["--all", "--stacks", "user", "--frame", "("], "regular expression"),
        (["--all", "--include", "fsink"], "no system call"),
        (["--comm", "a name that is far too long"], "1 to 15 bytes"),
        (["--all", "--slower-than", "20"], "no duration"),
        (["--cgroup", "/nowhere"], "does not exist"),
    ],
)
def test_wrong_usage_is_told_with_its_remedy(words, message):
    result = CliRunner().invoke(syscalls, words)
    assert 2 == result.exit_code
    assert message in result.output
