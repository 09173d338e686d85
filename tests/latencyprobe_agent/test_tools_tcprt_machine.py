"""The state machine of TCP-RT: the tables and deviations of docs/design/evidence.md, "TCP-RT", by replay."""

from itertools import chain, zip_longest

import pytest

from latencyprobe.errors import LatencyProbeError
from latencyprobe_agent.tools.tcprt import v6
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.replay import replay
from latencyprobe_agent.tools.tcprt.state import apart
from tests.truth.operations import EXAMPLE_LINES, Script, example

LOST = 0xFFFFFFFF


def records(script: Script) -> list[Record]:
    return list(replay(script.lines))


def lines(script: Script) -> list[str]:
    """V6 lines without the header's times and ends."""
    written = [v6.line(record) for record in records(script)]
    assert all(text.endswith(" \n") for text in written if text)
    return [" ".join([flag, *numbers]) for flag, *numbers in (short(text) for text in written if text)]


def short(text: str) -> list[str]:
    words = text.split()
    return [words[1], *words[6:]]


def test_the_example_is_written_byte_for_byte():
    written = "".join(v6.line(record) for record in records(example()))
    end = "V6 E 1594281600 20456 10.0.0.2:43210 10.0.0.1:3306 2 3397 0 1701 1 180 \n"
    assert EXAMPLE_LINES + end == written


def test_r_is_emitted_by_the_next_request_and_not_before():
    script = Script().recv_data(0, 100).send_data(1, 200).acked(2)
    assert [] == records(script)
    assert ["R"] == [record.kind for record in records(script.recv_data(50, 10))]


def test_a_request_that_comes_before_the_ack_ends_the_task():
    script = Script().recv_data(0, 100).send_data(1, 200).recv_data(5, 100)
    assert ["R 200 5000 180 0 1 1000 0 100 0 1448"] == lines(script)


def test_a_close_in_the_middle_of_a_request_writes_n_then_e():
    script = Script().recv_data(0, 100).recv_data(1, 50, ofo=True).release(9)
    assert ["N 1 9000 150 1 1448", "E 1 0 0 150 0 180"] == lines(script)


def test_a_close_before_the_last_ack_writes_w_then_e():
    script = Script().recv_data(0, 100).send_data(2, 2000).acked(3, 1448).release(9, total_retrans=3)
    assert ["W 2000 9000 180 3 1 2000 0 552 0 1448", "E 1 2000 552 100 3 180"] == lines(script)


def test_a_connection_without_a_task_writes_nothing_and_is_a_close_record_without_tasks():
    closed = records(Script().acked(1).release(2))
    assert [("E", 0, "")] == [(record.kind, record.task_no, v6.line(record)) for record in closed]


def test_a_response_of_nothing_but_a_fin_writes_a_bare_e():
    script = Script().recv_data(0, 100).send_data(1, 1).release(2)
    assert ["E 1 1 1 100 0 180"] == lines(script)


def test_the_final_r_takes_off_a_fin_whether_it_was_sent_or_not():
    task = Script().recv_data(0, 100).send_data(1, 200).acked(2)
    assert "R 199 2000 180 0 1 1000 0 100 0 1448" == lines(task.release(3))[0]
    whole = Script().recv_data(0, 100).send_data(1, 200).acked(2).fins().release(3)
    assert [200, 200] == [records(s)[0].sent_bytes for s in (whole, task)]


def test_an_ack_that_the_close_brings_ends_the_final_task():
    script = Script().recv_data(0, 100).send_data(1, 200)
    script.now["snd_una"] = script.now["snd_nxt"]
    assert "R 199 8000 180 0 1 1000 0 100 0 1448" == lines(script.release(8))[0]


def test_the_ack_of_one_byte_moves_only_the_corrected_end():
    script = Script().recv_data(0, 100).send_data(1, 1).acked(7).recv_data(9, 100)
    (record,) = records(script)
    assert 0 == record.v6_end_ns - record.start_ns
    assert 7_000_000 == record.end_ns - record.start_ns


def test_the_ack_of_a_fin_moves_no_end():
    script = Script().recv_data(0, 100).send_data(1, 200).acked(2).fins().acked(50).release(60)
    assert 2_000_000 == records(script)[0].end_ns - records(script)[0].start_ns


def test_data_before_the_first_request_is_no_task():
    script = Script().send_data(0, 80).acked(1).recv_data(2, 100).send_data(3, 10).acked(4).recv_data(5, 1)
    assert ["R 10 2000 180 0 1 1000 0 100 0 1448"] == lines(script)


def test_times_are_rounded_down_to_us_before_they_are_subtracted():
    script = Script(ms=-1).recv_data(0.0009, 10).send_data(0.0011, 5000).acked(0.0018).recv_data(1, 1)
    # 456.9 → 457.1 µs: one µs apart when rounded, 0.2 µs in truth; the total is rounded once
    assert ["R 5000 0 180 0 1 1 0 10 0 1448"] == lines(script)


def test_sequence_numbers_wrap_inside_a_task():
    near = {"snd_nxt": LOST - 99, "snd_una": LOST - 99, "rcv_nxt": LOST - 9}
    script = Script(**near).recv_data(0, 1000).send_data(5, 3000).acked(7, 1448).acked(8).recv_data(20, 1).fins()
    assert ["R 3000 8000 180 0 1 5000 0 1000 0 1448", "N 2 10000 2 0 1448", "E 2 3001 0 1002 0 180"] == lines(
        script.release(30)
    )
    assert (LOST - 99, 2900) == (records(script)[0].seq, records(script)[0].end_seq)


