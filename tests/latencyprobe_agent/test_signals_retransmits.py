"""Retransmits: the reason rule over recorded fields, and what the join, spans and metrics get of a batch."""

from errno import EBUSY, EPERM

import numpy as np
import pytest

from latencyprobe_agent.signals.join_keys import RECENT_HALF
from latencyprobe_agent.signals.retransmits import EXPLAINS, KEY, columns, counted, reasons, samples
from latencyprobe_agent.vocabulary.records import (
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    EXCHANGE,
    RETRANSMIT,
    RetransmitKind,
    Role,
)

ESTABLISHED, SYN_SENT, SYN_RECV = 1, 2, 3
OPEN, DISORDER, CWR, RECOVERY, LOSS = range(5)
RETRANSMIT_TIMER, LOSS_PROBE, REORDERING = 1, 5, 6
SYN = 0x02


def records(*rows):
    """RETRANSMIT[n]: a segment of an established connection unless a row says otherwise; `role` is the header's."""
    found = np.zeros(len(rows), RETRANSMIT)
    for record, row in zip(found, rows, strict=True):
        usual = {"kind": RetransmitKind.SEGMENT, "tcp_state": ESTABLISHED, "snd_wnd": 64_000, "undo_marker": 77}
        usual |= {"segs": 1, "len": 1448, "seq": 1000, "end_seq": 2448, "tcp_flags": 0x10}
        for name, value in {**usual, **row}.items():
            into = record["flow"] if name in ("role", "sock_cookie") else record
            into[name] = value
    return found


def reason(**row):
    return str(reasons(records(row))[0])


@pytest.mark.parametrize(
    ("wanted", "row"),
    [  # as measured on Linux 6.18
        ("syn", {"tcp_state": SYN_SENT, "ca_state": LOSS, "icsk_retransmits": 1, "tcp_flags": SYN}),
        ("tlp", {"ca_state": OPEN, "icsk_pending": LOSS_PROBE, "sacked": 0x80}),
        ("rto", {"ca_state": LOSS, "icsk_retransmits": 1, "sacked": 0x84}),
        ("fast", {"ca_state": RECOVERY, "icsk_pending": LOSS_PROBE}),
    ],
)
def test_measured_fields_give_their_reason(wanted, row):
    assert wanted == reason(**row)


@pytest.mark.parametrize(
    ("wanted", "row"),
    [
        ("failed", {"err": -EPERM, "ca_state": LOSS, "icsk_retransmits": 1}),
        ("failed", {"err": -EBUSY, "icsk_pending": LOSS_PROBE}),
        ("synack", {"kind": RetransmitKind.SYNACK, "tcp_state": 12, "tcp_flags": 0x12}),
        ("syn", {"tcp_state": SYN_RECV, "ca_state": LOSS, "tcp_flags": 0x12}),
        ("zero_window_probe", {"snd_wnd": 0, "ca_state": LOSS, "icsk_retransmits": 3}),
        ("rto", {"snd_wnd": 0, "ca_state": LOSS, "icsk_retransmits": 1, "tcp_state": SYN_RECV}),
        ("tlp", {"ca_state": DISORDER, "icsk_pending": LOSS_PROBE}),
        ("tlp", {"ca_state": CWR, "icsk_pending": LOSS_PROBE}),
        ("rack_reo", {"ca_state": RECOVERY, "icsk_pending": REORDERING}),
        ("fast", {"ca_state": RECOVERY, "icsk_pending": RETRANSMIT_TIMER}),
        ("slow_start", {"ca_state": LOSS, "icsk_pending": RETRANSMIT_TIMER, "icsk_retransmits": 1}),
        ("slow_start", {"ca_state": LOSS, "icsk_pending": REORDERING, "icsk_retransmits": 1}),
        ("pmtu", {"ca_state": LOSS, "undo_marker": 0}),
        ("other", {"ca_state": LOSS}),
        ("other", {"ca_state": OPEN}),
    ],
)
def test_first_row_of_the_table_that_matches_is_the_reason(wanted, row):
    assert wanted == reason(**row)


def test_what_sent_nothing_has_no_reason():
    kinds = (RetransmitKind.PROBE, RetransmitKind.UNDO, RetransmitKind.SENT)
    assert ["", "", ""] == reasons(records(*({"kind": kind, "err": -1} for kind in kinds))).tolist()


def test_a_batch_has_the_reasons_of_its_records_one_by_one():
    rng = np.random.default_rng(11)
    rows = [
        {
            "ca_state": int(ca),
            "icsk_pending": int(pending),
            "icsk_retransmits": int(timeouts),
            "snd_wnd": int(window),
            "undo_marker": int(undo),
        }
        for ca, pending, timeouts, window, undo in rng.integers(0, (5, 7, 3, 2, 2), (300, 5))
    ]
    assert [reason(**row) for row in rows] == reasons(records(*rows)).tolist()


