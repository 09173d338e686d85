"""The rows, objects and sums of `latencyprobe retransmits`, made from records."""

import json
from errno import EBUSY
from ipaddress import ip_address

import numpy as np
import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.tools.options import Options
from latencyprobe_agent.tools.retransmits import Table, without_hook
from latencyprobe_agent.vocabulary.records import RETRANSMIT, RetransmitKind

UNIX_NS = 1_594_281_600 * 10**9  # 2020-07-09 08:00:00 UTC


def record(local="::ffff:10.0.0.1", peer="::ffff:10.0.0.2", **fields):
    found = np.zeros(1, RETRANSMIT)
    flow = found["flow"][0]
    flow["local_addr"] = np.frombuffer(ip_address(local).packed, np.uint8)
    flow["peer_addr"] = np.frombuffer(ip_address(peer).packed, np.uint8)
    flow["local_port"], flow["peer_port"], flow["family"] = 43210, 3306, 4 if local.startswith("::ffff:") else 6
    flow["owner_tgid"], flow["boot_ns"] = 77, 20_000_456_000
    usual = {"kind": RetransmitKind.SEGMENT, "tcp_state": 1, "ca_state": 3, "segs": 2, "len": 2896, "snd_wnd": 9}
    for name, value in {**usual, **fields}.items():
        found[name] = value
    return found


def shown(capsys, *records, output="table", pid=0, count=False, seq=False):
    table = Table(Options(Filter(tgid=pid), None, output), None, seq, count)
    table.begin()
    table.show(np.concatenate(records), UNIX_NS)
    table.end()
    return capsys.readouterr()


def test_row_is_as_wide_as_its_header(capsys):
    header, row = shown(capsys, record()).out.splitlines()
    assert row == (
        "08:00:20.000456 77      4  10.0.0.1:43210         R> 10.0.0.2:3306          ESTABLISHED  fast"
        "                 2 2896"
    )
    for name, value in {"PID": "77", "LADDR": "10.0.0.1", "RADDR": "10.0.0.2", "REASON": "fast", "LEN": "2896"}.items():
        assert header.index(name) == row.index(value)


def test_ipv6_has_brackets_and_a_sequence_number_comes_last(capsys):
    _, row = shown(capsys, record("fd99::1", "fd99::2", seq=4_000_000_000), seq=True).out.splitlines()
    assert "6  [fd99::1]:43210        R> [fd99::2]:3306" in row
    assert row.endswith(" 2896 4000000000")


def test_loss_probe_attempts_are_rows_and_marks_are_not(capsys):
    probe = record(kind=RetransmitKind.PROBE, segs=0, len=0)
    undo = record(kind=RetransmitKind.UNDO, segs=3, new_duplicates=1)
    said = shown(capsys, probe, undo)
    (row,) = said.out.splitlines()[1:]
    assert "L> 10.0.0.2:3306          ESTABLISHED  -                    0 0" in row
    assert "sent again in vain: 4 segments, 1 by dsack, 3 by undo\n" == said.err


def test_only_what_was_sent_is_counted_largest_flow_first(capsys):
    other = {"peer": "::ffff:10.0.0.9"}
    failed = record(err=-EBUSY, segs=50)
    lines = shown(capsys, record(), record(**other, segs=7), record(), failed, count=True).out.splitlines()
    assert ["10.0.0.1:43210       <-> 10.0.0.9:3306                 7"] == lines[:1]
    assert ["10.0.0.1:43210       <-> 10.0.0.2:3306                 4"] == lines[1:]


@pytest.mark.parametrize(("pid", "rows"), [(77, 1), (78, 0)])
def test_process_filter(capsys, pid, rows):
    assert rows == len(shown(capsys, record(), pid=pid).out.splitlines()) - 1


def test_objects_have_the_fields_own_names(capsys):
    (one,) = map(json.loads, shown(capsys, record(tcp_flags=0x11, err=-EBUSY), output="json").out.splitlines())
    assert ("2020-07-09T08:00:20.000456Z", "R", "failed", -EBUSY, True) == tuple(
        one[name] for name in ("time", "type", "reason", "err", "fin")
    )
    assert (77, "ESTABLISHED", 9) == (one["owner_tgid"], one["tcp_state"], one["snd_wnd"])


def test_stack_begins_where_the_kernel_called_the_tracepoint():
    hook = ["bpf_prog_6deef7357e7b4530", "bpf_trace_run3", "__traceiter_tcp_retransmit_skb"]
    below = ["__tcp_retransmit_skb", "tcp_ack", "bpf_map_copy_value", "__sys_bpf"]
    assert below == without_hook([*hook, *below]), "a process in bpf(2) was interrupted"
    assert ["tcp_ack"] == without_hook(["tcp_ack"])
