"""rules/sloth.py: what the real Sloth makes of its document, and how its arithmetic differs from ours.

tests/data/rules has the documents, and beside each what Sloth v0.12.0 made of it:
`sloth generate --default-slo-period 28d -i sloth-28d.yaml`, built in github.com/slok/sloth@v0.12.0 by
`go build ./cmd/sloth`; the same for 30d. It is kept, because building Sloth takes minutes.
"""

import re
import subprocess
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe.rules import forms, promql
from latencyprobe.slo.windows import WINDOW_S, alerts
from latencyprobe.spec import LatencyProbe
from tests.support.programs import needs

DATA = Path(__file__).parents[1] / "data" / "rules"
of_windows = pytest.mark.parametrize("window", ["28d", "30d"])


def probe_of(window: str, make: Callable[..., LatencyProbe]) -> LatencyProbe:
    judged = {"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99.9", "window": window}
    return make(objectives=[judged])


def generated(window: str) -> Any:
    return yaml.safe_load((DATA / f"sloth-{window}-generated.yaml").read_text())["spec"]


def rows(window: str) -> list[tuple[str, str, str, Fraction]]:
    """Severity, long and short window, and factor of what Sloth alerts on."""
    found = []
    for rule in (rule for group in generated(window)["groups"] for rule in group["rules"] if "alert" in rule):
        conditions = re.findall(r"ratio_rate(\w+)\{[^}]*\} > \((\S+) \* 0\.00099\d+\)", rule["expr"])
        for (short, factor), (long, again) in zip(conditions[::2], conditions[1::2], strict=True):
            assert factor == again
            found.append((rule["labels"]["sloth_severity"], long, short, Fraction(factor)))
    return found


@of_windows
def test_the_document_is_what_sloth_was_given(window: str, probe: Callable[..., LatencyProbe]) -> None:
    given = (DATA / f"sloth-{window}.yaml").read_text()
    assert given == forms.text("sloth", [probe_of(window, probe)]), "generate both files anew"


@of_windows
def test_sloth_alerts_on_the_same_windows_with_factors_scaled_to_the_objectives_own(window: str) -> None:
    ours = [
        (str(row.severity), promql.duration(row.long_s), promql.duration(row.short_s), row.factor)
        for row in alerts(window, Fraction("0.999"))
    ]
    theirs = rows(window)
    assert [row[:3] for row in ours] == [row[:3] for row in theirs]
    scaled = [row[3] * WINDOW_S[window] / WINDOW_S["30d"] for row in ours]
    assert [float(factor) for factor in scaled] == pytest.approx([float(row[3]) for row in theirs])


def test_sloths_factors_of_28_days_are_those_that_our_page_names() -> None:
    assert [13.44, 5.6, 2.8, 0.93] == pytest.approx([float(row[3]) for row in rows("28d")], abs=0.004)


@pytest.mark.long
@needs("promtool")
@pytest.mark.parametrize(
    ("window", "bad", "sloths"),
    [
        ("28d", 97, True),  # 97 % of what the goal allows: Sloth's last row alerts above 93 %
        ("30d", 97, False),
        ("30d", 100, True),  # exactly what it allows: Sloth's budget is 0.0009999999999999432
    ],
)
def test_a_service_that_just_meets_its_goal_never_alerts_with_our_rules(
    window: str, bad: int, sloths: bool, tmp_path: Path, probe: Callable[..., LatencyProbe]
) -> None:
    of = probe_of(window, probe)
    (tmp_path / "sloth.yaml").write_text(yaml.safe_dump(generated(window)))
    (tmp_path / "ours.yaml").write_text(forms.text("prometheus", [of]))
    selector = re.search(r"latencyprobe_slo_events_total\{[^}]*", forms.text("pyrra", [of]))
    assert selector is not None
    events = {"good": 100_000 - bad, "bad": bad}
    identity = selector[0].partition(",latencyprobe_outcome")[0]
    series = [
        {"series": f'{identity},latencyprobe_outcome="{outcome}"}}', "values": f"0+{count}x1440"}
        for outcome, count in events.items()
    ]
    for rules, fires in (("sloth", sloths), ("ours", False)):
        question = {
            "expr": 'count(count_over_time(ALERTS{alertname="LatencyProbeBurnRate"}[1d])) > bool 0',
            "eval_time": "1d",
            "exp_samples": [{"labels": "{}", "value": 1}] if fires else [],
        }
        test = {"interval": "1m", "input_series": series, "promql_expr_test": [question]}
        bench = {"rule_files": [f"{rules}.yaml"], "evaluation_interval": "1m", "tests": [test]}
        (tmp_path / "test.yaml").write_text(yaml.safe_dump(bench))
        done = subprocess.run(
            ["promtool", "test", "rules", tmp_path / "test.yaml"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, f"{rules}: {done.stdout}{done.stderr}"
