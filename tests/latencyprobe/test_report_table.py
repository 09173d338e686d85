"""report/table.py: what a person sees."""

import io
from pathlib import Path

import pytest
from msgspec.structs import replace
from rich.console import Console

from latencyprobe.report import build, model, table
from latencyprobe.report.headline import summary
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import State
from latencyprobe.store import SqliteStore
from tests.latencyprobe.conftest import FAST
from tests.latencyprobe.report_examples import COVERAGE, RICH, document

NOW = 1_790_000_000 // 60 * 60
GOLDEN = Path(__file__).parents[1] / "data" / "reports"


def printed(report: model.Report, width: int = 80, *, colours: bool = False, title: str = "shop") -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colours, color_system="standard" if colours else None)
    table.render(report, console, title)
    return "".join(f"{line.rstrip()}\n" for line in file.getvalue().splitlines())


@pytest.mark.parametrize("width", [80, 120])
def test_table_is_as_it_was_tuned(store: SqliteStore, width: int) -> None:
    found = printed(build.build(store, store.objectives(), NOW), width)
    assert (GOLDEN / f"table-{width}.txt").read_text() == found
    assert max(map(len, found.splitlines())) <= width


@pytest.mark.parametrize("width", [40, 60, 71])
def test_a_name_that_has_no_room_beside_its_figures_has_a_line_of_its_own(width: int) -> None:
    long = replace(RICH, objective="as-fast-as-its-callers-bear")
    found = printed(model.Report(summary([long]), (long,)), width)
    assert max(map(len, found.splitlines())) <= width
    head, columns, objective, *rest = found.partition("\n\n")[2].splitlines()
    figures = next(line for line in rest if "99.9 %" in line)
    assert (head.split(), columns.split()) == (["State", "Objective"], ["SLI", "goal", "budget", "left"])
    assert objective.startswith("Violated    checkout/as-fast-as-its-callers-"[:width])
    assert figures.split() == ["98.98", "%", "99.9", "%", "10.2×", "spent"]
    assert len(figures) == len(columns), "each in its column"


def test_a_name_that_has_room_stands_beside_its_figures() -> None:
    (line,) = (line for line in printed(model.Report(summary([RICH]), (RICH,)), 72).splitlines() if "99.9 %" in line)
    assert line.split()[:3] == ["Violated", "checkout/fast", "98.98"]


def test_pipe_gets_no_escape_codes_and_a_terminal_does(store: SqliteStore) -> None:
    found = build.build(store, store.objectives(), NOW)
    assert "\x1b" not in printed(found)
    assert "\x1b[1;31mViolated\x1b[0m" in printed(found, colours=True)


def test_no_color_is_honoured(store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    found = printed(build.build(store, store.objectives(), NOW), colours=True)
    assert "\x1b[31m" not in found
    assert "PPPPPPPPPPPP" in found


def test_objective_without_events_says_what_to_do(store: SqliteStore) -> None:
    found = " ".join(printed(build.build(store, store.objectives(), NOW)).split())
    assert "needs 1,000 events to judge, has 0: send traffic; is the target's port right?" in found


def test_objective_that_cannot_be_evaluated_says_why_and_nothing_else() -> None:
    result = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.INCOMPLETE, 0, 0, 1, COVERAGE, "")
    broken = replace(result, reason="its counts are broken (good is 7)")
    found = printed(model.Report({state.column: int(state is broken.state) for state in State}, (broken,)))
    assert "not evaluated: its counts are broken (good is 7)" in found
    assert "coverage" not in found


def test_records_of_evidence_that_were_lost_stand_in_the_coverage() -> None:
    lost = model.Explained("handshakes", 0, "0", 0, "0", "0s", lost=11_708)
    result = model.Result(
        "p", "o", "cart", "Client", "1ms", "99", "1d", State.MET, 9, 0, 1, COVERAGE, "", evidence=(lost,)
    )
    found = printed(model.Report({state.column: int(state is State.MET) for state in State}, (result,)))
    assert f"coverage {COVERAGE.ratio} %: 11,708 records of handshakes lost" in found
    assert "handshakes hit" not in found


@pytest.mark.parametrize(
    ("sampled_out", "records_lost", "joined", "said"),
    [
        (9_750_000, 0, 245_000, "sampled 1 in 40 turns; 98 % of these joined"),
        (9_740_000, 10_000, 245_000, "sampled 1 in 40 turns; 98 % of these joined"),
        (9_750_000, 0, 0, "sampled 1 in 40 turns; p50"),
        (2_650_000, 0, 7_350_000, "sampled 73.5 % of turns; 100 % of these joined"),
        (1, 0, 9_999_999, "sampled 99.9 % of turns; 100 % of these joined"),
        (10_000_000, 0, 2, "sampled 1 in 10,000,000 turns; 100 % of these joined"),
        (0, 0, 9_900_000, "coverage 100 %; 99 % joined"),
    ],
)
def test_what_was_sampled_out_is_no_defect_of_joining(
    sampled_out: int, records_lost: int, joined: int, said: str
) -> None:
    coverage = model.Coverage("100", 10_000_000, 0, 0, 0, records_lost, joined, 0, "0s", sampled_out=sampled_out)
    result = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.MET, 10_000_000, 0, 1, coverage, "")
    result = replace(result, quantiles=model.Quantiles("1ms", "2ms", "3ms", "4ms"))
    found = printed(model.Report({state.column: int(state is State.MET) for state in State}, (result,)))
    assert said in " ".join(found.split())


