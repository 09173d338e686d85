"""The model of the rules does what each rule says: one test per rule. How connections end: test_turns_ends.py."""

import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, Role
from tests.truth.turn_events import Event, Kind
from tests.truth.turn_words import LATE, MS, PAUSE_MS, PUSHED, both_ends, names, play, spans
from tests.truth.turns import OneEnd

# -- IDLE


@both_ends
def test_client_bytes_open_an_exchange_that_the_next_ones_end(role):
    turns = play(role, "a a b b 500 a b close")
    assert names(turns) == ["ok", "ok"]
    assert spans(turns) == [(0, 2, 0, 2), (2, 1, 2, 1)]
    assert [t.conn_class for t in turns] == [ExchangeClass.UNKNOWN, ExchangeClass.PINGPONG]
    assert [t.closed for t in turns] == [False, True]


@both_ends
def test_server_bytes_before_any_of_the_client_are_a_greeting_and_the_turn_that_answers_it_is_setup(role):
    turns = play(role, "b a b 1 a b close")
    assert names(turns) == ["setup", "setup", "ok"]
    assert spans(turns)[0] == (0, 0, 0, 1)


@both_ends
def test_server_bytes_after_the_flush_are_a_push(role):
    turns = play(role, "a b 2500 flush b 300 a b close", idle_ns=2000 * MS)
    assert names(turns) == ["ok", "push", "ok"]


# -- REQUEST


@both_ends
def test_a_request_grows_without_silence(role):
    assert names(play(role, "a 150 a 150 a b close")) == ["ok"]


@both_ends
def test_a_request_that_goes_on_after_silence_leaves_a_oneway_message_behind(role):
    turns = play(role, "a 300 a b 1 a b close")
    assert names(turns) == ["oneway", "ok", "ok"]
    assert [t.resumed for t in turns] == [False, True, False]
    assert spans(turns)[1] == (1, 1, 0, 1)


@both_ends
def test_it_grows_while_it_is_not_all_acknowledged_or_something_was_sent_again(role):
    assert names(play(role, "a 300 a~ b close")) == ["ok"]
    assert names(play(role, "a 300 a? b close")) == ["ok"]


def test_a_read_ends_the_silence_for_its_window_may_have_been_closed_until_then():
    assert names(play(Role.SERVER, "a 300 read 1 a b close")) == ["ok"]
    assert names(play(Role.SERVER, "a 1 read 300 a b close")) == ["oneway", "ok"]


def test_it_grows_while_the_server_has_not_read_all_of_it():
    assert names(play(Role.SERVER, "a 300 a! b close")) == ["ok"]


@both_ends
def test_silence_is_two_round_trips_at_least(role):
    assert names(play(role, "a 300 a b close", rtt_ns=200 * MS)) == ["ok"]


@both_ends
def test_a_response_may_begin_after_silence(role):
    assert names(play(role, "a 900 b close")) == ["ok"]


@pytest.mark.parametrize(("role", "begin"), [(Role.SERVER, "b!"), (Role.CLIENT, "b<")])
def test_a_response_over_bytes_that_it_cannot_answer_overlaps(role, begin):
    turns = play(role, f"a {begin} b 1 a b close")
    assert names(turns) == ["overlap", "ok"]
    assert turns[0].overlap


# -- RESPONSE


@both_ends
def test_a_response_grows_without_silence(role):
    assert names(play(role, "a b 150 b 150 b close")) == ["ok"]


@both_ends
def test_a_response_that_goes_on_after_silence_is_streaming_and_the_rest_a_push(role):
    turns = play(role, "a b 300 b b close")
    assert names(turns) == ["streaming", "push"]
    assert spans(turns) == [(0, 1, 0, 1), (1, 0, 1, 2)]


@both_ends
def test_request_bytes_that_come_late_belong_to_their_exchange(role):
    turns = play(role, f"a b {LATE[role]} a 300 a b close")
    assert names(turns) == ["overlap", "ok"]
    assert spans(turns) == [(0, 3, 0, 1), (3, 1, 1, 1)]


@both_ends
def test_late_bytes_that_are_answered_were_a_request(role):
    turns = play(role, f"a b {LATE[role]} b 300 a b close")
    assert names(turns) == ["overlap", "overlap", "ok"]
    assert spans(turns)[:2] == [(0, 1, 0, 1), (1, 1, 1, 1)]


@both_ends
def test_an_upload_may_pause_while_its_answer_is_not_looked_at(role):
    turns = play(role, f"a b 300 {LATE[role]} 300 {LATE[role]} close")
    assert names(turns) == ["overlap"]
    assert spans(turns) == [(0, 3, 0, 1)]


# -- PUSH, REPLY


