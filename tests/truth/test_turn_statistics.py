"""What the turns of a connection say of it together: the model, by docs/design/measurement.md, "Classes"."""

import pytest

from latencyprobe_agent.vocabulary.records import ExchangeClass, Role
from tests.truth.turn_words import LATE, PUSHED, names, play

both_ends = pytest.mark.parametrize("role", [Role.CLIENT, Role.SERVER])


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
