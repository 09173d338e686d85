"""What both ends of an exchange know alike, from which its identity is made."""

import numpy as np

from latencyprobe_agent.signals.exchanges import place
from latencyprobe_agent.vocabulary.records import Role
from tests.support.exchanges import exchanges

TURN = {"request_offset": 100, "response_offset": 200, "request_bytes": 3, "response_bytes": 4}
SEQ = {"request_seq": 1000 + 100, "response_seq": 5000 + 200}


def test_a_turn_is_known_by_where_both_messages_lie() -> None:
    known = place(exchanges(1, Role.CLIENT, **TURN, **SEQ))
    assert (known == place(exchanges(1, Role.SERVER, **TURN, **SEQ))).all()
    for name in (*TURN, *SEQ):
        other = place(exchanges(1, Role.SERVER, **{**TURN, **SEQ, name: 7}))
        assert (known != other).any(), name


def test_a_stream_is_known_by_its_request_whatever_its_ends_saw_of_the_answer() -> None:
    """A reset came before the answer at one end, and after it at the other; there it has no offset but the first."""
    answered = exchanges(1, Role.SERVER, **TURN, **SEQ, stream_id=3)
    given_up = exchanges(
        1, Role.CLIENT, **(TURN | {"response_offset": 0, "response_bytes": 0}), request_seq=1100, response_seq=5000,
        stream_id=3,
    )  # fmt: skip
    assert (place(answered) == place(given_up)).all()
    for name, value in (("stream_id", 5), ("request_offset", 101), ("request_seq", 1101), ("response_seq", 5201)):
        other = answered.copy()
        other[name] = value
        assert (place(answered) != place(other)).any(), name


def test_turns_and_streams_of_a_batch_keep_their_own_identity() -> None:
    turns, streams = exchanges(3, Role.CLIENT, **TURN, **SEQ), exchanges(2, Role.CLIENT, **TURN, **SEQ, stream_id=3)
    mixed = np.concatenate([turns[:1], streams, turns[1:]])
    of_turn, of_stream = place(turns)[:, 0], place(streams)[:, 0]
    assert place(mixed).T.tolist() == [of.tolist() for of in (of_turn, of_stream, of_stream, of_turn, of_turn)]
