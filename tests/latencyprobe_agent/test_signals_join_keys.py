"""By what records find the exchange that they explain: pure functions of recent halves and keys."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from latencyprobe_agent.signals import retransmits, waits
from latencyprobe_agent.signals.join_keys import BEGINNING, RECENT_HALF, SENT_BYTES
from latencyprobe_agent.vocabulary.records import FLOW_HEADER

MS = 1_000_000


def recent(*rows: dict[str, int]) -> np.ndarray:
    """Halves in the order of their arrival, one connection unless a row says otherwise; behind them room for others."""
    found = np.zeros(len(rows) + 2, RECENT_HALF)
    for i, row in enumerate(rows):
        for name, value in {"at": i + 1, "sock_cookie": 7, "local_port": 40000, "peer_port": 80, **row}.items():
            found[i][name] = value
    return found


def sent(seq: int, size: int = 100, **row: int) -> dict[str, int]:
    return {"seq": seq, "end_seq": (seq + size) % 2**32, **row}


def by_bytes(halves: np.ndarray, seq: int, end_seq: int, cookie: int = 7, at_ms: int = 0) -> int:
    flow = np.zeros(1, FLOW_HEADER)
    flow["sock_cookie"], flow["boot_ns"] = cookie, at_ms * MS
    (found,) = SENT_BYTES.find(halves, SENT_BYTES.of(flow, seq=seq, end_seq=end_seq)).tolist()
    return found


def by_beginning(halves: np.ndarray, cookie: int, first_seq: int = 0, peer_port: int = 80, at_ms: int = 0) -> int:
    flow = np.zeros(1, FLOW_HEADER)
    flow["boot_ns"] = at_ms * MS
    flow["sock_cookie"], flow["local_port"], flow["peer_port"] = cookie, 40000, peer_port
    (found,) = BEGINNING.find(halves, BEGINNING.of(flow, first_seq=first_seq)).tolist()
    return found


def test_a_key_takes_from_the_header_what_is_in_it():
    flow = np.zeros(2, FLOW_HEADER)
    flow["boot_ns"], flow["sock_cookie"], flow["local_port"] = (1, 2), (3, 4), 40000
    key = BEGINNING.of(flow, first_seq=np.array([5, 6]))
    assert [(1, 3, 5, 40000, 0), (2, 4, 6, 40000, 0)] == key.tolist()


def test_bytes_belong_to_the_message_that_has_them_on_their_connection():
    halves = recent(sent(1000, sock_cookie=8), sent(900), sent(1000))
    assert [2, 1, 0] == [by_bytes(halves, 1040, 1060), by_bytes(halves, 999, 1000), by_bytes(halves, 1040, 1060, 8)]


def test_bytes_of_two_messages_belong_to_the_older_one():
    assert 0 == by_bytes(recent(sent(900), sent(1000)), 950, 1050)


def test_bytes_that_are_in_no_message_so_far_belong_to_none():
    halves = recent(sent(900), sent(1200))
    assert [-1] * 4 == [by_bytes(halves, *ends) for ends in ((800, 900), (1000, 1200), (1300, 1400), (0, 1))]
    assert -1 == by_bytes(halves, 900, 1000, cookie=9)
    assert -1 == by_bytes(recent(), 900, 1000), "no half at all"


def test_sequence_numbers_wrap():
    assert 0 == by_bytes(recent(sent(2**32 - 50)), 10, 20)


@pytest.mark.parametrize(("messages", "size"), [(3_000, 10**6), (5_000, 10**6), (3_000, 10**7)])
@pytest.mark.parametrize("of_stream", [False, True])
def test_a_connection_may_have_moved_any_number_of_bytes(messages: int, size: int, of_stream: bool) -> None:
    """2.8, 4.7 and 28 GiB: numbers come again within the recent halves."""
    halves = np.zeros(2 * messages, RECENT_HALF)
    mine, other = halves[:messages], halves[messages:]
    for one, cookie in ((mine, 7), (other, 8)):
        place = np.arange(messages, dtype=np.uint64)
        one["sock_cookie"], one["of_stream"], one["at"] = cookie, of_stream, 2 * place + cookie
        one["seq"], one["end_seq"] = place * size % 2**32, (place + 1) * size % 2**32
        one["send_start_ns"] = place * MS
    last = slice(messages - 50, messages)
    key = np.zeros(51, retransmits.KEY.columns)
    key["sock_cookie"], key["at_ns"] = 7, messages * MS
    key["seq"] = np.append(mine["seq"][last] + 1000, mine["end_seq"][-1] + 1000)
    key["end_seq"] = key["seq"] + 1448
    found = retransmits.KEY.find(halves, key)
    assert [*range(messages - 50, messages), -1] == found.tolist(), "what is behind all is not found so far"
    keys, others = retransmits.KEY.also(halves, key[:50], found[:50])
    behind = range(messages - 1, messages) if of_stream else ()
    assert list(behind) == others[keys == 48].tolist()
    if of_stream:
        key["at_ns"] = messages * MS - 25 * MS
        assert 24 == np.count_nonzero(retransmits.KEY.also(halves, key[:1], found[:1])[0] == 0), "sent by then"


def test_an_exchange_that_was_never_answered_is_in_nobody_s_way() -> None:
    halves = recent(sent(2**31 - 150), {"seq": 0, "end_seq": 0}, sent(2**31 + 50))
    assert [0, 2] == [by_bytes(halves, seq, seq + 10) for seq in (2**31 - 100, 2**31 + 60)]


@pytest.mark.parametrize("other", [1000, 2**30, 2**31 + 1000, 2**32 - 2000])
@pytest.mark.parametrize("of_stream", [False, True])
def test_an_exchange_without_an_answer_has_no_bytes_of_another_connection(other: int, of_stream: bool) -> None:
    rows = ({"sock_cookie": 8, "seq": 100, "end_seq": 100}, sent(600, sock_cookie=8, send_start_ns=5))
    halves = recent(sent(other, send_start_ns=5), *rows)
    halves["of_stream"] = of_stream
    key = np.zeros(2, retransmits.KEY.columns)
    key["sock_cookie"], key["at_ns"] = (7, 8), MS
    key["seq"], key["end_seq"] = (other, 610), (other + 10, 620)
    assert [0, 2] == retransmits.KEY.find(halves, key).tolist()
    halves["at"][2] = 0
    assert [0, -1] == retransmits.KEY.find(halves, key).tolist(), "what has them has not ended yet"


@pytest.mark.parametrize("again", [3_500_000_001, 1_000_000_001])
@pytest.mark.parametrize("of_stream", [False, True])
def test_a_socket_that_connects_again_has_another_connection_with_its_cookie(again: int, of_stream: bool) -> None:
    """One goes on with higher numbers than the one before it, one with lower ones."""
    firsts = [first + 100 * i for first in (3_000_000_001, again) for i in range(4)]
    begins = [{"start_ns": ms * MS, "send_start_ns": ms * MS, "end_ns": (ms + 10) * MS} for ms in range(0, 800, 100)]
    halves = recent(
        *(sent(seq, fresh=i % 4 == 0, **ns) for i, (seq, ns) in enumerate(zip(firsts, begins, strict=True)))
    )
    if of_stream:
        halves["of_stream"], halves["at"][4:8] = True, [8, 5, 6, 7]  # the first one ends last
    key = np.zeros(8, retransmits.KEY.columns)
    key["sock_cookie"], key["at_ns"] = 7, halves["send_start_ns"][:8] + MS
    key["seq"], key["end_seq"] = firsts, halves["end_seq"][:8]
    assert [*range(8)] == retransmits.KEY.find(halves, key).tolist()
    assert [0, 4] == [by_beginning(halves, 7, first, at_ms=ms) for first, ms in ((firsts[0], 0), (again, 399))]
    halves["at"][4:8] = 0
    assert [0, -1] == [by_beginning(halves, 7, first, at_ms=ms) for first, ms in ((firsts[0], 0), (again, 399))]


def test_messages_are_in_order_of_arrival_wherever_they_are_kept():
    halves = recent(sent(1100, at=20_001), sent(900, at=19_999), sent(1000, at=20_000))
    assert [1, 2, 0] == [by_bytes(halves, seq, seq + 1) for seq in (950, 1050, 1150)]


def test_what_has_no_bytes_belongs_to_the_last_exchange_that_had_begun():
    halves = recent(*(sent(900 + 100 * i, start_ns=ms * MS) for i, ms in enumerate((1, 10, 90))))
    assert [-1, 0, 1, 2] == [by_bytes(halves, 1200, 1200, at_ms=ms) for ms in (0, 5, 50, 100)]


def test_a_beginning_is_that_of_the_first_exchange():
    halves = recent(sent(1000, fresh=1), sent(1100), sent(1000, sock_cookie=8))
    assert [0, -1, -1] == [by_beginning(halves, cookie) for cookie in (7, 8, 9)], "8 is older than its programs"


def test_a_socket_to_come_is_known_by_its_ports_and_where_its_first_message_begins():
    halves = recent(sent(5001, fresh=1), sent(5001, peer_port=81, fresh=1), sent(5001, fresh=1), sent(6001))
    assert 2 == by_beginning(halves, 0, 5001), "of ports that are used again, the newest"
    assert [1, -1, -1] == [
        by_beginning(halves, 0, 5001, 81),
        by_beginning(halves, 0, 5000),
        by_beginning(halves, 0, 6001),
    ]


def test_bytes_of_a_turn_are_never_found_in_a_stream():
    """As a record of TCP-RT, which tells of turns."""
    assert -1 == by_bytes(recent(sent(1000, of_stream=True)), 1040, 1060)
    assert 1 == by_bytes(recent(sent(1000, of_stream=True), sent(1000)), 1040, 1060)


@given(st.lists(st.booleans(), max_size=20))
@example([True, False])
@example([True, True, True, True, False])
def test_a_wait_is_of_the_request_that_was_served_then_whatever_else_was_never_answered(answered: list[bool]) -> None:
    """An exchange each 100 ms, which waits from 20 to 40 ms and is answered after 50: not all of them."""
    begins = range(0, 100 * len(answered), 100)
    halves = recent(
        *(
            {"start_ns": ms * MS, "send_start_ns": (ms + 50) * MS if answer else 0}
            for ms, answer in zip(begins, answered, strict=True)
        )
    )
    key = np.zeros(len(answered), waits.KEY.columns)
    key["sock_cookie"] = 7
    key["start_ns"], key["at_ns"] = [(ms + 20) * MS for ms in begins], [(ms + 40) * MS for ms in begins]
    assert [i if answer else -1 for i, answer in enumerate(answered)] == waits.KEY.find(halves, key).tolist()
