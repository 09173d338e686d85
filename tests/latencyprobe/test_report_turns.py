"""report/turns.py: what is said of turns that count as no RPC, and when there is something to do."""

import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe import exclusions
from latencyprobe.report import model, turns
from latencyprobe.slo.evaluate import State


def result(events: int, state: State = State.MET, seen: int | None = None, **by_reason: int) -> model.Result:
    ambiguous = sum(n for reason, n in by_reason.items() if exclusions.BY_NAME[reason].ambiguous)
    excluded = sum(by_reason.values()) - ambiguous
    coverage = model.Coverage(
        *("100", events + ambiguous + excluded if seen is None else seen, ambiguous, excluded),
        *(0, 0, 0, 0, "0s"),
        tuple(model.Exclusion(reason, n) for reason, n in by_reason.items()),
    )
    return model.Result("p", "o", "cart", "Server", "1ms", "99", "1d", state, events, 0, 1000, coverage, "")


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (
            result(37_690, push=2250, oneway=60),
            "2,310 of 40,000 turns counted as no RPC: push 2,250, one-way 60",
        ),
        (
            result(0, oneway=7, streaming=7, teardown=9, setup=0),
            "23 of 23 turns counted as no RPC: goodbye 9, one-way 7, streaming 7",
        ),
        (result(1, peer=1), "1 of 2 turns counted as no RPC: between peers"),
        (result(0, own=1), "1 of 1 turn counted as no RPC: our own"),
        (result(9), ""),
        (result(9, setup=0), ""),
        (result(9, seen=2, setup=7), "7 of 7 turns counted as no RPC: set-up"),
    ],
)
def test_reasons_are_said_in_words_most_frequent_first(found: model.Result, said: str) -> None:
    assert said == turns.of_coverage(found.coverage)


def test_counts_from_before_there_were_reasons_are_said_to_have_none() -> None:
    assert "5 of 9 turns counted as no RPC: untold" == turns.no_rpc({}, 5, 9)
    assert "5 of 9 turns counted as no RPC: push 3, untold 2" == turns.no_rpc({"push": 3}, 5, 9)


def test_a_reason_of_another_version_has_its_name() -> None:
    assert "3 of 9 turns counted as no RPC: tomorrow" == turns.no_rpc({"tomorrow": 3}, 3, 9)
    newer = model.Coverage("1", 9, 9, 0, 0, 0, 0, 0, "0s", (model.Exclusion("tomorrow", 9),))
    assert "" == turns.advice(model.Result("p", "o", "c", "Server", "", "", "", State.MET, 0, 0, 1, newer, ""))


@given(st.dictionaries(st.sampled_from([*exclusions.BY_NAME, "other"]), st.integers(0, 1 << 50)), st.integers(0, 9))
def test_what_is_said_adds_up(by_reason: dict[str, int], untold: int) -> None:
    excluded = sum(by_reason.values()) + untold
    said = turns.no_rpc(by_reason, excluded, excluded)
    numbers = [int(n.replace(",", "")) for n in re.findall(r"(?<= )[\d,]*\d", said.partition(": ")[2])]
    assert sum(numbers) in ({0, excluded} if len(numbers) < 2 else {excluded})
    assert (said == "") == (excluded == 0)


ADVISED: dict[str, dict[str, Any]] = {
    "push": {"push": 1200, "overlap": 100, "setup": 9000},
    "streaming": {"streaming": 1112},
    "overlapping": {"overlap": 4000, "pipelined": 800},
    "pipelined": {"pipelined": 10_000},
    "multiplexed": {"multiplexed": 90_000, "oneway": 10**6},
}


@pytest.mark.parametrize("word", ADVISED)
def test_what_makes_the_view_incomplete_comes_with_a_remedy(word: str) -> None:
    said = turns.advice(result(10_000, State.INCOMPLETE, **ADVISED[word]))
    assert said.startswith(f"{word}: ")
    assert len(said) > 40


def test_a_remedy_names_the_field_that_helps() -> None:
    fields = {"push": "`pause`", "streaming": "`pause`", "overlap": "`tls` or `setupTurns`"}
    for reason, field in fields.items():
        assert field in turns.advice(result(0, State.NO_DATA, **{reason: 9}))
    for reason, field in {"oneway": "`pause`", "setup": "`setupTurns`", "peer": "`peers`"}.items():
        assert field in turns.advice(result(0, State.NO_DATA, **{reason: 9}))


def test_what_is_left_out_by_construction_matters_only_where_nothing_else_is_left() -> None:
    assert "" == turns.advice(result(10_000, oneway=10**6))
    assert "" == turns.advice(result(10, State.NO_DATA, setup=9))
    assert turns.advice(result(8, State.NO_DATA, setup=9)).startswith("set-up: ")


def test_a_few_ambiguous_turns_are_no_matter() -> None:
    assert "" == turns.advice(result(10_000, push=1111))
    assert "" == turns.advice(result(10_000))