@both_ends
def test_what_the_client_says_without_silence_is_its_reply_to_a_push(role):
    turns = play(role, f"{PUSHED} b 1 a a 300 a b close")
    assert names(turns)[2:] == ["push", "ok"]
    assert spans(turns)[2] == (2, 2, 2, 1)


@both_ends
def test_what_the_client_says_after_silence_is_a_request(role):
    assert names(play(role, f"{PUSHED} b 300 a b close"))[2:] == ["push", "ok"]


@both_ends
def test_pushes_are_parted_by_silence_only(role):
    turns = play(role, f"{PUSHED} b b 300 b close")
    assert names(turns)[2:] == ["push", "push"]
    assert [t.response_bytes for t in turns[2:]] == [2, 1]


@both_ends
def test_server_bytes_after_a_reply_are_another_push(role):
    assert names(play(role, f"{PUSHED} b a b close"))[2:] == ["push", "push"]


# -- the idle flush


@both_ends
def test_the_flush_ends_an_idle_response_which_may_be_cut(role):
    (turn,) = play(role, "a b 2500 flush")
    assert turn.cut
    assert names([turn]) == ["ok"]


@both_ends
def test_the_flush_ends_no_request_and_nothing_that_is_unread_or_not_acknowledged(role):
    assert play(role, "a 2500 flush") == []
    assert play(role, "a b 2500 flush!") == []
    assert play(role, "a b 2500 flush~") == []
    assert play(role, "a b 1500 flush") == []


@both_ends
def test_the_flush_ends_late_bytes_pushes_and_replies(role):
    assert names(play(role, f"a b {LATE[role]} 2500 flush")) == ["overlap"]
    assert names(play(role, f"{PUSHED} b 2500 flush"))[2:] == ["push"]
    assert names(play(role, f"{PUSHED} b a 2500 flush"))[2:] == ["push"]


# -- the first turns


@both_ends
def test_the_first_turns_are_setup_whatever_they_would_be(role):
    assert names(play(role, "a b 1 a b 1 a b close", setup_turns=2)) == ["setup", "setup", "ok"]
    assert names(play(role, "a 300 a b 1 a b close", setup_turns=2)) == ["setup", "setup", "ok"]
    assert names(play(role, "b a b 1 a b 1 a b close", setup_turns=2)) == ["setup", "setup", "setup", "ok"]
    assert names(play(role, "a 20 fin close", setup_turns=2)) == ["setup"]


# -- what the log cannot tell


def test_a_gap_near_the_pause_leaves_it_undecided():
    for ms, undecided in [(50, False), (110, True), (290, True), (400, False)]:
        end = OneEnd(Role.CLIENT, PAUSE_MS * MS)
        end.see(Event(Kind.A, 0, size=1))
        end.see(Event(Kind.A, ms * MS, ms * MS + MS, size=1))
        assert end.undecided == undecided


# -- what was held up, and what was lost


@both_ends
def test_a_stall_of_seconds_in_a_response_is_no_sign_of_pushes_on_a_connection_that_takes_turns(role):
    stalled = f"{200 * 'a b 1 '} a b 2500 flush b 1 {100 * 'a b 1 '}"
    found = names(play(role, f"{stalled} close"))
    assert found[:201] == 201 * ["ok"]
    assert "ok" not in found[201:233]
    assert set(found[-60:]) == {"ok"}
    pushed = f"{200 * 'a b 1 '} a b 1 a b 2500 flush b 1 b 300 b 300 b 300"
    assert names(play(role, f"{pushed} a b close"))[-1] == "push", "two pushes of a server are pushes"


@both_ends
def test_what_was_lost_once_does_not_hold_a_turn_open_for_minutes(role):
    assert names(play(role, "a 30000 a? b close")) == ["ok"]
    assert names(play(role, "a 90000 a? b close")) == ["oneway", "ok"]


@both_ends
def test_messages_that_follow_each_other_within_the_pause_are_no_request_of_seconds(role):
    dense = 20 * "a 100 "
    assert names(play(role, f"{dense} a b 1 a b close")) == ["overlap", "ok"]
    assert names(play(role, f"a b 1 {dense} a 150 fin close")) == ["ok", "overlap"]
    assert names(play(role, f"{10 * 'a 100 '} a b close")) == ["ok"], "an upload"
    assert names(play(role, f"{500 * 'a 10 '} a b close")) == ["ok"], "one that flows"
    assert names(play(role, f"{20 * 'a~ 100 '} a b close")) == ["ok"], "its network is slow"
    upload = OneEnd(role, PAUSE_MS * MS)
    for i in range(21):
        upload.see(Event(Kind.A, (10 + 100 * i) * MS, size=10_000))
    for kind in (Kind.B, Kind.CLOSE):
        upload.see(Event(kind, 2100 * MS, size=kind is Kind.B))
    assert names(upload.turns) == ["ok"], "many bytes"
