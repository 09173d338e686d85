"""report/explanation.py: what is said of one RPC, and where its halves lie on one axis."""

import pytest
from msgspec.structs import replace

from latencyprobe import stages
from latencyprobe.report import model
from tests.latencyprobe.explained_rpcs import CALL, CLIENT, HALF, JOINED, SERVER, End, explained, result
from tests.latencyprobe.report_examples import SLOW

UNJOINED = replace(
    JOINED,
    joined=False,
    stages=(model.Stage("send", "1ms"), model.Stage("wait", "94ms"), model.Stage("read_delay", "5.004ms")),
)


def said(*ends: End, known: tuple[str, ...] = ()) -> list[str]:
    """The sentences, as a terminal has them."""
    return [f"{line.lead} {line.said}" for half in explained(*ends, known=known).halves for line in half.lines]


def test_it_says_which_end_when_with_whom_and_that_both_halves_are_known() -> None:
    assert "joined with the client's half" in explained((SERVER, replace(HALF, joined=True))).halves[0].title
    client, server = explained((CLIENT, JOINED), (SERVER, HALF)).halves
    assert (client.duration, server.duration) == ("100ms", "90ms")
    assert client.title.startswith(
        "from 2026-09-21 14:03:00.123 UTC on, at the client's side of cart, joined with the server's half"
    )
    assert server.title.endswith("at the server's side of cart; at the other end shop/frontend; objective p/Server:")


def test_what_explains_it_is_said_with_the_way_to_the_call_it_waited_for() -> None:
    told = replace(HALF, evidence=(model.EvidenceSummary("retransmits", "rto", 1, "812ms"),), waited_for=(CALL,))
    lines = said((SERVER, told))
    assert "mostly process: the server has read the request and sends nothing yet" in lines
    assert "why: a segment was sent again after a timeout, without an ACK (rto): at most 812ms" in lines
    (call,) = [line for line in explained((SERVER, told), known=(CALL.trace_id,)).halves[0].lines if line.trace_id]
    assert (call.lead, call.said) == ("why:", "waited for shop/redis:6379 ×3, 44ms")
    assert (call.command, call.elsewhere) == (f"latencyprobe explain -n shop {CALL.trace_id}", "")


def test_a_call_that_is_not_listed_is_no_command_but_a_trace() -> None:
    lines = explained((SERVER, replace(HALF, waited_for=(CALL,)))).halves[0].lines
    (call,) = [line for line in lines if line.trace_id]
    assert (call.trace_id, call.command, call.elsewhere) == (CALL.trace_id, "", "not listed here: ask where spans go")


def test_how_its_connection_opened_was_before_it() -> None:
    opened = model.EvidenceSummary("handshakes", "ok", 2, "1.02s"), model.EvidenceSummary("retransmits", "syn", 1, "1s")
    found = said((CLIENT, replace(JOINED, evidence=opened)))
    assert "before it: the connection was opened with 2 SYNs: 1.02s, outside of this RPC's own time" in found
    leads = [line.partition(":")[0] for line in found]
    assert ("why" in leads, leads.count("before it")) == (False, 2)


@pytest.mark.parametrize("stage", sorted(stages.BY_NAME))
def test_where_nothing_explains_it_what_shows_more_is_named(stage: str) -> None:
    told = replace(HALF, stages=(model.Stage(stage, "90ms"),))
    assert said((SERVER, told))[-1].startswith("more: ")


@pytest.mark.parametrize(
    ("stage", "evidence", "calls", "explains"),
    [
        ("process", [("waits", "futex", "30ms"), ("waits", "on CPU", "15ms")], (), True),
        ("process", [("waits", "futex", "30ms"), ("waits", "on CPU", "14ms")], (), False),
        ("process", [], (replace(CALL, wait="45ms"),), True),
        ("process", [], (CALL,), False),
        ("process", [("waits", "recvfrom", "44ms")], (CALL,), False),
        ("process", [("retransmits", "rto", "812ms")], (), False),
        ("process", [("handshakes", "ok", "1s")], (), False),
        ("network", [("retransmits", "server", "80ms")], (), True),
        ("network", [("retransmits", "syn", "1s")], (), False),
        ("network", [("unsent", "server nagle", "40ms"), ("retransmits", "tlp", "")], (), False),
        ("server_process", [("waits", "server", "80ms")], (), True),
    ],
)
def test_what_shows_more_is_named_until_half_of_the_longest_stage_is_known(
    stage: str, evidence: list[tuple[str, str, str]], calls: tuple[model.WaitedFor, ...], explains: bool
) -> None:
    """What two signals tell may be the same time, so it is not added up."""
    told = tuple(model.EvidenceSummary(signal, what, 1, wait) for signal, what, wait in evidence)
    slow = replace(HALF, stages=(model.Stage(stage, "90ms"),), evidence=told, waited_for=calls)
    assert (not said((CLIENT, slow))[-1].startswith("more: ")) == explains