def test_report_without_objectives_says_what_to_do(store: SqliteStore) -> None:
    assert "No objectives: add spec.objectives" in printed(build.build(store, [], NOW))


def test_report_of_a_cluster_without_results_says_where_to_read_why_nothing_is_evaluated() -> None:
    """None of its LatencyProbes may have room: what they have is too much, and adding objectives no remedy."""
    found = printed(replace(document(), made_by="latencyprobe 1"))
    why = "No objective is evaluated in namespace shop: `kubectl describe latencyprobes -n shop` says why, "
    assert f"{why}where spec.objectives has any." == " ".join(found.split())


def test_advice_stands_out_below_the_coverage_and_long_notes_hang() -> None:
    coverage = model.Coverage("51", 10_000, 4900, 0, 0, 0, 0, 0, "0s", (model.Exclusion("overlap", 4900),))
    half = model.Result("p", "o", "cart", "Client", "1ms", "99", "1d", State.INCOMPLETE, 5100, 0, 1, coverage, "")
    report = model.Report({state.column: int(state is half.state) for state in State}, (half,))
    notes = printed(report).splitlines()[4:]
    assert ["coverage 51 %: 4,900 ambiguous", "4,900 of 10,000 turns counted as no RPC: overlapping"] == [
        note.strip() for note in notes[:2]
    ]
    assert notes[2].startswith("            overlapping: requests and answers cross")
    assert notes[3].startswith("              ")
    assert "0 of 5,100 bad" in notes[4]
    assert "\x1b[33moverlapping: " in printed(report, colours=True)
    assert max(map(len, printed(report, 300).splitlines())) <= 100


def test_objective_whose_turns_are_no_rpcs_is_not_told_to_send_traffic() -> None:
    coverage = model.Coverage("0", 9, 9, 0, 0, 0, 0, 0, "0s", (model.Exclusion("multiplexed", 9),))
    none = model.Result("p", "o", "cart", "Server", "1ms", "99", "1d", State.NO_DATA, 0, 0, 100, coverage, "")
    found = " ".join(printed(model.Report(dict.fromkeys((s.column for s in State), 0), (none,))).split())
    assert "needs 100 events to judge, has 0: most turns count as no RPC" in found
    assert "send traffic" not in found
    assert "multiplexed: requests share a connection" in found


@pytest.mark.parametrize(
    ("sli", "goal", "shown"),
    [
        ("98.76549", "99", "98.76 %"),
        ("98.76549", "99.9", "98.765 %"),
        ("99.99999", "99.99", "99.9999 %"),
        ("99.9", "99.999", "99.9 %"),
        ("90.00999", "99", "90 %"),
        ("100", "99", "100 %"),
    ],
)
def test_sli_has_two_digits_more_than_its_goal_and_never_looks_better(sli: str, goal: str, shown: str) -> None:
    result = model.Result("p", "o", "cart", "Client", "1ms", goal, "1d", State.VIOLATED, 9, 1, 1, COVERAGE, "", sli)
    _, line, *_ = (line for line in printed(model.Report(summary([result]), (result,))).splitlines() if "p/o" in line)
    assert line.split("p/o")[1].strip().startswith(f"{shown} ")


def test_too_few_events_have_no_budget_and_no_alert() -> None:
    alert = model.BurnRate("page", "1h", "5m", "14.4", "Firing", "142", "142")
    result = model.Result(
        "p", "o", "cart", "Client", "1ms", "99.9", "1d", State.NO_DATA, 7, 1, 1000, COVERAGE, "", "85.7"
    )
    result = replace(result, error_budget_remaining="-14126", burn_rates=(alert,))
    found = printed(model.Report(summary([result]), (result,)))
    assert "needs 1,000 events to judge, has 7" in found
    assert "spent" not in found
    assert "page" not in found


def test_figures_of_the_last_minutes_are_beside_the_state_of_the_window(store: SqliteStore) -> None:
    assert "50 of 5,000 bad" in printed(build.build(store, store.objectives(), NOW, since_s=300))


def test_too_few_events_are_those_of_the_window_whatever_figures_are_shown(empty_store: SqliteStore) -> None:
    empty_store.define("shop", "checkout", [FAST])
    empty_store.add([SliRow(*FAST.key, minute=NOW - 3600, good=90)])
    found = printed(build.build(empty_store, empty_store.objectives(), NOW, since_s=300))
    assert "events to judge, has 90\n" in found


def test_burn_down_is_a_line_where_there_is_room() -> None:
    report = model.Report(summary([RICH]), (RICH,))
    assert "budget since 2026-09-20 14:13 UTC █▄▁▁ 10.2× spent\n" in printed(report, 90)
    assert "budget since" not in printed(report, 80)
