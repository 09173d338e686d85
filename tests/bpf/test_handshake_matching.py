"""Handshakes from packets, by BPF_PROG_TEST_RUN: which answer ends which SYN, with which outcome, what is counted."""

import time
from dataclasses import replace

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import HandshakeFlags, HandshakeTally, Lost
from tests.truth.frames import ACK, FIN, RST, SYN, Segment, unreachable
from tests.truth.handshake_table import V4, V6, Table, outcome
from tests.truth.handshaking import S

pytestmark = pytest.mark.root


def ambiguous(record: np.void) -> bool:
    assert (record["rtt_ns"] == 0) >= (record["flags"] & HandshakeFlags.AMBIGUOUS != 0)
    return bool(record["flags"] & HandshakeFlags.AMBIGUOUS)


def test_a_resent_syn_is_matched_by_its_timestamp(table: Table):
    table.leave(V4, replace(V4, timestamps=(1500, 0)))
    table.come(V4.answer(9000, timestamps=(1, 1500)))
    record = table.one()
    assert (False, 2) == (ambiguous(record), record["n_syn"])
    assert record["flags"] & HandshakeFlags.TIMESTAMPS


@pytest.mark.parametrize("echo", [500, 77, None], ids=["of an earlier SYN", "of no SYN", "none"])
def test_an_answer_that_does_not_name_the_last_syn_is_ambiguous(table: Table, echo: int | None):
    """The echo of an earlier one may be a resent SYN-ACK, whose first sending was lost."""
    began_ns = time.monotonic_ns()
    table.leave(V4, replace(V4, timestamps=(1500, 0)))
    table.come(V4.answer(9000, timestamps=(1, echo) if echo else None))
    record = table.one()
    assert ambiguous(record)
    assert 0 < record["rtt_min_ns"] < record["rtt_max_ns"] < time.monotonic_ns() - began_ns


def test_syns_with_equal_timestamps_are_ambiguous(table: Table):
    table.leave(V4, V4)
    table.come(V4.answer(9000, timestamps=(1, 500)))
    assert ambiguous(table.one())


def test_six_syns_keep_the_first_time_and_the_last_stamps(table: Table):
    for i in range(6):
        table.leave(replace(V4, timestamps=(500 + i, 0)))
    table.come(V4.answer(9000, timestamps=(1, 505)))
    record = table.one()
    assert (False, 6) == (ambiguous(record), record["n_syn"])


def test_a_server_with_resent_synacks_follows_the_same_rule(table: Table):
    synack = V4.answer(9000, timestamps=(70, 500))
    for echo, expected in ((71, False), (70, True)):
        syn = replace(V4, src_port=V4.src_port + echo)
        first = replace(synack, dst_port=syn.src_port)
        table.come(syn)
        table.leave(first, replace(first, timestamps=(71, 500)))
        table.come(first.answer(1001, ACK, timestamps=(501, echo)))
        record = table.one()
        assert (expected, 1) == (ambiguous(record), record["synack_retransmits"])


def test_an_ack_with_data_bounds_the_servers_rtt(table: Table):
    synack = V4.answer(9000)
    table.come(V4)
    table.leave(synack)
    table.come(replace(synack.answer(1001, ACK), payload=b"GET"))
    record = table.one()
    assert ambiguous(record)
    assert (0, True) == (record["rtt_min_ns"], record["rtt_max_ns"] > 0)


def test_a_repeated_synack_is_counted_once_reported(table: Table):
    table.leave(V4)
    table.come(V4.answer(9000), V4.answer(9000))
    table.one()
    assert 1 == table.counted("tally", HandshakeTally.SYNACK_RETRANSMITS)


def test_a_synack_without_syn_is_counted_and_kept_nowhere(table: Table):
    table.come(V4.answer(9000))
    table.leave(V4.answer(9000))
    assert (0, 0) == (len(table.records()), table.size())
    assert 2 == table.counted("tally", HandshakeTally.SYNACK_UNKNOWN)


def test_an_old_answer_does_not_match_a_reused_port(table: Table):
    table.leave(V4, replace(V4, seq=5000))
    table.come(V4.answer(9000))
    assert (0, 1) == (len(table.records()), table.size())
    assert 1 == table.counted("tally", HandshakeTally.REPLACED)
    assert 1 == table.counted("tally", HandshakeTally.SYNACK_MISMATCHED)
    table.come(replace(V4, seq=5000).answer(9500))
    record = table.one()
    assert (5000, 1, False) == (record["client_isn"], record["n_syn"], ambiguous(record))


