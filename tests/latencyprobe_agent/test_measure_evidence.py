"""The join of evidence and exchanges, on rows written by hand."""

import numpy as np
import pytest

from latencyprobe_agent.measure.evidence import HOLD_NS, EvidenceJoin, Joined, RecentHalves
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.vocabulary.records import EXCHANGE, FLOW_HEADER, ExchangeFlags, Excluded, Role

RECORD = np.dtype([("flow", FLOW_HEADER)])
MS = 1_000_000


def half(cookie=7, *, seq=1000, size=100, start_ms=10, end_ms=20, role=Role.CLIENT, fresh=False, excluded=0) -> Halves:
    rows = np.zeros(1, EXCHANGE)
    sent = "request" if role == Role.CLIENT else "response"
    rows["sock_cookie"], rows["role"], rows["excluded"] = cookie, role, excluded
    rows[f"{sent}_seq"], rows[f"{sent}_bytes"] = seq, size
    rows["flags"] = ExchangeFlags.FRESH if fresh else 0
    rows["local_port"], rows["peer_port"] = 40000, 80
    stamps = ("send_start_ns", "send_end_ns", "ready_first_ns", "ready_last_ns", "read_last_ns")
    order = stamps if role == Role.CLIENT else (*stamps[2:], *stamps[:2])
    for i, name in enumerate(order):
        rows[name] = start_ms * MS if i < 2 else end_ms * MS
    return halves(rows, bytes(32))


def resent(at_ms, *, cookie=7, seq=1000, end_seq=1100, before_start=False, joins=True) -> Evidence:
    rows = np.zeros(1, RECORD)
    rows["flow"]["sock_cookie"], rows["flow"]["boot_ns"] = cookie, at_ms * MS
    rows["flow"]["local_port"], rows["flow"]["peer_port"] = 40000, 80
    return Evidence(rows, np.array([seq], "u4"), np.array([end_seq], "u4"), np.array([before_start]), np.array([joins]))


def add(one: EvidenceJoin, ended: Halves | None, evidence: Evidence | None, now_ms: int = 30) -> Joined | None:
    if ended is not None:
        one.recent.keep(ended)
    return one.join(evidence, now_ms * MS)


def test_a_resent_segment_explains_the_exchange_whose_bytes_it_carried():
    one = EvidenceJoin(RecentHalves(), waits=True)
    exchanges = Halves.concatenate([half(seq=900), half(seq=1000, start_ms=21), half(cookie=8)])

    joined = add(one, exchanges, resent(25, seq=1040, end_seq=1060))

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]
    assert joined.half["trace_id"].tolist() == exchanges.trace_id[[1]].tolist()
    assert one.outcomes == {"joined": 1, "late": 0, "ambiguous": 0, "no_exchange": 0}


def test_bytes_of_two_messages_explain_the_older_one_only():
    one = EvidenceJoin(RecentHalves(), waits=True)

    joined = add(one, Halves.concatenate([half(seq=900), half(seq=1000)]), resent(25, seq=950, end_seq=1050))

    assert joined is not None
    assert joined.half["seq"].tolist() == [900]


def test_sequence_numbers_wrap():
    one = EvidenceJoin(RecentHalves(), waits=True)

    joined = add(one, half(seq=2**32 - 50, size=100), resent(15, seq=10, end_seq=20))

    assert joined is not None
    assert joined.half["seq"].tolist() == [2**32 - 50]


def test_evidence_waits_for_the_exchange_that_is_still_open():
    one = EvidenceJoin(RecentHalves(), waits=True)

    assert add(one, half(seq=900), resent(15)) is None
    assert one.waiting() == 1
    joined = add(one, half(seq=1000), None)

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]
    assert one.waiting() == 0


