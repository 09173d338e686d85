"""The alerts about LatencyProbe itself, in a real Prometheus's own test bench: each fires for what it is about, and for
nothing else."""

import re
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from latencyprobe.rules import promql
from latencyprobe_agent.vocabulary import conventions
from latencyprobe_operator.metrics import OperatorCollector
from tests.charts import shop
from tests.charts.schemas import REPOSITORY, Conform
from tests.support.programs import needs

RULES = REPOSITORY / "charts/latencyprobe/files/rules.yaml"
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
needs_promtool = needs("promtool")

AGENT = 'job="latencyprobe-agent",instance="{}"'
LOST_OF_A = f"latencyprobe_agent_records_lost_total{{{AGENT.format('a')},"
# What all is well with, for an hour and a half. A counter is `start+step x times`.
WELL = {
    f"latencyprobe_agent_records_read_total{{{AGENT.format('a')}}}": "0+60000x90",
    f"latencyprobe_agent_records_read_total{{{AGENT.format('b')}}}": "0+60000x90",
    f'{LOST_OF_A}latencyprobe_signal="exchanges",latencyprobe_reason="ring_full"}}': "0+60x90",
    f'{LOST_OF_A}latencyprobe_signal="waits",latencyprobe_reason="limit"}}': "0+6000x90",  # as is meant
    f'latencyprobe_agent_export_errors_total{{{AGENT.format("a")},error_type="503"}}': "0x30 1x60",
    f'latencyprobe_agent_spans_total{{{AGENT.format("a")},latencyprobe_outcome="dropped"}}': "0x90",
    f'latencyprobe_agent_spans_total{{{AGENT.format("a")},latencyprobe_outcome="delivered"}}': "0+60x90",
    f'latencyprobe_agent_sli_rows_dropped_total{{{AGENT.format("a")},latencyprobe_reason="too_old"}}': "0x90",
    f"latencyprobe_agent_plan_age_seconds{{{AGENT.format('a')}}}": "2x90",
    f'latencyprobe_agent_failures_total{{{AGENT.format("a")},latencyprobe_part="spans"}}': "0x30 1x60",
    f'latencyprobe_slo_goal_ratio{{{AGENT.format("a")},latencyprobe_objective="fast"}}': "0.999x90",
    'latencyprobe_operator_build_info{version="1"}': "1x90",
    'latencyprobe_operator_nodes{state="ready"}': "2x90",
    'latencyprobe_operator_nodes{state="missing"}': "0x30 1x10 0x50",
    'latencyprobe_operator_nodes{state="failed"}': "0x90",
    "latencyprobe_operator_probes{}": "1x90",
    'latencyprobe_operator_evaluations_total{result="ok"}': "0+1x90",
    'latencyprobe_operator_evaluations_total{result="failed"}': "0x30 1x60",
    "latencyprobe_operator_store_works{}": "1x30 0x3 1x57",
    'latencyprobe_operator_loop_failures_total{loop="evaluation",error="E"}': "0x30 1x60",
    "latencyprobe_operator_unconfirmed_seconds{}": "0x90",
}
GONE = "_x90"
# By alert: the series that are otherwise, by how they begin, and what the alert's summary says then.
ILL: dict[str, tuple[dict[str, str], str]] = {
    "LatencyProbeRecordsLost": ({f'{LOST_OF_A}latencyprobe_signal="exchanges"': "0+6000x90"}, "1 agents lose"),
    "LatencyProbeExportFails": ({"latencyprobe_agent_export_errors_total": "0+1x90"}, "1 agents cannot"),
    "LatencyProbeSpansDropped": (
        {f'latencyprobe_agent_spans_total{{{AGENT.format("a")},latencyprobe_outcome="dropped"': "0+5x90"},
        "1 agents have dropped spans",
    ),
    "LatencyProbeCountsDropped": ({"latencyprobe_agent_sli_rows_dropped_total": "0+1x90"}, "1 agents have dropped"),
    "LatencyProbePlanOld": ({"latencyprobe_agent_plan_age_seconds": "0+60x90"}, "1 agents measure"),
    "LatencyProbePartFails": ({"latencyprobe_agent_failures_total": "0+1x90"}, "A part of 1 agents"),
    "LatencyProbeOperatorAbsent": ({"latencyprobe_operator_build_info": GONE}, "No operator"),
    "LatencyProbeNodesUnmeasured": ({'latencyprobe_operator_nodes{state="failed"': "3x90"}, "3 nodes"),
    "LatencyProbeNotEvaluating": ({"latencyprobe_operator_evaluations_total": "7x90"}, "no objective for 15 minutes"),
    "LatencyProbeEvaluationsFail": (
        {'latencyprobe_operator_evaluations_total{result="failed"': "0+1x90"},
        "cannot be evaluated",
    ),
    "LatencyProbeStoreFails": ({"latencyprobe_operator_store_works": "0x90"}, "store takes no counts"),
    "LatencyProbeLoopFails": ({"latencyprobe_operator_loop_failures_total": "0+1x90"}, "loop evaluation fails"),
    "LatencyProbeUnconfirmed": ({"latencyprobe_operator_unconfirmed_seconds": "0+60x90"}, "confirmed nothing"),
}


