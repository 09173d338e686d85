"""The model of the rules, at the ends of a connection: what failed and when, and what was a goodbye."""

import pytest

from latencyprobe_agent.vocabulary.records import Outcome, Role
from tests.truth.turn_words import MS, PUSHED, both_ends, names, play, spans


def test_bytes_after_the_servers_own_fin_belong_to_nothing_and_what_was_open_ends():
    turns = play(Role.SERVER, "a b shut a a fin close")
    assert names(turns) == ["ok"]
    assert spans(turns) == [(0, 1, 0, 1)]
    assert len(play(Role.SERVER, f"{PUSHED} shut a fin close")) == 2
    assert names(play(Role.SERVER, "a shut a fin close")) == ["teardown"]


def test_what_a_client_says_after_a_response_with_a_fin_is_its_goodbye():
    for end in ("reset close", "close", "500 close", "abort"):
        assert names(play(Role.CLIENT, f"a b fin 300 a {end}")) == ["ok", "teardown"]
    assert names(play(Role.CLIENT, "a b 300 fin a look reset")) == ["ok", "reset"]


@both_ends
@pytest.mark.parametrize("first", ["fin", "close"])
def test_an_unanswered_message_and_the_asking_ends_fin_within_100_ms_are_teardown(role, first):
    second = "close" if first == "fin" else "fin"
    assert names(play(role, f"a b 1 a 50 {first} 10 {second}")) == ["ok", "teardown"]


@pytest.mark.parametrize(
    ("script", "outcome", "end_ms"),
    [
        ("a 300 close", Outcome.ABORTED, 310),
        ("a 300 fin 500 close", Outcome.UNANSWERED, 310),
        ("a 300 reset 500 close", Outcome.RESET, 310),
        ("a 20 abort", Outcome.ABORTED, 30),
        ("a look 20 reset", Outcome.RESET, 30),
        ("a 20 reset 30 look", Outcome.RESET, 30),
        ("a 300 shut 300 fin 300 close", Outcome.UNANSWERED, 610),
    ],
)
def test_how_a_clients_unanswered_request_failed_and_when(script, outcome, end_ms):
    (turn,) = play(Role.CLIENT, script)
    assert names([turn]) == [outcome.name.lower()]
    assert turn.end.ns == end_ms * MS


@pytest.mark.parametrize(
    ("script", "outcome", "end_ms"),
    [
        ("a 300 fin 10 close", Outcome.ABORTED, 310),
        ("a 300 close 10 fin", Outcome.UNANSWERED, 310),
        ("a 300 close 10 gone", Outcome.UNANSWERED, 310),
        ("a 20 close 5 gone", Outcome.UNANSWERED, 30),
        ("a 20 close 5 reset", Outcome.UNANSWERED, 30),
        ("a 20 close!", Outcome.UNANSWERED, 30),
        ("a. 200 close!", Outcome.UNANSWERED, 210),
        ("a 20 abort", Outcome.UNANSWERED, 30),
        ("a 20 reset", Outcome.RESET, 30),
        ("a 300 fin 10 reset", Outcome.ABORTED, 310),
    ],
)
def test_how_a_servers_unanswered_request_failed_and_when(script, outcome, end_ms):
    (turn,) = play(Role.SERVER, script)
    assert names([turn]) == [outcome.name.lower()]
    assert turn.end.ns == end_ms * MS


def test_what_a_server_has_not_read_within_100_ms_it_met_as_a_goodbye():
    assert names(play(Role.SERVER, "a. 20 close!")) == ["teardown"]


def test_a_client_that_closes_and_never_called_for_an_answer_said_goodbye():
    assert names(play(Role.CLIENT, "a 20 reset 30 close")) == ["teardown"]
    assert names(play(Role.CLIENT, "a b. 20 close!")) == ["teardown"]
    assert names(play(Role.CLIENT, "a look b. 20 close!")) == ["ok"]
    assert names(play(Role.CLIENT, "a b. 200 close!")) == ["ok"]