def test_no_rtt_sample_prints_all_ones():
    for none in (LOST, None):
        script = Script(min_rtt_us=none).recv_data(0, 1).release(1)
        assert "E 1 0 0 1 0 4294967295" == lines(script)[-1]


def test_server_time_has_64_bits():
    script = Script().recv_data(0, 1).send_data(5_000_000, 10).acked(5_000_001).recv_data(5_000_002, 1)
    assert ["R 10 5000001000 180 0 1 5000000000 0 1 0 1448"] == lines(script)


def test_e_of_v6_has_the_handshakes_retransmits_the_corrected_record_apart():
    script = Script(total_retrans=2).recv_data(0, 1).release(1, total_retrans=5)
    assert "E 1 0 0 1 5 180" == lines(script)[-1]
    assert (3, 2) == (records(script)[-1].retransmits, records(script)[-1].handshake_retransmits)


def test_corrected_close_counts_64_bits_without_fins():
    script = Script().recv_data(0, 1)
    for i in range(5):
        script.send_data(i + 1, 1 << 30).acked(i + 1.5)
    closed = records(script.fins().release(9))[-1]
    assert (5 << 30, 1) == (closed.sent_bytes, closed.received_bytes)
    assert (((5 << 30) + 1) % (1 << 32), 2) == (closed.v6_sent_bytes, closed.v6_received_bytes)


def test_p_spans_the_first_byte_sent_to_the_last_received():
    script = Script("peer").send_data(0, 300).send_data(2, 100).acked(3).recv_data(10, 1448).recv_data(14, 52, ofo=True)
    assert [] == records(script)
    assert ["P 400 14000 180 0 1 8000 4000 1500 1 1448"] == lines(script.send_data(20, 7, total_retrans=0))


def test_a_peer_side_close_writes_p_for_an_answered_request_only():
    script = Script("peer").send_data(0, 300).recv_data(3, 10).send_data(5, 40).release(9)
    assert ["P 300 3000 180 0 1 3000 0 10 0 1448", "E 2 340 340 10 0 180"] == lines(script)
    script = Script("peer").send_data(0, 300).recv_data(3, 10).fins().release(9)
    assert ["P 300 3000 180 0 1 3000 0 11 0 1448", "E 1 301 0 11 0 180"] == lines(script)
    assert 10 == records(script)[0].received_bytes


def test_a_peer_side_greeting_is_no_task_and_its_bytes_are_none_of_the_response():
    script = Script("peer").recv_data(0, 80).send_data(1, 30).recv_data(2, 20).send_data(3, 30)
    assert ["P 30 1000 180 0 1 1000 0 20 0 1448"] == lines(script)


def test_p_has_the_range_of_its_request():
    script = Script("peer").send_data(0, 300).recv_data(3, 10).send_data(5, 40).recv_data(6, 1).release(9)
    assert [(1001, 1301), (1301, 1341), (0, 0)] == [(record.seq, record.end_seq) for record in records(script)]


def test_ipv6_is_bracketed_and_mapped_addresses_are_ipv4():
    script = Script(local="[2001:DB8::0:1]:80", peer="[::ffff:10.1.2.3]:9").recv_data(0, 1).release(1)
    assert "V6 N 1594281600 456 10.1.2.3:9 [2001:db8::1]:80 1 1000 1 0 1448 \n" == v6.line(records(script)[0])


def test_interleaved_connections_do_not_meet():
    one, other = example(), Script("peer", conn="b").send_data(0, 300).recv_data(3, 10).fins().release(9)
    mixed = [line for pair in zip_longest(one.lines, other.lines) for line in pair if line]
    written = [v6.line(record) for record in replay(mixed)]
    apart_ = [v6.line(record) for record in chain(replay(one.lines), replay(other.lines))]
    assert sorted(apart_) == sorted(written)


def test_an_id_may_be_used_again_after_its_release():
    script = example()
    assert 6 == len(list(replay(script.lines * 2)))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda lines: [lines[0].replace('"mss": 1448, ', ""), *lines[1:]], "x: line 1: mss: missing"),
        (lambda lines: [lines[0].replace("recv", "rxv"), lines[1].replace("recv", "rxv")], "x: line 2: op: Invalid"),
        (lambda lines: [lines[0], "", lines[1].replace("1448", '"1448"')], "x: line 3: mss: Expected `int"),
        (lambda lines: [lines[0], lines[1].replace('"snd_una": 1001', '"snd_una": -1')], "line 2: snd_una: Expected"),
        (lambda lines: lines[1:], "x: line 1: conn: 1 is not open"),
        (lambda lines: [lines[0], lines[0]], "x: line 2: conn: 1 is open already"),
        (lambda lines: [lines[0], lines[2], lines[1]], "x: line 3: unix_ns: "),
        (lambda lines: [lines[0].replace(":3306", "")], "x: line 1: local, peer: '10.0.0.1' is no address:port"),
        (lambda lines: [lines[0].replace('"local", "l', '"lokal", "l')], "x: line 1: side: Invalid"),
        (lambda lines: [lines[0][:-1]], "x: line 1: "),
        (lambda lines: [b"\xff"], "x: line 1: "),
    ],
)
def test_a_wrong_line_names_itself_and_its_field(damage, said):
    with pytest.raises(LatencyProbeError) as refused:
        list(replay(damage(example().lines), "x"))
    assert said in str(refused.value)


def test_sequence_numbers_are_compared_across_the_wrap():
    assert (2, -2, 0) == (apart(1, LOST), apart(LOST, 1), apart(7, 7))
