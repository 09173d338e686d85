"""What the turns of a connection say of it together: the model, by docs/design/measurement.md, "Classes"."""

import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, Role
from tests.truth.turn_words import LATE, PUSHED, both_ends, names, play


@both_ends
def test_two_pushes_in_32_turns_make_a_connection_of_pushes_for_1024_turns(role):
    turns = play(role, f"{PUSHED} b 300 {'a b 1 ' * 10} a b 2500 flush b 300 {'a b 1 ' * 1030} close")
    excluded = names(turns)
    assert excluded[:14] == ["ok", "ok", "push", *11 * ["ok"]]
    assert excluded[14:1038] == 1024 * ["push"]
    assert set(excluded[1038:]) == {"ok"}


@both_ends
def test_what_counts_as_a_push_and_what_does_not(role):
    def bad(script: str) -> bool:
        """Whether the turns after two of these are excluded."""
        return names(play(role, f"a b 1 a b 1 {script} {script} 300 a b close"))[-1] == "push"

    assert bad("2500 flush b 300")
    assert bad("2500 flush b a 300")
    assert bad("a b 300 b 300")  # streaming
    assert names(play(role, "a b 300 b 300 a b close"))[-1] != "push"  # of which one alone is one
    assert bad("a 300 a 300")  # two in a row, twice
    assert not bad("a 300 a b 1")  # COM_STMT_CLOSE
    assert names(play(role, "b 300 b 300 b a b a b close")) == ["setup", "setup", "ok"]  # a greeting in pieces


CLEAN = "a b 1 " * 130
HELD_UP = "a b 300 b 1"  # a response that goes on after silence


@both_ends
def test_after_128_clean_turns_a_response_that_was_held_up_costs_32_more_turns(role):
    assert names(play(role, f"{CLEAN} {HELD_UP} {'a b 1 ' * 40} close"))[130:] == [
        "streaming",
        *32 * ["push"],
        *9 * ["ok"],
    ]


@both_ends
def test_before_them_only_silence_gives_the_initiative_back(role):
    turns = play(role, f"{'a b 1 ' * 127} {HELD_UP} {'a b 1 ' * 100} 300 a b close")
    assert names(turns)[127:] == ["streaming", *101 * ["push"], "push"]


@both_ends
def test_the_client_that_begins_after_silence_has_the_initiative_at_once(role):
    turns = play(role, f"{CLEAN} {HELD_UP} a b 1 a b 1 a 300 a b 1 a b close")
    assert names(turns)[130:] == ["streaming", "push", "push", "push", "ok", "ok"]


@pytest.mark.parametrize(
    ("role", "sign"),
    [
        (Role.CLIENT, "300 b 1"),
        (Role.CLIENT, "a! b 1"),
        (Role.CLIENT, "a b< 1"),
        (Role.SERVER, "300 b 1"),
        (Role.SERVER, "a< b 1"),
        (Role.SERVER, "a b! 1"),
    ],
)
def test_a_push_or_an_overlap_meanwhile_leaves_it_to_silence(role, sign):
    turns = play(role, f"{CLEAN} {HELD_UP} a b 1 {sign} {'a b 1 ' * 60} close")
    assert "ok" not in names(turns)[130:]


@both_ends
def test_two_overlaps_in_32_turns_make_a_pipelined_connection(role):
    overlap = f"a b {LATE[role]} b 1"
    turns = play(role, f"a b 1 {overlap} {'a b 1 ' * 3} {overlap} {'a b 1 ' * 50} close")
    assert names(turns)[:6] == ["ok", "overlap", "overlap", "ok", "ok", "ok"]
    assert names(turns)[6:38] == 32 * ["pipelined"]
    assert set(names(turns)[38:]) == {"ok"}


def test_a_message_that_takes_more_than_a_second_to_send_is_a_stream():
    (turn,) = play(Role.CLIENT, f"{'a 150 ' * 8} a b close")
    assert turn.conn_class is ExchangeClass.STREAM
    (turn,) = play(Role.SERVER, f"{'a 150 ' * 8} a b close")
    assert turn.conn_class is ExchangeClass.PINGPONG