def test_bytes_after_an_answer_over_unread_ones_may_be_the_rest_of_them():
    turns = play(Role.SERVER, "a. b! a 1 a b close")
    assert names(turns) == ["overlap", "overlap"]
    assert spans(turns) == [(0, 1, 0, 1), (1, 2, 1, 1)]


def test_a_reset_after_the_fin_of_a_goodbye_changes_nothing():
    assert names(play(Role.SERVER, "a 20 fin 1 reset")) == ["teardown"]
    assert names(play(Role.SERVER, "a 20 fin 1 close!")) == ["teardown"]


@both_ends
def test_an_answer_that_is_complete_survives_a_reset(role):
    assert names(play(role, "a b reset")) == ["ok"]
    assert names(play(role, f"a b reset{'~' if role is Role.SERVER else '!'}")) == ["reset"]


@both_ends
@pytest.mark.parametrize("end", ["20 fin close", "500 fin close", "500 reset close"])
def test_what_is_open_on_a_connection_that_was_never_answered_is_oneway(role, end):
    assert names(play(role, f"a 300 a 300 a {end}")) == 3 * ["oneway"]


# -- goodbyes


@both_ends
def test_a_goodbye_of_tls_is_as_long_as_the_alert_that_answers_it_and_the_last_that_is_said(role):
    assert names(play(role, "a b b 500 a b 20 fin close", tls=True)) == ["ok", "teardown"]
    assert names(play(role, "a b b 500 aa b 20 fin close", tls=True)) == ["ok", "ok"], "not alike"
    assert names(play(role, "a b b 500 aa bb 20 close", tls=True)) == ["ok", "ok"], "no alert"
    assert names(play(role, "a b b 500 a b b 20 close", tls=True)) == ["ok", "ok"], "more than an alert"
    assert names(play(role, "a b b 500 a b 300 fin close", tls=True)) == ["ok", "ok"], "they did not leave"
    assert names(play(role, "a b fin close", tls=True)) == ["ok"], "the only turn"
    assert names(play(role, "a b b 500 a b 20 fin close")) == ["ok", "ok"], "not in TLS"


def test_an_alert_of_a_server_that_leaves_answers_no_request():
    """PostgreSQL's Terminate, which is longer than an alert."""
    for with_it in ("aa 20 fin b close", "aa b 20 close", "aa b 20 reset", "aa b 20 close fin"):
        assert names(play(Role.SERVER, f"a b 500 {with_it}", tls=True)) == ["ok", "teardown"], with_it
    for gave_up in ("aa 300 fin b close", "aa 300 b close"):
        assert names(play(Role.SERVER, f"a b 500 {gave_up}", tls=True)) == ["ok", "ok"], gave_up
    assert names(play(Role.SERVER, "a b 500 aa bb 20 close", tls=True)) == ["ok", "ok"], "the answer is no alert"
    assert names(play(Role.SERVER, "aa b 20 close", tls=True)) == ["ok"], "the only turn"


@both_ends
def test_a_request_whose_client_leaves_with_it_is_an_event_of_the_server_that_answered(role):
    assert names(play(role, f"a b 500 a {'fin ' if role is Role.SERVER else 'shut '} b close")) == ["ok", "ok"]


def test_what_a_server_says_with_its_fin_is_its_goodbye():
    assert names(play(Role.CLIENT, f"{PUSHED} b 20 fin close"))[2:] == ["teardown"]
    assert names(play(Role.CLIENT, f"{PUSHED} b 20 fin a close"))[2:] == ["teardown"]
    assert names(play(Role.CLIENT, f"{PUSHED} b fin 500 a close"))[2:] == ["push", "teardown"]
    assert names(play(Role.SERVER, f"{PUSHED} b 20 close"))[2:] == ["teardown"]
    assert names(play(Role.CLIENT, f"{PUSHED} b 300 fin close"))[2:] == ["push"]
    assert names(play(Role.SERVER, f"{PUSHED} b 300 close"))[2:] == ["push"]
    assert names(play(Role.SERVER, "a b 300 b close")) == ["streaming", "push"], "the rest of an answer"
