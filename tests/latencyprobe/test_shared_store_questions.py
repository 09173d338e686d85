"""PromQL of the shared store: whatever names there are, nothing is asked about another namespace."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.plan import Role
from latencyprobe.shared_store import questions
from latencyprobe.shared_store.questions import Question
from latencyprobe.slo.objective import ObjectiveKey
from tests.latencyprobe.store_rows import DAY_S, HOUR_S

NOW = 20_000 * DAY_S
TEXT = r'"((?:[^"\\\n]|\\.)*)"'


def all_of(namespace: str, name: str = "fast") -> list[Question]:
    key = ObjectiveKey(namespace, name, "u1", name, name, Role.SERVER)
    found = [questions.present(key, NOW - DAY_S, NOW, HOUR_S), questions.by_step(namespace, NOW - DAY_S, NOW, HOUR_S)]
    for window_s in (300, 6 * HOUR_S, 3 * DAY_S + 60):
        found += questions.events(namespace, NOW - window_s, NOW)
        found += questions.excluded(namespace, NOW - window_s, NOW)
        found += questions.durations(namespace, "client", NOW - window_s, NOW)
        found += questions.ranges(namespace, "server", NOW - window_s, NOW)
    return found


@given(
    namespace=st.text(alphabet=st.one_of(st.sampled_from('"\\\n{}=~,a'), st.characters(codec="utf-8"))),
    name=st.text(alphabet='"\\\n{}=~,a'),
)
def test_the_namespace_is_in_every_selector(namespace: str, name: str) -> None:
    for question in all_of(namespace, name):
        values = re.findall(TEXT, question.expression)
        bare = re.sub(TEXT, "V", question.expression)
        assert '"' not in bare
        selectors = re.findall(r"\{([^}]*)\}", bare)
        assert len(selectors) == bare.count("{") == bare.count("}") > 0
        for selector in selectors:
            assert selector.startswith("latencyprobe_probe_namespace=V"), bare
            assert "~" not in selector
        assert {re.sub(r"\\(.)", _plain, value) for value in values} <= {namespace, name, "server"}


def _plain(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]


@pytest.mark.parametrize(
    ("window_s", "asked"),
    [
        (300, [("5m", NOW, NOW)]),
        (6 * HOUR_S, [("6h", NOW, NOW)]),
        (DAY_S, [("1d", NOW, NOW)]),
        (7 * DAY_S, [("1d", NOW - 6 * DAY_S, NOW)]),
        (DAY_S + 90, [("1d", NOW, NOW), ("90s", NOW - DAY_S, NOW - DAY_S)]),
    ],
)
def test_a_window_is_made_of_days_and_the_rest(window_s: int, asked: list[tuple[str, int, int]]) -> None:
    found = list(questions.events("shop", NOW - window_s, NOW))
    assert asked == [(re.findall(r"increase\([^[]*\[(\w+)\]", q.expression)[-1], q.first, q.last) for q in found]
    assert all(question.step_s == DAY_S for question in found)


def test_short_windows_count_by_differences_where_nothing_started_anew() -> None:
    (short,) = questions.events("shop", NOW - 300, NOW)
    (long,) = questions.events("shop", NOW - DAY_S, NOW)
    assert "offset 5m) and (resets(" in short.expression
    assert "[10m]) == 0) or increase(" in short.expression
    assert "offset" not in long.expression
