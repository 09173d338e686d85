"""The Grafana dashboards: each panel's query finds data in a real Prometheus that has what agents and operator export,
and finds what it says it does.

Without Grafana: its variables are filled here as it fills them.
"""

import itertools
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from fractions import Fraction
from math import isnan
from typing import Any, NamedTuple

import pytest
import yaml

from latencyprobe.slo.windows import WINDOW_S, alerts
from latencyprobe.spec import goal_fraction
from tests.charts import shop
from tests.charts.schemas import REPOSITORY, Conform
from tests.support.otlp import of_rpcs
from tests.support.prometheus import Sample, Server, needs_prometheus, prometheus
from tests.support.remote_write import OPTIONS, translated, write

FOLDER = REPOSITORY / "charts/latencyprobe/files/dashboards"
PAGES = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
NOW_S = 1_763_900_000
CHOSEN = {"namespace": "shop", "probe": "checkout", "target": "cart", "node": ".*", "datasource": "prometheus"}
CHOSEN |= {"__rate_interval": "5m", "__range": "1h"}


class Store(NamedTuple):
    """A server, and what a person chooses as the cluster there."""

    server: Server
    cluster: str


class Query(NamedTuple):
    """A target of a panel, with the variables that it may have. `exemplars`: it asks for them too."""

    where: str
    expr: str
    legend: str
    chosen: dict[str, str]
    exemplars: bool


def promoted() -> list[str]:
    """The attributes of resources that the example's Prometheus makes labels."""
    documents = yaml.safe_load_all((REPOSITORY / "examples/prometheus/prometheus.yaml").read_text())
    (config,) = (one["data"]["prometheus.yml"] for one in documents if one["kind"] == "ConfigMap")
    return list(yaml.safe_load(config)["otlp"]["promote_resource_attributes"])