def test_wait_is_the_time_since_the_bytes_were_last_sent():
    one = EvidenceJoin(RecentHalves(), waits=True)
    both = Evidence.concatenate([resent(300), resent(700)])

    joined = add(one, half(start_ms=10, end_ms=800), both, 900)

    assert joined is not None
    assert (joined.wait_ns // MS).tolist() == [290, 400]
    assert joined.first.tolist() == [True, False]
    assert (joined.new_ns // MS).tolist() == [290, 400]


def test_waits_of_two_segments_of_one_message_count_once_where_they_overlap():
    one = EvidenceJoin(RecentHalves(), waits=True)
    both = Evidence.concatenate([resent(300, end_seq=1050), resent(310, seq=1050)])

    joined = add(one, half(start_ms=10, end_ms=800), both, 900)

    assert joined is not None
    assert (joined.wait_ns // MS).tolist() == [290, 300]
    assert (joined.new_ns // MS).tolist() == [290, 10]


def test_the_second_record_of_an_exchange_is_not_its_first_in_a_later_batch_either():
    one = EvidenceJoin(RecentHalves(), waits=True)
    assert add(one, half(), resent(12)) is not None

    later = add(one, None, resent(15))

    assert later is not None
    assert later.first.tolist() == [False]


def test_handshake_explains_the_first_exchange_of_its_connection():
    one = EvidenceJoin(RecentHalves(), waits=False)
    exchanges = Halves.concatenate([half(fresh=True), half(seq=1100)])

    joined = add(one, exchanges, resent(1, seq=0, end_seq=0, before_start=True))

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]


def test_handshake_of_an_adopted_connection_waits_in_vain():
    one = EvidenceJoin(RecentHalves(), waits=False)

    assert add(one, half(), resent(1, seq=0, end_seq=0, before_start=True)) is None
    assert add(one, half(seq=1100), None, now_ms=61_000) is None

    assert one.outcomes["no_exchange"] == 1


def test_syn_ack_is_known_by_where_the_first_response_begins():
    one = EvidenceJoin(RecentHalves(), waits=False)
    ended = half(role=Role.SERVER, seq=5001, fresh=True)

    joined = add(one, ended, resent(1, cookie=0, seq=5000, end_seq=5001, before_start=True))

    assert joined is not None
    assert joined.half["seq"].tolist() == [5001]


def test_a_record_without_bytes_explains_the_last_exchange_that_had_begun():
    one = EvidenceJoin(RecentHalves(), waits=False)
    exchanges = Halves.concatenate(
        [half(seq=900, start_ms=1), half(seq=1000, start_ms=10), half(seq=1100, start_ms=90)]
    )

    joined = add(one, exchanges, resent(50, seq=1100, end_seq=1100))

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]


def test_evidence_long_after_the_end_is_late():
    one = EvidenceJoin(RecentHalves(), waits=True)

    assert add(one, half(end_ms=20), resent(20 + HOLD_NS // MS + 1), now_ms=2000) is None

    assert one.outcomes["late"] == 1


@pytest.mark.parametrize(
    ("excluded", "outcome"),
    [(Excluded.PIPELINED, "ambiguous"), (Excluded.OVERLAP, "ambiguous"), (Excluded.SETUP, "no_exchange")],
)
def test_what_is_no_event_is_explained_by_nothing(excluded, outcome):
    one = EvidenceJoin(RecentHalves(), waits=True)

    assert add(one, half(excluded=excluded), resent(15)) is None

    assert one.outcomes[outcome] == 1


def test_a_caller_shares_what_its_server_half_lost_whichever_ends_first():
    one = EvidenceJoin(RecentHalves(), waits=True)
    server = half(cookie=8, role=Role.SERVER, seq=5000, start_ms=10, end_ms=20)
    client = half(cookie=9, start_ms=5, end_ms=400)
    client.trace_id[:] = server.trace_id

    assert add(one, server, resent(220, cookie=8, seq=5000, end_seq=5100)) is not None
    assert one.shared() is None
    one.recent.keep(client)
    shared = one.shared()

    assert shared is not None
    assert shared.half["sock_cookie"].tolist() == [9]
    assert (shared.new_ns // MS).tolist() == [200]
    assert shared.first.tolist() == [True]
    assert one.shared() is None
    assert add(one, None, resent(390, cookie=9)).first.tolist() == [False]  # type: ignore[union-attr]


def test_waiting_records_are_bounded_and_counted():
    one = EvidenceJoin(RecentHalves(), waits=True, waiting=10)

    add(one, None, Evidence.concatenate([resent(i, cookie=100 + i) for i in range(15)]))

    assert one.waiting() == 10
    assert one.outcomes["no_exchange"] == 5
    one.give_up()
    assert one.outcomes["no_exchange"] == 15


def test_attempts_that_explain_nothing_are_left_out():
    one = EvidenceJoin(RecentHalves(), waits=True)

    assert add(one, half(), resent(15, joins=False)) is None

    assert one.outcomes.total() == 0


def test_every_record_ends_in_exactly_one_outcome():
    rng = np.random.default_rng(3)
    one = EvidenceJoin(RecentHalves(), waits=True, waiting=50)
    given = 0
    for i in range(50):
        ended = [half(int(c), seq=int(s)) for c, s in zip(rng.integers(1, 9, 5), rng.integers(0, 5000, 5), strict=True)]
        records = [
            resent(15, cookie=int(c), seq=int(s), end_seq=int(s) + 10, before_start=bool(s % 5 == 0))
            for c, s in zip(rng.integers(1, 9, 7), rng.integers(0, 5000, 7), strict=True)
        ]
        add(one, Halves.concatenate(ended), Evidence.concatenate(records), now_ms=30 + i)
        given += len(records)
    one.give_up()

    assert one.outcomes.total() == given
