"""report/notes.py: the sentences below an objective."""

import pytest
from msgspec.structs import replace

from latencyprobe.report import model, notes
from latencyprobe.slo.evaluate import State
from tests.latencyprobe.report_examples import COVERAGE

MET = model.Result(
    *("p", "o", "cart", "Server", "1ms", "99", "1d", State.MET, 900, 9, 100, COVERAGE, "2026-11-26T14:00:00Z"),
    since="2026-11-26T12:00:00Z",
)
STAGES = (model.BadStage("send", 2, "100", "9ms"),)
LATELY = model.Now("5m", "3.3", "1", "0.2ms", "1ms", other_p99="61ms", stages=STAGES)


def texts(result: model.Result) -> list[str]:
    return [note.text for note in notes.told(result)]


def test_advice_is_told_from_facts() -> None:
    coverage = model.Coverage("51", 10_000, 4900, 0, 0, 0, 0, 0, "0s", (model.Exclusion("overlap", 4900),))
    found = list(notes.told(replace(MET, coverage=coverage, events=5100)))
    assert [False, False, True, False, False] == [note.advice for note in found]
    assert found[2].text.startswith("overlapping: requests and answers cross")


def test_connecting_is_told_as_what_came_before() -> None:
    late = model.Explained("handshakes", 3, "5", 0, "0", "3.1s")
    noted = texts(replace(MET, bad=0, evidence=(late,)))
    said = f"before 5 % of all, connecting took longer than {MET.threshold}: 3.1s in all, outside of the RPCs' own time"
    assert said in noted
    assert not any("handshakes hit" in text for text in noted)


def test_the_last_minutes_are_told_where_the_window_is_of_more() -> None:
    said = "in the last 5m: 3.3/s, 1 % bad, mostly send; p99 1ms, callers 61ms"
    assert said in texts(replace(MET, now=LATELY))
    young, chosen = replace(MET, now=LATELY, since="2026-11-26T13:50:00Z"), replace(MET, now=LATELY, window_events=9)
    assert not any("in the last" in text for one in (MET, young, chosen) for text in texts(one))


@pytest.mark.parametrize(
    ("events", "why", "said"),
    [
        (0, "", "needs 100 events to judge, has 0: send traffic; is the target's port right?"),
        (7, "", "needs 100 events to judge, has 7"),
        (0, "Suspended: spec.suspend is true", "needs 100 events to judge, has 0"),
    ],
)
def test_too_few_events_are_told_with_what_brings_them(events: int, why: str, said: str) -> None:
    found = texts(replace(MET, state=State.NO_DATA, events=events, bad=0, not_measured=why))
    assert said in found
    assert (f"not measured now: {why}" == found[0]) is bool(why)


def test_figures_without_the_latest_counts_are_told_with_why() -> None:
    stages = (model.BadStage("process", 9, "100", "9ms"),)
    violated = replace(MET, state=State.VIOLATED, bad_by_stage=stages, reason="the latest counts are missing: full")
    first, second, *_ = texts(violated)
    assert first == "not evaluated with the latest counts: the latest counts are missing: full"
    assert second == "burned by process 100 %"
    assert len(texts(replace(violated, state=State.INCOMPLETE, events=0))) == 1, "no figures"