@pytest.fixture(scope="module", params=[pytest.param(one, marks=pytest.mark.long) for one in ("plain", "promoting")])
def store(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    plain = request.param == "plain"
    external = {} if plain else {"cluster": "east"}
    agents = translated(shop.exported(NOW_S).metrics, promoted=() if plain else promoted(), external=external)
    operator = (one._replace(labels={**one.labels, **external}) for one in shop.scraped(NOW_S))
    with prometheus(tmp_path_factory.mktemp("prometheus"), options=OPTIONS) as server:
        write(server, itertools.chain(agents, operator))
        yield Store(server, ".*" if plain else "(east)")


def panels(page: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for panel in page["panels"]:
        yield from panel["panels"] if panel.get("panels") else [panel]


def queries(name: str, cluster: str) -> Iterator[Query]:
    page = PAGES[name]
    sides = [{"perspective": side} for side in ("server", "client")] if name == "objective" else [{}]
    for side in sides:
        window = {"objective": shop.objective("28d"), "window": str(WINDOW_S["28d"]), "cluster": cluster}
        for panel in panels(page):
            for target in panel.get("targets", ()):
                where = f"{page['title']}: {panel['title']} {target['refId']}"
                asked_for = target["expr"], target.get("legendFormat", "")
                yield Query(where, *asked_for, CHOSEN | window | side, target.get("exemplar", False))


def filled(text: str, chosen: dict[str, str]) -> str:
    """A text with its variables, as Grafana fills `$name` and `${name}`. One that nobody knows is an error."""
    return re.sub(r"\$\{?(\w+)\}?", lambda found: chosen[found.group(1)], text)


def asked(server: Server, query: Query) -> list[Sample]:
    found = server.query(filled(query.expr, query.chosen), NOW_S)
    return [one for one in found if one.values and not isnan(one.value)]


def one_value(store: Store, name: str, title: str, ref: str = "A", **chosen: str) -> float:
    """The only figure of a panel."""
    (query,) = (
        one
        for one in queries(name, store.cluster)
        if one.where.endswith(f": {title} {ref}") and one.chosen.get("perspective", "server") == "server"
    )
    (found,) = asked(store.server, query._replace(chosen=query.chosen | chosen))
    return found.value


def lacking(store: Store, name: str, renamed: tuple[str, str] = ("$", "$")) -> list[str]:
    """The queries that find nothing, or not the labels that their legends show."""
    wrong = []
    old, new = renamed
    for query in (one._replace(expr=one.expr.replace(old, new)) for one in queries(name, store.cluster)):
        found = asked(store.server, query)
        shown = set(re.findall(r"\{\{(\w+)\}\}", query.legend))
        if not found or any(shown - one.labels.keys() for one in found):
            wrong.append(f"{query.where}: {[one.labels for one in found]}")
    return wrong


def test_there_is_a_dashboard_for_each_question() -> None:
    assert {"agents", "objective", "overview", "stages"} == PAGES.keys()
    assert len({page["uid"] for page in PAGES.values()}) == len(PAGES)
    assert all(len(page["uid"]) <= 40 for page in PAGES.values()), "as long as Grafana takes"


def test_dashboards_are_those_that_the_generator_writes() -> None:
    command = [sys.executable, REPOSITORY / "scripts/gen_dashboards.py", "-"]
    written = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert written == {path.name: path.read_text() for path in sorted(FOLDER.iterdir())}, "make gen"


@pytest.mark.parametrize("name", PAGES)
def test_every_panel_says_what_it_is_in_a_unit_and_asks_the_chosen_data_source(name: str) -> None:
    shown = [panel for panel in panels(PAGES[name]) if panel["type"] != "row"]
    titles = [panel["title"] for panel in shown]
    assert len(titles) == len(set(titles)), "each is another"
    for panel in shown:
        of = panel["fieldConfig"]["defaults"].get("unit") or panel["fieldConfig"]["overrides"]
        assert panel["title"], panel
        assert panel["description"].endswith("."), panel["title"]
        assert of, panel["title"]
        assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}, panel["title"]


@pytest.mark.parametrize("name", PAGES)
def test_panels_do_not_overlap(name: str) -> None:
    taken = [
        (at["x"] + x, at["y"] + y)
        for at in (panel["gridPos"] for panel in panels(PAGES[name]))
        for x, y in itertools.product(range(at["w"]), range(at["h"]))
    ]
    assert len(taken) == len(set(taken))
    assert max(x for x, _ in taken) < 24


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_to_dashboards_that_exist_with_variables_that_they_have(name: str) -> None:
    variables = {page["uid"]: {one["name"] for one in page["templating"]["list"]} for page in PAGES.values()}
    for uid, rest in re.findall(r'"/d/([\w-]+)\?([^"]*)"', json.dumps(PAGES[name])):
        assert set(re.findall(r"var-(\w+)=", rest)) <= variables[uid]


@needs_prometheus
@pytest.mark.parametrize("name", PAGES)
def test_every_query_finds_data_with_the_labels_that_it_shows(store: Store, name: str) -> None:
    assert [] == lacking(store, name)


def test_each_chart_of_durations_draws_each_exemplar_once() -> None:
    charts = [panel for page in PAGES.values() for panel in panels(page) if panel["type"] == "timeseries"]
    asking = [[target["expr"] for target in panel["targets"] if target.get("exemplar")] for panel in charts]
    assert sum(map(bool, asking)) == 8
    for exprs in asking:
        selected = [
            selector for expr in exprs for selector in re.findall(r"latencyprobe_[\w${}]+_seconds\{[^}]*\}", expr)
        ]
        assert len(selected) == len(set(selected)) == len(exprs)


@needs_prometheus
def test_exemplars_of_a_panel_lead_to_spans_that_were_sent(store: Store) -> None:
    sent = {
        (span.trace_id.hex(), span.span_id.hex()): resource["k8s.namespace.name"]
        for resource, span in of_rpcs(shop.exported(NOW_S).traces)
    }
    asking = [query for name in PAGES for query in queries(name, store.cluster) if query.exemplars]
    assert len({query.where for query in asking}) == 9
    for query in asking:
        found = store.server.exemplars(filled(query.expr, query.chosen), NOW_S - 3600, NOW_S)
        assert len(found) > 50, query.where
        for one in found:
            namespace = sent[one.labels["trace_id"], one.labels["span_id"]]
            assert namespace == one.series["latencyprobe_probe_namespace"] == "shop", query.where


@needs_prometheus
def test_a_renamed_metric_is_noticed(store: Store) -> None:
    assert lacking(store, "stages", ("latencyprobe_stage_duration", "latencyprobe_stages_duration"))
    assert lacking(store, "objective", ("latencyprobe_slo_goal_ratio", "latencyprobe_slo_goal"))


@needs_prometheus
@pytest.mark.parametrize("name", PAGES)
def test_every_variable_has_values(store: Store, name: str) -> None:
    chosen = CHOSEN | {"cluster": store.cluster, "objective": shop.objective("28d"), "perspective": "server"}
    found = {}
    for variable in (one for one in PAGES[name]["templating"]["list"] if one["type"] == "query"):
        query = filled(variable["query"]["query"], chosen)
        if label_values := re.fullmatch(r"label_values\((.*), (\w+)\)", query, re.DOTALL):
            selector, label = label_values.groups()
            answers = store.server.query(f"group by ({label}) ({selector})", NOW_S)
            found[variable["name"]] = {one.labels.get(label) for one in answers}
        else:
            (answer,) = store.server.query(query.removeprefix("query_result(").removesuffix(")"), NOW_S)
            shown = f"{{}} {answer.value:.0f} {NOW_S * 1000}"  # as Grafana shows it to the pattern
            found[variable["name"]] = set(re.findall(variable["regex"].strip("/"), shown))
    assert {"east"} == found.pop("cluster") if store.cluster != ".*" else {None} == found.pop("cluster")
    expected = {
        "namespace": set(shop.NAMESPACES),
        "probe": {"checkout"},
        "target": {"cart"},
        "perspective": {"client", "server"},
        "node": {"n1"},
        "objective": {shop.objective(window) for window in WINDOW_S},
        "window": {str(WINDOW_S["28d"])},
    }
    assert found == {name: expected[name] for name in found}


@needs_prometheus
def test_the_objective_shows_what_was_asked_and_found(store: Store) -> None:
    burning = (shop.BAD / shop.EVENTS) / (1 - float(goal_fraction(shop.GOAL)))
    assert one_value(store, "objective", "Goal") == 0.999
    assert one_value(store, "objective", "Threshold") == 0.025
    assert one_value(store, "objective", "Window") == WINDOW_S["28d"]
    assert one_value(store, "objective", "Good, in the window") == pytest.approx(1 - shop.BAD / shop.EVENTS)
    assert one_value(store, "objective", "Budget left") == pytest.approx(1 - burning)
    for title in ("page, 1h and 5m", "page, 6h and 30m", "ticket, 1d and 2h", "ticket, 3d and 6h"):
        for ref in "AB":
            assert one_value(store, "objective", f"Burn rate: {title}", ref) == pytest.approx(burning)


@needs_prometheus
@pytest.mark.parametrize("window", WINDOW_S)
def test_factors_are_those_of_our_own_alerts(store: Store, window: str) -> None:
    chosen = {"objective": shop.objective(window), "window": str(WINDOW_S[window])}
    of_rows = {(row.long_s, row.short_s): row for row in alerts("30d", Fraction(999, 1000))}
    expected = {
        (row.long_s, row.short_s): float(row.factor)
        for row in alerts(window, goal_fraction(shop.GOAL))
        if not row.unreachable
    }
    found = {}
    factors = (one for one in queries("objective", store.cluster) if one.legend == "factor")
    for query, row in zip(factors, [*of_rows] * 2, strict=True):
        for sample in asked(store.server, query._replace(chosen=query.chosen | chosen)):
            found[row] = pytest.approx(sample.value)
    assert found == expected


@needs_prometheus
def test_a_namespace_sees_its_own_and_coverage_is_what_was_measured(store: Store) -> None:
    (rpcs,) = (one for one in queries("overview", store.cluster) if one.where.endswith(": RPCs by target A"))
    (found,) = asked(store.server, rpcs)
    assert found.labels["latencyprobe_probe_namespace"] == "shop"
    assert found.value * 60 == pytest.approx(shop.EVENTS + shop.AMBIGUOUS, rel=0.02)
    measured = shop.EVENTS / (shop.EVENTS + shop.AMBIGUOUS)
    assert one_value(store, "overview", "Coverage") == pytest.approx(measured)
    assert one_value(store, "overview", "Objectives") == 2 * len(WINDOW_S)
    assert one_value(store, "overview", "Burning too fast") == 2 * len(WINDOW_S)


@needs_prometheus
def test_stages_add_up_to_the_duration(store: Store) -> None:
    (query,) = (one for one in queries("stages", store.cluster) if one.where.endswith("each stage: server A")
                and "Mean" in one.where)  # fmt: skip
    found = {one.labels["latencyprobe_stage"]: one.value for one in asked(store.server, query)}
    expected = {"receive": 0.001, "read_delay": 0.002, "process": 0.020, "send": 0.002}
    assert found == {stage: pytest.approx(mean_s, rel=0.01) for stage, mean_s in expected.items()}


@needs_prometheus
def test_lost_records_are_a_share_of_all(store: Store) -> None:
    assert one_value(store, "agents", "Agents") == 1
    assert one_value(store, "agents", "Longest delay") == 0.3
    assert one_value(store, "agents", "Share of records lost") == pytest.approx(1 / 1001)


@pytest.mark.cluster
def test_the_chart_has_them_where_the_sidecar_looks_and_only_when_asked(render: Any, conform: Conform) -> None:
    assert [one for one in render() if "dashboard" in one["metadata"]["name"]] == []
    asked_for = {"namespace": "grafana", "labels": {"grafana_dashboard": "1"}, "annotations": {"grafana_folder": "LP"}}
    manifests = render(dashboards={"enabled": True, **asked_for})
    conform(yaml.safe_dump_all(manifests))
    found = [one for one in manifests if one["metadata"]["labels"].get("grafana_dashboard") == "1"]
    metadata = [one["metadata"] for one in found]
    assert {("grafana", "LP")} == {(one["namespace"], one["annotations"]["grafana_folder"]) for one in metadata}
    files = {name: json.loads(text) for one in found for name, text in one["data"].items()}
    assert files == {f"latencyprobe-{name}.json": page for name, page in PAGES.items()}
    assert max(len(text) for one in found for text in one["data"].values()) < 1 << 20, "what a ConfigMap holds"