def test_a_syn_that_the_network_kept_starts_nothing(table: Table):
    table.leave(V4)
    table.come(V4.answer(9000))
    table.leave(V4)
    assert (1, 0) == (len(table.records()), table.size())


def test_fast_open_matches_with_and_without_its_data(table: Table):
    syn = replace(V4, payload=b"x" * 100)
    for port, ack in ((1, 1101), (2, 1001)):
        one = replace(syn, src_port=port)
        table.leave(one)
        table.come(replace(one.answer(9000), ack=ack))
        assert ("client", "ok") == outcome(table.one())


def test_a_refusal_is_timed_for_the_client_only(table: Table):
    refusal = V4.answer(0, RST | ACK)
    table.leave(V4)
    table.come(replace(refusal, ack=5), refusal)
    client = table.one()
    table.come(V4)
    table.leave(refusal)
    server = table.one()
    assert (("client", "refused"), ("server", "refused")) == (outcome(client), outcome(server))
    assert (True, 0) == (client["rtt_ns"] > 0, server["rtt_ns"])


@pytest.mark.parametrize("syn", [V4, V6], ids=["IPv4", "IPv6"])
def test_an_icmp_error_that_quotes_the_syn_is_reported_once(table: Table, syn: Segment):
    router = "10.99.0.9" if syn is V4 else "fd99::9"
    table.leave(syn)
    table.run("incoming__ethernet", unreachable(replace(syn, seq=4), router))
    assert 0 == len(table.records()), "of another SYN"
    table.run("incoming__ethernet", unreachable(syn, router))
    assert ("client", "unreachable") == outcome(table.one())
    table.leave(syn)
    table.run("incoming__ethernet", unreachable(syn, router))
    assert (0, 0) == (len(table.records()), table.size())


def test_a_client_that_goes_away_before_it_acknowledged_is_aborted(table: Table):
    synack = V4.answer(9000)
    table.come(V4)
    table.leave(synack)
    table.come(synack.answer(1001, RST))
    assert ("server", "aborted") == outcome(table.one())


def test_syns_that_cross_are_one_simultaneous_open(table: Table):
    other = replace(V4.answer(8000, SYN), ack=0)
    table.leave(V4)
    table.come(other)
    table.leave(replace(V4, flags=SYN | ACK, ack=8001))
    assert 0 == len(table.records())
    table.come(V4.answer(8000))
    record = table.one()
    assert ("client", "simultaneous") == outcome(record)
    assert (1000, 8000, True) == (record["client_isn"], record["server_isn"], record["rtt_ns"] > 0)
    assert (0, [0, 0]) == (table.size(), table.awaited())


def test_a_simultaneous_open_may_end_by_a_plain_ack(table: Table):
    table.leave(V4)
    table.come(replace(V4.answer(8000, SYN), ack=0), V4.answer(8001, ACK))
    assert ("client", "simultaneous") == outcome(table.one())


def test_what_nobody_answers_times_out_and_leaves(table: Table):
    table.leave(V4)
    table.come(replace(V4, src_port=1), replace(V4, src_port=2))
    table.leave(replace(V4, src_port=2).answer(9000))
    assert 3 == table.size()
    table.sweep()
    assert {("client", "timeout"), ("server", "timeout")} == set(map(outcome, table.records()))
    assert (0, [0, 0]) == (table.size(), table.awaited())


def test_nothing_times_out_before_its_time(table: Table):
    table.clear(timeout_ns=60 * S)
    table.leave(V4)
    table.sweep()
    assert (0, 1) == (len(table.records()), table.size())


def test_a_full_table_refuses_and_counts(table: Table):
    room = table.object.map("pending").max_entries
    program, base = table.programs["outgoing__ethernet"], bytearray(V4.frame())
    for i in range(room + 10):
        base[26:30] = (0x0A000000 | i).to_bytes(4)  # the source address; no checksum is looked at
        program.run(bytes(base))
    assert (room, 10) == (table.size(), table.counted("lost", Lost.STATE))


def test_packets_of_open_connections_are_looked_up_only_while_a_server_waits(table: Table):
    table.come(replace(V4, flags=ACK), replace(V4, flags=RST), replace(V4, flags=FIN | ACK))
    assert (0, [0, 0]) == (len(table.records()), table.awaited())
    table.come(V4)
    assert [1, 1] == table.awaited()
