"""The rules in a real Prometheus's own test bench (`promtool test rules`): each alert fires and clears in the minute in
which our evaluation of the same events says so, and at no other time.

A promtool is of the Debian package `prometheus`, which `scripts/setup --test` installs.
"""

import subprocess
from collections.abc import Callable, Iterator
from itertools import accumulate
from pathlib import Path

import pytest
import yaml

from latencyprobe import parsing
from latencyprobe.plan import Role
from latencyprobe.rules import counters, forms, objective_rules, promql
from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.slo.windows import HOUR_S, WINDOW_S
from latencyprobe.spec import LatencyProbe
from tests.latencyprobe.event_series import DAY, HOUR, Series
from tests.support.programs import needs

pytestmark = needs("promtool")

EXAMPLES = Path(__file__).parents[2] / "examples"
Events = tuple[int, int]  # good and bad, of one minute
Changes = list[tuple[int, bool]]


def probe(goal: str, window: str, min_events: int = 100) -> LatencyProbe:
    judged = {"name": "fast", "target": "cart", "threshold": "25ms", "goal": goal, "window": window}
    return parsing.parse(
        {
            "apiVersion": "latencyprobe.dev/v1alpha1",
            "kind": "LatencyProbe",
            "metadata": {"name": "checkout", "namespace": "shop"},
            "spec": {"targets": [{"name": "cart"}], "objectives": [judged | {"minEvents": min_events}]},
        }
    )