def test_late_accept_is_named_where_the_server_was_slow_to_read_a_connections_first_rpc() -> None:
    opened = (model.EvidenceSummary("handshakes", "ok", 1, "1ms"),)
    late = replace(HALF, stages=(model.Stage("read_delay", "89ms"), model.Stage("process", "1ms")), evidence=opened)
    of_pair = (model.Stage("network", "1ms"), model.Stage("server_read_delay", "98ms"))
    accepted = "why: the first on its connection: waiting for accept()"
    for end in ((SERVER, late), (CLIENT, replace(JOINED, stages=of_pair, evidence=opened))):
        assert accepted in "".join(said(end))
    slow_reader = replace(HALF, stages=late.stages)
    assert accepted not in "".join(said((SERVER, slow_reader)))
    assert accepted not in "".join(said((CLIENT, late))), "that is the client's own delay"
    assert accepted not in "".join(said((SERVER, replace(HALF, evidence=opened))))


def ends_ms(*ends: End) -> list[tuple[float, float]]:
    """Where each half begins and ends on the axis, in ms."""
    found = explained(*ends)
    every = [[row.mark for row in half.rows] for half in found.halves]
    return [
        (one[0].start * found.axis_ns / 1e8, (one[-1].start + one[-1].width) * found.axis_ns / 1e8) for one in every
    ]


@pytest.mark.parametrize("client", [JOINED, UNJOINED], ids=["joined", "not joined"])
def test_the_servers_half_lies_in_the_clients_and_ends_where_its_answer_had_come(client: model.Slow) -> None:
    read_delay_ms = {JOINED: 4, UNJOINED: 5.004}[client]
    answered_ms = 100.004 - read_delay_ms
    assert sum(ends_ms((CLIENT, client), (SERVER, HALF)), ()) == pytest.approx(
        (0, 100.004, answered_ms - 90.004, answered_ms)
    )
    assert "drawn as if the answer had taken no time on its way" in " ".join(said((CLIENT, client), (SERVER, HALF)))


def test_the_servers_stages_lie_below_those_of_the_pair() -> None:
    shown = {"read_delay": "1.02ms", "process": "18.4ms", "send": "300us"}
    half = replace(SLOW, stages=tuple(model.Stage(*one) for one in {"receive": "500us", **shown}.items()))
    client, server = explained((CLIENT, SLOW), (SERVER, half)).halves
    starts = {row.mark.label: row.mark.start for row in client.rows}
    assert [row.mark.start for row in server.rows[1:]] == pytest.approx([starts[f"server_{name}"] for name in shown])
    assert server.rows[1].share == "5 %", "of its own half"


def test_a_server_that_was_longer_at_it_does_not_begin_before_the_client() -> None:
    """Its last send call returned after the client had read."""
    late = replace(HALF, stages=(model.Stage("process", "90ms"), model.Stage("send", "20ms")))
    (server_ms, client_ms) = ends_ms((SERVER, late), (CLIENT, JOINED))
    assert (*server_ms, *client_ms) == pytest.approx((0, 110, 0, 100.004))


def test_of_one_that_failed_nobody_knows_how_its_halves_lie() -> None:
    both = (CLIENT, replace(JOINED, error="ETIMEDOUT")), (SERVER, HALF)
    assert [start for start, _ in ends_ms(*both)] == [0, 0]
    assert "drawn from the beginning of the client's half" in " ".join(said(*both))


def test_one_half_alone_fills_the_axis_and_needs_no_word_about_it() -> None:
    assert ends_ms((SERVER, HALF))[0] == pytest.approx((0, 90.004))
    assert said((SERVER, HALF))[0].startswith("mostly ")
    assert said((CLIENT, UNJOINED))[0].startswith("mostly ")
    assert said((CLIENT, JOINED))[0].startswith("drawn with network in one piece")


def test_a_server_whose_half_is_known_is_not_said_to_be_unknown() -> None:
    unknown = "more: nothing of the server's half is known"
    assert said((CLIENT, UNJOINED))[-1].startswith(unknown)
    assert unknown not in " ".join(said((CLIENT, UNJOINED), (SERVER, HALF)))
    twice = (CLIENT, UNJOINED), (result("Client"), UNJOINED)
    assert unknown in " ".join(said(*twice)), "two namespaces tell of one half"
