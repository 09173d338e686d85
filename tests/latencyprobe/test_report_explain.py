"""report/explain.py: which RPC is explained."""

from msgspec.structs import replace

from latencyprobe.report import explain, model, units
from latencyprobe.report.words import Exchange
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.explained_rpcs import CLIENT, HALF, JOINED, SERVER, result
from tests.latencyprobe.report_examples import document


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


def test_without_a_trace_it_has_the_evidence_that_most_of_the_bad_ones_have() -> None:
    resent, waited = (model.EvidenceSummary(signal, "rto", 1, "80ms") for signal in ("retransmits", "waits"))
    unexplained = replace(HALF, trace_id="ff" * 16, duration="2s")
    explained = replace(HALF, evidence=(resent,))
    by_another = replace(HALF, trace_id="ee" * 16, duration="3s", evidence=(waited,))
    burned = (model.BadStage("process", 9, "90", "1s"),)

    def chosen(hits: int, *slow: model.Slow, bad: int = 9) -> model.Slow:
        """Of 9 RPCs, so many of them bad and as many as `hits` with retransmits, bad ones first."""
        retransmits = model.Explained("retransmits", hits, "9", min(hits, bad), "9", "1s")
        waits = model.Explained("waits", 4, "9", min(4, bad), "9", "1s")
        by_stage = burned if bad else ()
        evidence = (retransmits, waits)
        one = replace(SERVER, events=9, bad=bad, bad_by_stage=by_stage, evidence=evidence, slowest=slow)
        return explain.typical(listed(one)).slow

    assert chosen(5, by_another, unexplained, explained) is explained
    assert chosen(4, by_another, unexplained, explained) is by_another, "a few bad ones alone have any"
    assert chosen(5, by_another, unexplained) is by_another, "none is like most"
    assert chosen(5, by_another, unexplained, explained, bad=0) is explained, "of all, where none is bad"
    slower = "One took longer, 3s, without the evidence that most have: say eeee"
    assert explain.slower(by_another, explained, "say").startswith(slower)


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


def test_it_is_shown_with_both_its_ends_and_nothing_else() -> None:
    client, server = listed(CLIENT), listed(SERVER)
    other = replace(HALF, trace_id=f"{HALF.trace_id}0")
    every = [*listed(result("Server", other)), *server, *client]
    assert explain.ends(every, server[0]) == [*client, *server]
    nameless = Exchange(SERVER, replace(HALF, trace_id=""))
    assert explain.ends(every, nameless) == [nameless]