def test_join_gets_ranges_of_bytes_but_of_a_bare_fin_and_of_a_handshake():
    evidence = columns(
        records(
            {},
            {"len": 0, "seq": 2448, "end_seq": 2449, "tcp_flags": 0x11},
            {"len": 0, "seq": 999, "end_seq": 1000, "tcp_flags": SYN},
            {"kind": RetransmitKind.SYNACK, "len": 0, "seq": 999, "end_seq": 1000},
            {"err": -EPERM},
            {"kind": RetransmitKind.SENT},
        )
    )
    assert [(1000, 2448), (2448, 2448)] == evidence.key[["seq", "end_seq"]][:2].tolist()
    assert [1000, 1000] == evidence.key["first_seq"][2:4].tolist()
    assert [False, False, True, True, False, False] == evidence.key["handshake"].tolist()
    assert [True, True, True, True, False, False] == evidence.joins.tolist()


def test_a_handshake_joins_the_first_exchange_and_a_segment_the_one_whose_bytes_it_has():
    halves = np.zeros(2, RECENT_HALF)
    halves["at"], halves["fresh"], halves["seq"], halves["end_seq"] = (1, 2), (True, False), (1000, 1500), (1500, 2000)
    rows = {"len": 0, "seq": 999, "end_seq": 1000, "tcp_flags": SYN}, {"seq": 1600, "end_seq": 1700}, {"seq": 2500}
    assert [0, 1, -1] == KEY.find(halves, columns(records(*rows)).key).tolist()


def test_other_records_are_refused():
    with pytest.raises(TypeError, match="RETRANSMIT"):
        columns(np.zeros(1, EXCHANGE))


def by_metric(found):
    """Value by metric and labels."""
    values = {}
    for sample in found:
        labels = [column.tolist() for column in sample.labels.values()]
        for value, *key in zip(sample.values.tolist(), *labels, strict=True):
            values[sample.metric.name.removeprefix("latencyprobe.tcp."), *key] = value
    return values


def test_metrics_of_records_count_segments_by_reason_and_direction():
    client = {"role": Role.CLIENT}
    evidence = columns(
        records(
            {**client, "segs": 3, "ca_state": RECOVERY},
            {"role": Role.SERVER, "segs": 2, "ca_state": RECOVERY},
            {**client, "err": -EPERM, "ca_state": LOSS},
            {**client, "err": -EBUSY, "ca_state": LOSS},
            {**client, "kind": RetransmitKind.UNDO, "segs": 4},
        )
    )

    assert by_metric(samples(evidence)) == {
        ("retransmits", "request", "fast"): 3,
        ("retransmits", "response", "fast"): 2,
        ("retransmits.failed", "request", "EPERM"): 1,
        ("retransmits.failed", "request", "EBUSY"): 1,
    }


def test_metrics_of_what_the_kernel_counted_need_no_record():
    keys, gained = np.zeros(2, COUNTS_KEY), np.zeros(2, EVIDENCE_COUNTS)
    keys["role"] = Role.CLIENT, Role.SERVER
    gained["segs_sent"], gained["bytes_sent"] = (9, 1), (900, 100)
    gained["segs_retrans"][0], gained["bytes_retrans"][0], gained["segs_unrecorded"][0] = 5, 500, 2
    gained["undone"][1], gained["duplicates"][1] = 4, 3

    assert by_metric(counted(keys, gained)) == {
        ("retransmits", "request", "unrecorded"): 2,
        ("retransmits.spurious", "response", "undo"): 4,
        ("retransmits.spurious", "response", "dsack"): 3,
        ("sent.segments", "request"): 9,
        ("sent.segments", "response"): 1,
        ("sent.size", "request"): 900,
        ("sent.size", "response"): 100,
        ("retransmitted.segments", "request"): 5,
        ("retransmitted.size", "request"): 500,
    }


def test_event_says_what_was_sent_again_and_the_span_how_much():
    both = records({"ca_state": RECOVERY, "segs": 2, "len": 2896, "nth": 1}, {"ca_state": LOSS, "icsk_retransmits": 1})

    assert EXPLAINS.fields(both[0]) == {
        "latencyprobe.reason": "fast",
        "latencyprobe.retransmit.segments": 2,
        "latencyprobe.retransmit.size": 2896,
        "latencyprobe.retransmit.nth": 1,
        "latencyprobe.tcp.state": "ESTABLISHED",
    }
    assert "latencyprobe.retransmit.nth" not in EXPLAINS.fields(both[1]), "0: not known"
    assert EXPLAINS.attributes(both) == {"latencyprobe.tcp.retransmits": 3}
    described = [EXPLAINS.describe(record, 7) for record in both]
    assert [(segs, 7) for segs in both["segs"].tolist()] == [(count, wait_ns) for ((_, count, wait_ns),) in described]
