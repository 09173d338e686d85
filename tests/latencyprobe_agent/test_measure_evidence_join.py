"""The join of evidence and exchanges, on rows written by hand: what was sent again, and a key of a signal's own."""

import numpy as np
import pytest

from latencyprobe_agent.measure.evidence import HOLD_NS, Joined
from latencyprobe_agent.measure.evidence_join import EvidenceJoin
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.recent import RecentHalves
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.signals.join_keys import JoinKey
from latencyprobe_agent.signals.retransmits import EXPLAINS, KEY
from latencyprobe_agent.vocabulary.records import FLOW_HEADER, Excluded, Role
from tests.support.exchanges import exchanges

RECORD = np.dtype([("flow", FLOW_HEADER)])
MS = 1_000_000


def half(cookie=7, *, seq=1000, size=100, start_ms=10, end_ms=20, role=Role.CLIENT, tid=0, excluded=0) -> Halves:
    sent, thread = ("request", "writer_tid") if role is Role.CLIENT else ("response", "reader_tid")
    times = {"start_ns": start_ms * MS, "stages": (0, (end_ms - start_ms) * MS, 0, 0)}
    fields = {f"{sent}_seq": seq, f"{sent}_bytes": size, thread: tid}
    return halves(exchanges(1, role, sock_cookie=cookie, excluded=excluded, **times, **fields))


def resent(at_ms, *, cookie=7, seq=1000, end_seq=1100, handshake=False, joins=True) -> Evidence:
    rows = np.zeros(1, RECORD)
    rows["flow"]["sock_cookie"], rows["flow"]["boot_ns"] = cookie, at_ms * MS
    key = KEY.of(rows["flow"], seq=seq, end_seq=end_seq, first_seq=end_seq, handshake=handshake)
    return Evidence(rows, key, np.array([joins]))


NOTHING = resent(0).take(np.arange(0))


def joining(limit: int = 4096) -> EvidenceJoin:
    """The join of what was sent again."""
    return EvidenceJoin(RecentHalves(), KEY, EXPLAINS.waits, limit=limit)


def add(one: EvidenceJoin, ended: Halves | None, evidence: Evidence, now_ms: int = 30) -> Joined | None:
    if ended is not None:
        one.recent.keep(ended)
    return one.join(evidence, now_ms * MS)


def test_a_resent_segment_explains_the_exchange_whose_bytes_it_carried():
    one = joining()
    exchanges = Halves.concatenate([half(seq=900), half(seq=1000, start_ms=21), half(cookie=8)])

    joined = add(one, exchanges, resent(25, seq=1040, end_seq=1060))

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]
    assert joined.half["join_key"].tolist() == exchanges.join_key[[1]].tolist()
    assert one.outcomes == {"joined": 1, "late": 0, "ambiguous": 0, "no_exchange": 0}


def stream(number, *, seq, until, start_ms, end_ms=40, **fields) -> Halves:
    """A call of HTTP/2 whose request was sent at `start_ms`, its bytes between `seq` and `until`."""
    times = {"start_ns": start_ms * MS, "stages": (0, (end_ms - start_ms) * MS, 0, 0)}
    place = {"request_seq": seq, "request_bytes": 50, "request_until": until, "stream_id": number}
    return halves(exchanges(1, Role.CLIENT, sock_cookie=7, **times, **place, **fields))


