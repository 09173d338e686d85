"""report/evidence.py: sentences for all that this version's signals say of an exchange."""

from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from numpy.typing import NDArray

from latencyprobe import causes, stages, unsent
from latencyprobe.plan import Role
from latencyprobe.report import evidence, model, words
from latencyprobe.slo.evaluate import State
from latencyprobe_agent.signals import handshakes, retransmits, tcprt, waits
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.signals.table import EVIDENCE
from latencyprobe_agent.vocabulary.records import (
    HANDSHAKE,
    RETRANSMIT,
    TCPRT,
    ConnectOutcome,
    RetransmitKind,
    TcprtFlags,
    TcprtKind,
    WaitNr,
)
from tests.latencyprobe.report_examples import COVERAGE

SLOW = model.Slow("7" * 32, "2026-09-21T14:03:00Z", "50ms", (model.Stage("network", "50ms"),))
OF_SERVER = "server"  # of a caller's exchange: what the server's half lost


def result(perspective: str) -> model.Result:
    return model.Result("p", "o", "cart", perspective, "1ms", "99", "1d", State.MET, 1, 0, 1, COVERAGE, "")


def said(signal: str, what: str, count: int = 1, wait: str = "3ms", perspective: str = Role.CLIENT) -> str:
    return evidence.sentence(model.EvidenceSummary(signal, what, count, wait), result(perspective), SLOW)


def records(dtype: np.dtype[np.void], **values: list[int]) -> NDArray[np.void]:
    """A record for each combination of these values."""
    every = list(product(*values.values()))
    found = np.zeros(len(every), dtype)
    for name, column in zip(values, zip(*every, strict=True), strict=True):
        found[name] = column
    return found


def words_of(explains: Explains, rec: NDArray[np.void]) -> set[str]:
    return {what for record in rec for what, *_ in explains.describe(record, 1)}


def of_retransmits() -> set[str]:
    rec = records(
        RETRANSMIT,
        kind=[RetransmitKind.SEGMENT, RetransmitKind.SYNACK],
        tcp_state=[1, 2],
        tcp_flags=[0, retransmits.SYN],
        snd_wnd=[0, 1],
        ca_state=[0, 3, 4],
        icsk_pending=[0, 1, 5, 6],
        icsk_retransmits=[0, 1],
        undo_marker=[0, 1],
    )
    return words_of(retransmits.EXPLAINS, rec[retransmits.columns(rec).joins]) | {OF_SERVER}


def of_handshakes() -> set[str]:
    rec = records(HANDSHAKE, outcome=list(ConnectOutcome))
    return words_of(handshakes.EXPLAINS, rec[handshakes.columns(rec).joins])


def of_tcprt() -> set[str]:
    rec = records(TCPRT, kind=list(TcprtKind), flags=[0, TcprtFlags.REORDER], end_seq=[1])
    return words_of(tcprt.EXPLAINS, rec[tcprt.columns(rec).joins])


def of_waits() -> set[str]:
    of_calls = {"fsync", 'futex (woken by thread "gc")', *map(waits.call, WaitNr)}
    return {*causes.ALL, *of_calls, f"{causes.PREEMPTED} (another thread)", OF_SERVER}


WORDS: dict[str, Callable[[], set[str]]] = {
    "retransmits": of_retransmits,
    "handshakes": of_handshakes,
    "tcprt": of_tcprt,
    "waits": of_waits,
}


def test_a_signal_says_no_more_than_these() -> None:
    of_recovery = {"fast", "rack_reo", "tlp", "rto", "slow_start"}
    assert of_retransmits() == of_recovery | {"syn", "synack", "zero_window_probe", "pmtu", "other", OF_SERVER}
    assert of_handshakes() == {"ok", "simultaneous"}
    assert of_tcprt() == {"R", "R reordered", "P", "P reordered", "W", "W reordered"}


@pytest.mark.parametrize(
    ("signal", "what"), [(one.switch, what) for one in EVIDENCE for what in sorted(WORDS[one.switch]())]
)
def test_all_that_a_signal_says_is_a_sentence(signal: str, what: str) -> None:
    one = model.EvidenceSummary(signal, what, 2, "3ms")
    short = words.explained(one, result(Role.SERVER), SLOW)
    found = said(signal, what, 2)
    assert found != short
    assert "3ms" in found
    assert not found.startswith(("resent", "connect ", "tcprt "))


@pytest.mark.parametrize(
    ("signal", "what"), [("retransmits", "psychic"), ("handshakes", "quic"), ("tcprt", "R late"), ("newer", "thing")]
)
def test_what_another_version_says_is_said_as_it_is(signal: str, what: str) -> None:
    assert said(signal, what).endswith(f"{what}, 3ms")


@pytest.mark.parametrize(
    ("signal", "what", "count", "wait", "sentence"),
    [
        ("retransmits", "fast", 2, "3ms", "2 segments were sent again because ACKs told of a hole (fast): at most 3ms"),
        ("retransmits", "server", 0, "3ms", "segments were sent again by the server's kernel: at most 3ms"),
        ("handshakes", "ok", 1, "300us", "the connection was opened: 300us, outside of this RPC's own time"),
        ("handshakes", "ok", 0, "", "the connection was opened"),
        (
            *("tcprt", "R reordered", 1, "3ms"),
            "the answer was under way until its last ACK (TCP-RT, R): 3ms; the request came out of order",
        ),
        ("waits", "fsync", 3, "41ms", "of it blocked in fsync, 3 times: 41ms"),
        ("waits", "throttled (another thread)", 1, "5ms", "of it throttled by the CPU quota (another thread): 5ms"),
    ],
)
def test_a_sentence_has_how_often_and_how_long(signal: str, what: str, count: int, wait: str, sentence: str) -> None:
    assert said(signal, what, count, wait) == sentence


def test_a_server_knows_the_round_trip_of_a_handshake_and_not_how_long_connecting_took() -> None:
    assert said("handshakes", "ok", 0, "300us", Role.SERVER).startswith("the connection was opened: a round trip of")


def test_what_an_end_held_itself_is_no_part_of_what_it_receives() -> None:
    held = model.EvidenceSummary(unsent.SIGNAL, "server nagle", 1, "41ms")
    of_stage = {role: evidence.is_part_of(stages.RECEIVE, held, result(role)) for role in Role}
    assert of_stage == {Role.SERVER: False, Role.CLIENT: True}
