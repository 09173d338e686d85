"""report/explain.py: one exchange, its stages on one axis, what explains it and what shows more."""

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from latencyprobe import stages
from latencyprobe.report import explain, model, units
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE, document

PAIR = ("1ms", "2ms", "3ms", "90ms", "4us", "4ms")
JOINED = model.Slow(
    "4bf92f3577b34da6a3ce929d0e0e4736",
    "2026-09-21T14:03:00.123Z",
    "100.004ms",
    tuple(model.Stage(stage.name, length) for stage, length in zip(stages.PAIR, PAIR, strict=True)),
    "shop/cart",
    joined=True,
)
HALF = replace(
    JOINED,
    duration="90.004ms",
    peer="shop/frontend",
    joined=False,
    stages=(model.Stage("receive", "4us"), model.Stage("process", "90ms")),
)


def result(side: str, *slowest: model.Slow) -> model.Result:
    return model.Result("p", side, "cart", side, "1ms", "99", "1d", State.MET, 1, 0, 1, COVERAGE, "", slowest=slowest)


CLIENT, SERVER = result("Client", JOINED), result("Server", HALF)
CALL = model.WaitedFor("shop/redis:6379", 3, "44ms", "d" * 32)


def explained(*ends: tuple[model.Result, model.Slow], width: int = 100, known: tuple[str, ...] = ()) -> str:
    file = io.StringIO()
    explain.render(
        [Exchange(*one) for one in ends], Console(file=file, width=width), "latencyprobe explain -n shop", known
    )
    return file.getvalue()


def listed(*results: model.Result) -> list[Exchange]:
    return explain.listed([document(*results)])


def test_both_ends_are_found_by_the_beginning_of_their_trace_id() -> None:
    other = replace(HALF, trace_id="ff" * 16)
    found = explain.find(listed(SERVER, CLIENT, result("Server", other)), "4bf9")
    assert found == [Exchange(CLIENT, JOINED, "shop"), Exchange(SERVER, HALF, "shop")], "a client's before its server's"


def test_without_a_trace_it_is_the_slowest_of_those_that_burned_the_budget() -> None:
    burned = (model.BadStage("process", 9, "90", "1s"), model.BadStage("receive", 1, "10", "1s"))
    outlier = replace(HALF, trace_id="ff" * 16, duration="2s", stages=(model.Stage("receive", "2s"),))
    usual = replace(SERVER, bad_by_stage=burned, slowest=(outlier, HALF))
    assert explain.typical(listed(usual)).slow is HALF
    slower = "One took longer, 2s, by another stage, receive: say ffff"
    assert explain.slower(outlier, HALF, "say").startswith(slower)
    for same in (result("Server", outlier, HALF), replace(usual, slowest=(outlier,))):
        assert explain.typical(listed(same)).slow is outlier
    assert explain.slower(outlier, outlier, "say") == ""


def test_without_a_trace_it_is_of_the_worst_objective_and_not_of_the_slowest() -> None:
    def of(name: str, state: State, left: str | None, *slow: model.Slow) -> model.Result:
        return replace(SERVER, objective=name, state=state, error_budget_remaining=left, slowest=slow)

    nightly = of("nightly", State.MET, "100", replace(HALF, trace_id="aa" * 16, duration="12s"))
    unjudged = of("unjudged", State.NO_DATA, None, replace(HALF, trace_id="bb" * 16, duration="13s"))
    risky = of("risky", State.AT_RISK, "12.5", HALF)
    spent, overspent = of("spent", State.VIOLATED, "0", HALF), of("overspent", State.VIOLATED, "-900", HALF)
    silent = of("silent", State.VIOLATED, "-1000")
    left = [unjudged, nightly, risky, spent, overspent, silent]
    for worst in (overspent, spent, risky, nightly, unjudged):
        assert explain.typical(listed(*left)).result is worst
        left.remove(worst)


def test_what_several_objectives_name_is_the_worst_ones_alone() -> None:
    met, violated = SERVER, replace(SERVER, objective="strict", state=State.VIOLATED)
    for both in ((met, violated), (violated, met)):
        assert listed(*both) == [Exchange(violated, HALF, "shop")]


def test_only_those_that_began_since_then_are_listed() -> None:
    early = replace(HALF, trace_id="ee" * 16, time="2026-09-21T14:02:59Z")
    since_ns = units.unix_ns("2026-09-21T14:03:00Z")
    assert [one.slow for one in explain.listed([document(result("Server", early, HALF))], since_ns)] == [HALF]