def test_a_resent_segment_explains_every_stream_that_waited_for_it():
    """Delivery is in order: those whose bytes it carried, and those behind it that had been sent before it came again.
    Streams end in an order of their own."""
    streams = Halves.concatenate(
        [
            stream(1, seq=900, until=1000, start_ms=1),  # all of it lay before
            stream(9, seq=1300, until=1400, start_ms=12),  # sent behind it, before it was sent again
            stream(3, seq=950, until=1250, start_ms=9),  # among whose frames it is
            stream(11, seq=1400, until=1450, start_ms=26),  # sent afterwards
            stream(5, seq=1040, until=1060, start_ms=10),
            stream(7, seq=1350, until=1380, start_ms=13, excluded=Excluded.STREAMING),
            half(cookie=8),
        ]
    )
    one = joining()
    joined = add(one, streams, resent(25, seq=1040, end_seq=1060), now_ms=50)
    assert joined is not None
    assert sorted(joined.half["seq"].tolist()) == [950, 1040, 1300]
    assert joined.first.all()
    assert dict(zip(joined.half["seq"].tolist(), joined.wait_ns.tolist(), strict=True)) == {
        950: 16 * MS,
        1040: 15 * MS,
        1300: 13 * MS,
    }
    assert one.outcomes == {"joined": 1, "late": 0, "ambiguous": 0, "no_exchange": 0}, "one record"


def test_a_resent_segment_waits_for_the_first_stream_that_ends():
    one = joining()
    assert add(one, stream(1, seq=900, until=1000, start_ms=1), resent(25, seq=1040, end_seq=1060)) is None
    joined = add(one, stream(3, seq=950, until=1250, start_ms=9), NOTHING, now_ms=50)
    assert joined is not None
    assert joined.half["seq"].tolist() == [950]


def test_evidence_waits_for_the_exchange_that_is_still_open():
    one = joining()

    assert add(one, half(seq=900), resent(15)) is None
    assert one.waiting() == 1
    joined = add(one, half(seq=1000), NOTHING)

    assert joined is not None
    assert joined.half["seq"].tolist() == [1000]
    assert one.waiting() == 0