def promtool(*args: object) -> str:
    done = subprocess.run(["promtool", *map(str, args)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def values(counts: list[int]) -> str:
    """What a counter shows each minute, as promtool writes series: runs of one difference as `0+60x4320`."""
    runs: list[list[int]] = []
    for count in counts:
        if runs and (runs[-1][2] == 0 or count - runs[-1][3] == runs[-1][1]):
            start, _, length, last = runs[-1]
            runs[-1] = [start, count - last, length + 1, count]
        else:
            runs.append([count, 0, 0, count])
    return " ".join(f"{start}{difference:+}x{length}" for start, difference, length, _ in runs)


def counted(objective: Objective, events: list[Events]) -> Iterator[dict[str, str]]:
    """The counters of two containers that share the events; that of one starts anew in the middle. Beside them those
    that are not the objective's: of the other perspective, and of another namespace's objective of the same names."""
    selector, halfway = counters.total(objective), len(events) // 2
    for index, outcome in enumerate(("good", "bad")):
        of_minutes = [minute[index] for minute in events]
        first = [count // 2 for count in of_minutes]
        rest = [count - half for count, half in zip(of_minutes, first, strict=True)]
        restarted = [0, *accumulate(rest[:halfway]), *accumulate(rest[halfway:])]
        for instance, shown in (("a", [0, *accumulate(first)]), ("b", restarted)):
            name = selector.replace("}", f',latencyprobe_outcome="{outcome}",instance="{instance}"}}')
            yield {"series": name, "values": values(shown)}
    for ours, others in (('perspective="server"', 'perspective="client"'), ('namespace="shop"', 'namespace="bank"')):
        name = selector.replace(ours, others).replace("}", ',latencyprobe_outcome="bad",instance="a"}')
        yield {"series": name, "values": f"0+1000x{len(events)}"}


def changes(alerts: str, expected: Changes, minutes: int) -> Iterator[dict[str, object]]:
    """Questions to promtool: is it so just before and at each change, and in as many minutes as expected?"""
    for minute, firing in expected[1:]:
        for at, yes in ((minute - 1, not firing), (minute, firing)):
            yield {"expr": f"sum({alerts})", "eval_time": f"{at}m", "exp_samples": answer(int(yes))}
    ends = [minute for minute, _ in expected[1:]] + [minutes + 1]
    in_all = sum(end - minute for (minute, firing), end in zip(expected, ends, strict=True) if firing)
    ever = f"sum(count_over_time({alerts}[{minutes}m]))"
    yield {"expr": ever, "eval_time": f"{minutes}m", "exp_samples": answer(in_all)}


def answer(value: int) -> list[dict[str, object]]:
    return [{"labels": "{}", "value": value}] if value else []


def ask(folder: Path, of: LatencyProbe, events: list[Events], *questions: dict[str, object]) -> None:
    (objective,) = objectives(of)
    (folder / "rules.yaml").write_text(forms.text("prometheus", [of]))
    test = {"interval": "1m", "input_series": [*counted(objective, events)], "promql_expr_test": [*questions]}
    bench = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(bench))
    promtool("test", "rules", folder / "test.yaml")


def firing(alert: str, window_s: int) -> str:
    return f'ALERTS{{alertname="{alert}",window="{promql.duration(window_s)}",alertstate="firing",namespace="shop"}}'


def same_as_ours(folder: Path, of: LatencyProbe, events: list[Events]) -> dict[int, Changes]:
    """Ask for every alert what our evaluation finds; return that, by the alert's window in seconds."""
    (objective,) = objectives(of)
    series = Series(len(events), lambda minute: events[minute], objective)
    ours = series.firing()
    questions = [
        question
        for window_s, expected in ours.items()
        for question in changes(firing(objective_rules.BURN_RATE, window_s), expected, len(events))
    ]
    budget, window_s = series.budget_firing(), WINDOW_S[objective.window]
    questions += changes(firing(objective_rules.BUDGET, window_s), budget, len(events))
    ask(folder, of, events, *questions)
    return ours | {window_s: budget}


def minutes(count: int, of_minute: Callable[[int], Events]) -> list[Events]:
    return [of_minute(minute) for minute in range(count)]


@pytest.mark.long
def test_one_hour_outage(tmp_path: Path) -> None:
    start, end = 3 * DAY, 3 * DAY + HOUR
    events = minutes(4 * DAY, lambda minute: (0, 60) if start <= minute < end else (60, 0))
    found = same_as_ours(tmp_path, probe("99.9", "30d"), events)
    assert (start + 1, True) == found[HOUR_S][1], "the pages are about something"
    assert (start + 4, True) == found[WINDOW_S["30d"]][1], "196 of 262 events that the goal allows in these days"


@pytest.mark.long
def test_ten_bad_minutes_clear_when_the_short_window_has_left_them(tmp_path: Path) -> None:
    start, end = 4 * HOUR, 4 * HOUR + 10
    events = minutes(8 * HOUR, lambda minute: (0, 60) if start <= minute < end else (60, 0))
    found = same_as_ours(tmp_path, probe("99", "7d"), events)
    assert [(1, False), (start + 3, True), (end + 5, False)] == found[HOUR_S], "3.36 times 1 % of 60 minutes"


@pytest.mark.long
def test_slow_leak(tmp_path: Path) -> None:
    start = 3 * DAY
    events = minutes(6 * DAY, lambda minute: (1997, 3) if minute >= start else (2000, 0))
    found = same_as_ours(tmp_path, probe("99.9", "28d"), events)
    assert [(1, False), (start + 2 * DAY + 1, True)] == found[3 * DAY * 60], "the slowest row"
    assert [(1, False)] == found[HOUR_S]


@pytest.mark.long
@pytest.mark.parametrize("window", ["7d", "30d", "90d"])
def test_constant_burn(tmp_path: Path, window: str) -> None:
    found = same_as_ours(tmp_path, probe("99.9", window), minutes(DAY, lambda _: (95, 5)))  # 50 times too fast
    assert (1, True) == found[HOUR_S][0]


@pytest.mark.long
@pytest.mark.parametrize("window", ["1d", "7d", "28d", "90d"])
def test_healthy_burn_of_30_percent_never_alerts(tmp_path: Path, window: str) -> None:
    events = minutes(4 * DAY, lambda minute: (997, 3) if minute % 10 == 9 else (1000, 0))
    found = same_as_ours(tmp_path, probe("99.9", window), events)
    assert all([(1, False)] == changed for changed in found.values())


@pytest.mark.long
def test_few_events_alert_nobody_until_there_are_enough_in_the_long_window(tmp_path: Path) -> None:
    events = minutes(8 * HOUR, lambda minute: (0, 1) if minute >= HOUR else (0, 0))
    found = same_as_ours(tmp_path, probe("99", "28d", min_events=100), events)
    assert [(1, False)] == found[HOUR_S], "it never has more than 60"
    assert (HOUR + 100, True) == found[6 * HOUR_S][1]


@pytest.mark.long
def test_outage_with_a_goal_that_some_rows_cannot_judge(tmp_path: Path) -> None:
    events = minutes(DAY, lambda minute: (0, 60) if 12 * HOUR <= minute < 13 * HOUR else (60, 0))
    found = same_as_ours(tmp_path, probe("90", "90d"), events)
    assert [(1, False)] == found[HOUR_S]


@pytest.mark.parametrize("form", ["prometheus", "prometheusrule"])
@pytest.mark.parametrize("file", sorted(EXAMPLES.glob("*.yaml")), ids=lambda file: file.stem)
def test_rules_of_the_examples_are_valid(tmp_path: Path, file: Path, form: str) -> None:
    for i, document in enumerate(yaml.safe_load_all(forms.text(form, parsing.load_file(file)))):
        path = tmp_path / f"{i}.yaml"
        path.write_text(yaml.safe_dump(document["spec"] if form == "prometheusrule" else document))
        assert "SUCCESS" in promtool("check", "rules", "--lint=all", "--lint-fatal", path)


@pytest.mark.long
def test_annotations_are_sentences_with_the_figures_in_them(tmp_path: Path) -> None:
    of = probe("99.9", "28d")
    events = minutes(2 * HOUR, lambda _: (95, 5))
    (objective,) = objectives(of)
    (tmp_path / "rules.yaml").write_text(forms.text("prometheus", [of]))
    more = (
        "Goal: 99.9 % of RPCs good over 28d, at the server; good: at most 25ms, and no error. Where the time went: "
        "latencyprobe report -n shop; the slowest RPCs: latencyprobe slow -n shop --target cart"
    )
    identity = counters.identity(objective)
    burning = {
        "exp_labels": {"severity": "page", "window": "1h", **identity},
        "exp_annotations": {
            "summary": "shop/checkout/fast: bad RPCs spend the error budget more than 14.4 times as fast as the goal "
            "allows",
            "description": "Over the last 1h 50 times as fast, and over the last 5m still too fast. At 14.4 times the "
            f"budget of 28d is spent in 46.7 hours. {more}",
        },
    }
    budget = {
        "exp_labels": {"severity": "ticket", "window": "28d", **identity},
        "exp_annotations": {
            "summary": "shop/checkout/fast: less than 25 % of the error budget of 28d is left",
            "description": f"Left of it: -4900%; below 0 the objective is violated. {more}",
        },
    }
    of_rows = [{"alertname": objective_rules.BUDGET, "eval_time": "2h", "exp_alerts": [budget]}]
    test = {"interval": "1m", "input_series": [*counted(objective, events)], "alert_rule_test": of_rows}
    only = yaml.safe_load(forms.text("prometheus", [of]))
    only["groups"][0]["rules"] = [
        rule for rule in only["groups"][0]["rules"] if "record" in rule or rule["labels"]["window"] == "1h"
    ]
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump(only))
    of_rows.append({"alertname": objective_rules.BURN_RATE, "eval_time": "2h", "exp_alerts": [burning]})
    bench = {"rule_files": ["rules.yaml"], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(bench))
    promtool("test", "rules", tmp_path / "test.yaml")


def test_a_wrong_answer_is_told(tmp_path: Path) -> None:
    of = probe("99.9", "28d")
    question = {"expr": "sum(ALERTS)", "eval_time": "60m", "exp_samples": answer(7)}
    with pytest.raises(AssertionError, match="sum"):
        ask(tmp_path, of, minutes(HOUR, lambda _: (1000, 0)), question)


@pytest.mark.long
def test_namespaces_and_perspectives_are_not_added_up(tmp_path: Path) -> None:
    of = probe("99.9", "28d")
    recorded = "objective:latencyprobe_slo_events:increase1h"
    questions = [
        {
            "expr": f'{recorded}{{latencyprobe_outcome="{outcome}"}}',
            "eval_time": "2h",
            "exp_samples": [
                {
                    "labels": f'{recorded}{{latencyprobe_outcome="{outcome}", namespace="shop", probe="checkout", '
                    'target="cart", objective="fast", perspective="server"}',
                    "value": value,
                }
            ],
        }
        for outcome, value in (("good", 60 * 61), ("bad", 60 * 3))
    ]
    assert Role.SERVER == objectives(of)[0].key.perspective
    ask(tmp_path, of, minutes(2 * HOUR, lambda _: (61, 3)), *questions)