def test_stages_lie_behind_each_other_and_have_their_length_and_share() -> None:
    lines = explained((CLIENT, JOINED)).splitlines()
    rows = [next(line for line in lines if line.split()[:1] == [stage.name]) for stage in stages.PAIR]
    assert [row.split()[-3:-1] for row in rows] == [
        [length, f"{share}"] for length, share in zip(PAIR, ("0.9", "1.9", "2.9", "89.9", "0", "3.9"), strict=True)
    ]
    starts = [len(row) - len(row.split(None, 1)[1]) for row in rows]
    assert starts == sorted(starts)
    assert rows[3].count("P") > 50
    assert "·" in rows[4], "a stage that is too short to draw is there all the same"


@pytest.mark.parametrize("width", [60, 80, 120, 200])
def test_it_fits_the_terminal(width: int) -> None:
    found = explained((CLIENT, JOINED), (SERVER, HALF), width=width)
    assert max(len(line.rstrip()) for line in found.splitlines()) <= width
    assert JOINED.trace_id in found


def test_it_says_which_end_when_with_whom_and_that_both_halves_are_known() -> None:
    assert "joined with the client's half" in explained((SERVER, replace(HALF, joined=True)), width=200)
    found = " ".join(explained((CLIENT, JOINED), (SERVER, HALF), width=200).split())
    assert (
        "100ms from 2026-09-21 14:03:00.123 UTC on, at the client's side of cart, joined with the server's half"
        in found
    )
    assert "at the server's side of cart; at the other end shop/frontend; objective p/Server: Met" in found


def test_what_explains_it_is_said_with_the_way_to_the_call_it_waited_for() -> None:
    told = replace(HALF, evidence=(model.EvidenceSummary("retransmits", "rto", 1, "812ms"),), waited_for=(CALL,))
    lines = [line.strip() for line in explained((SERVER, told), width=200, known=(CALL.trace_id,)).splitlines()]
    assert "mostly process: the server has read the request and sends nothing yet" in lines
    assert "why: a segment was sent again after a timeout, without an ACK (rto): at most 812ms" in lines
    at = lines.index("why: waited for shop/redis:6379 ×3, 44ms")
    assert lines[at + 1] == f"latencyprobe explain -n shop {CALL.trace_id}"


def test_a_call_that_is_not_listed_is_no_command_but_a_trace() -> None:
    found = " ".join(explained((SERVER, replace(HALF, waited_for=(CALL,))), width=200).split())
    assert f"44ms trace {CALL.trace_id} (not listed here: ask where spans go)" in found
    assert "latencyprobe explain" not in found


def test_how_its_connection_opened_was_before_it() -> None:
    opened = model.EvidenceSummary("handshakes", "ok", 2, "1.02s"), model.EvidenceSummary("retransmits", "syn", 1, "1s")
    found = explained((CLIENT, replace(JOINED, evidence=opened)), width=200)
    assert "before it: the connection was opened with 2 SYNs: 1.02s, outside of this RPC's own time" in found
    assert "before it: the SYN was sent again" in found
    assert "why:" not in found


@pytest.mark.parametrize("stage", sorted(stages.BY_NAME))
def test_where_nothing_explains_it_what_shows_more_is_named(stage: str) -> None:
    told = replace(HALF, stages=(model.Stage(stage, "90ms"),))
    assert "more: " in explained((SERVER, told), width=200)


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
    assert ("more: " not in explained((CLIENT, slow), width=200)) == explains


def test_late_accept_is_named_where_the_server_was_slow_to_read_a_connections_first_rpc() -> None:
    opened = (model.EvidenceSummary("handshakes", "ok", 1, "1ms"),)
    late = replace(HALF, stages=(model.Stage("read_delay", "89ms"), model.Stage("process", "1ms")), evidence=opened)
    of_pair = (model.Stage("network", "1ms"), model.Stage("server_read_delay", "98ms"))
    said = "the first on its connection: waiting for accept()"
    for end in ((SERVER, late), (CLIENT, replace(JOINED, stages=of_pair, evidence=opened))):
        assert said in explained(end)
    slow_reader = replace(HALF, stages=late.stages)
    assert said not in explained((SERVER, slow_reader))
    assert said not in explained((CLIENT, late)), "that is the client's own delay"
    assert said not in explained((SERVER, replace(HALF, evidence=opened)))


def test_a_failed_one_says_how_and_names_are_no_markup() -> None:
    found = explained((SERVER, replace(HALF, error="[/ECONNRESET]", peer="[bold]", stages=())), width=200)
    assert "failed: [/ECONNRESET]" in found
    assert "[bold]" in found