def otherwise(changed: Mapping[str, str]) -> dict[str, str]:
    """`WELL` with other values of the series that begin so."""
    found = dict(WELL)
    for begin, values in changed.items():
        names = [name for name in WELL if name.startswith(begin)]
        assert names, begin
        found |= dict.fromkeys(names, values)
    return {name: values for name, values in found.items() if values != GONE}


def ask(folder: Path, series: Mapping[str, str], *questions: dict[str, Any]) -> None:
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in series.items()],
        "promql_expr_test": questions,
    }
    bench = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (folder / "test.yaml").write_text(yaml.safe_dump(bench))
    command = ["promtool", "test", "rules", folder / "test.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def firing(alert: str, yes: bool) -> dict[str, Any]:
    """How many of an alert fire at the end."""
    answer = [{"labels": "{}", "value": 1}] if yes else []
    expr = f'count(ALERTS{{alertname="{alert}",alertstate="firing"}})'
    return {"expr": expr, "eval_time": "90m", "exp_samples": answer}


@needs_promtool
def test_promtool_accepts_the_rules() -> None:
    command = ["promtool", "check", "rules", "--lint=all", "--lint-fatal", RULES]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@needs_promtool
def test_no_alert_fires_at_any_minute_while_all_is_well(tmp_path: Path) -> None:
    ever = {"expr": 'count_over_time(ALERTS{alertstate="firing"}[90m])', "eval_time": "90m", "exp_samples": []}
    ask(tmp_path, WELL, ever)


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_fires_for_what_it_is_about_and_no_other_does(tmp_path: Path, alert: str) -> None:
    changed, _ = ILL[alert]
    ask(tmp_path, otherwise(changed), *(firing(other, other == alert) for other in ALERTS))


@needs_promtool
def test_counts_that_were_dropped_once_are_told_though_their_series_begins_with_them(tmp_path: Path) -> None:
    restored = f'latencyprobe_agent_sli_rows_dropped_total{{{AGENT.format("a")},latencyprobe_reason="restored"}}'
    ask(tmp_path, WELL | {restored: "_x44 5000x46"}, firing("LatencyProbeCountsDropped", True))


@needs_promtool
@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_what_is_wrong(tmp_path: Path, alert: str) -> None:
    changed, summary = ILL[alert]
    test = {
        "interval": "1m",
        "input_series": [{"series": name, "values": values} for name, values in otherwise(changed).items()],
        "alert_rule_test": [{"alertname": alert, "eval_time": "90m", "exp_alerts": []}],
    }
    bench = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": [test]}
    (tmp_path / "test.yaml").write_text(yaml.safe_dump(bench))
    command = ["promtool", "test", "rules", tmp_path / "test.yaml"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert summary in done.stderr, "promtool tells what it got instead of none"


def test_every_alert_has_a_test_of_its_own() -> None:
    assert ILL.keys() == ALERTS.keys()


def test_every_alert_is_told_of() -> None:
    told = (REPOSITORY / "docs/dashboards.md").read_text()
    assert [] == [alert for alert in ALERTS if f"\n| `{alert}` |" not in told]


def test_rules_ask_for_metrics_that_agents_and_the_operator_have() -> None:
    ours = {promql.series(metric.name, metric.unit, metric.kind) for metric in conventions.METRICS}
    families = OperatorCollector(shop.sources(1)).collect()
    ours |= {family.name + ("_total" if family.type == "counter" else "") for family in families}
    named = set(re.findall(r"latencyprobe_\w+(?=[\[{ )]|$)", " ".join(rule["expr"] for rule in ALERTS.values())))
    assert len(named) > 10
    assert named - ours - {"latencyprobe_outcome"} == set()


@pytest.mark.cluster
def test_the_prometheus_operator_takes_the_rule(render: Any, conform: Conform) -> None:
    values = {"prometheusRule": {"enabled": True, "additionalLabels": {"release": "stack"}}}
    manifests = render(metrics=values)
    conform(yaml.safe_dump_all(manifests))
    rule = manifests.one("PrometheusRule")
    assert rule["metadata"]["labels"]["release"] == "stack"
    assert rule["spec"] == yaml.safe_load(RULES.read_text())