def test_wait_is_the_time_since_the_bytes_were_last_sent():
    one = joining()
    both = Evidence.concatenate([resent(300), resent(700)])

    joined = add(one, half(start_ms=10, end_ms=800), both, 900)

    assert joined is not None
    assert (joined.wait_ns // MS).tolist() == [290, 400]
    assert joined.first.tolist() == [True, False]
    assert (joined.new_ns // MS).tolist() == [290, 400]


def test_waits_of_two_segments_of_one_message_count_once_where_they_overlap():
    one = joining()
    both = Evidence.concatenate([resent(300, end_seq=1050), resent(310, seq=1050)])

    joined = add(one, half(start_ms=10, end_ms=800), both, 900)

    assert joined is not None
    assert (joined.wait_ns // MS).tolist() == [290, 300]
    assert (joined.new_ns // MS).tolist() == [290, 10]


def test_the_second_record_of_an_exchange_is_not_its_first_in_a_later_batch_either():
    one = joining()
    assert add(one, half(), resent(12)) is not None

    later = add(one, None, resent(15))

    assert later is not None
    assert later.first.tolist() == [False]


def test_evidence_long_after_the_end_is_late():
    one = joining()

    assert add(one, half(end_ms=20), resent(20 + HOLD_NS // MS + 1), now_ms=2000) is None

    assert one.outcomes["late"] == 1


@pytest.mark.parametrize(
    ("excluded", "outcome"),
    [(Excluded.PIPELINED, "ambiguous"), (Excluded.STREAMING, "ambiguous"), (Excluded.SETUP, "no_exchange")],
)
def test_what_is_no_event_is_explained_by_nothing(excluded, outcome):
    one = joining()

    assert add(one, half(excluded=excluded), resent(15)) is None

    assert one.outcomes[outcome] == 1


def test_a_caller_shares_what_its_server_half_lost_whichever_ends_first():
    one = joining()
    server = half(cookie=8, role=Role.SERVER, seq=5000, start_ms=10, end_ms=20)
    client = half(cookie=9, start_ms=5, end_ms=400)
    client.join_key[:] = server.join_key

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
    one = joining(limit=10)

    add(one, None, Evidence.concatenate([resent(i, cookie=100 + i) for i in range(15)]))

    assert one.waiting() == 10
    assert one.outcomes["no_exchange"] == 5
    one.give_up()
    assert one.outcomes["no_exchange"] == 15


def test_attempts_that_explain_nothing_are_left_out():
    one = joining()

    assert add(one, half(), resent(15, joins=False)) is None

    assert one.outcomes.total() == 0


def test_every_record_ends_in_exactly_one_outcome():
    rng = np.random.default_rng(3)
    one = joining(limit=50)
    given = 0
    for i in range(50):
        ended = [half(int(c), seq=int(s)) for c, s in zip(rng.integers(1, 9, 5), rng.integers(0, 5000, 5), strict=True)]
        records = [
            resent(15, cookie=int(c), seq=int(s), end_seq=int(s) + 10, handshake=bool(s % 5 == 0))
            for c, s in zip(rng.integers(1, 9, 7), rng.integers(0, 5000, 7), strict=True)
        ]
        add(one, Halves.concatenate(ended), Evidence.concatenate(records), now_ms=30 + i)
        given += len(records)
    one.give_up()

    assert one.outcomes.total() == given


QUERY = np.dtype([("flow", FLOW_HEADER), ("took_ns", "u8")])


def whose_thread_had_it_open(recent: np.ndarray, key: np.ndarray) -> np.ndarray:
    """The exchange that a thread had begun, and not ended, when its query began."""
    own = (recent["at"] > 0) & (recent["tid"] == key["tid"][:, None])
    open_ = own & (recent["start_ns"] <= key["start_ns"][:, None]) & (recent["end_ns"] >= key["start_ns"][:, None])
    return np.where(open_.any(axis=1), open_.argmax(axis=1), -1)


BY_THREAD = JoinKey(np.dtype([("at_ns", "i8"), ("start_ns", "i8"), ("tid", "u4")]), whose_thread_had_it_open)


def queries(*rows: tuple[int, int, int]) -> Evidence:
    """DNS queries: thread, when they began and ended, in ms. No connection, no bytes of an exchange."""
    batch = np.zeros(len(rows), QUERY)
    tid, start_ms, end_ms = np.array(rows).T
    batch["flow"]["owner_tid"], batch["flow"]["boot_ns"] = tid, end_ms * MS
    batch["took_ns"] = (end_ms - start_ms) * MS
    key = BY_THREAD.of(batch["flow"], tid=tid, start_ns=start_ms * MS)
    return Evidence(batch, key, np.ones(len(rows), np.bool_))


def test_a_signal_that_is_no_connection_joins_by_a_key_of_its_own():
    one = EvidenceJoin(RecentHalves(), BY_THREAD)
    server = half(1, role=Role.SERVER, tid=50, start_ms=10, end_ms=20)
    client = half(2, tid=51, start_ms=12, end_ms=18)
    pipelined = half(3, tid=52, excluded=Excluded.PIPELINED)
    asked = queries((50, 11, 12), (51, 13, 19), (51, 21, 22), (52, 11, 12), (50, 14, 15), (50, 10, 2000), (50, 31, 32))

    joined = add(one, Halves.concatenate([server, client, pipelined]), asked, now_ms=2000)

    assert joined is not None
    assert joined.evidence.rec["took_ns"].tolist() == [1 * MS, 1 * MS, 6 * MS]
    assert joined.half["sock_cookie"].tolist() == [1, 1, 2]
    assert joined.first.tolist() == [True, False, True]
    assert not joined.wait_ns.any(), "the signal itself says how long a query took"
    assert one.outcomes == {"joined": 3, "late": 1, "ambiguous": 1, "no_exchange": 0}

    later = add(one, half(4, role=Role.SERVER, tid=50, start_ms=30, end_ms=40), asked.take(np.arange(0)), now_ms=2100)

    assert later is not None, "its exchange was still open"
    assert later.half["sock_cookie"].tolist() == [4]
    one.give_up()
    assert one.outcomes.total() == len(asked)
