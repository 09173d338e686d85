"""rules/forms.py: what every form says of a LatencyProbe's objectives, and what is only one's own."""

import hashlib
import json
import re
from collections.abc import Callable
from copy import deepcopy
from typing import Any

import pytest
import yaml
from msgspec.structs import replace

from latencyprobe import parsing
from latencyprobe.errors import SpecError
from latencyprobe.rules import counters, forms, prometheus
from latencyprobe.slo.objective import objectives
from latencyprobe.spec import LatencyProbe
from tests.support.fuzz import places
from tests.support.hostile_probes import whole

MakeProbe = Callable[..., LatencyProbe]
TOTAL = (
    'latencyprobe_slo_events_total{latencyprobe_probe_namespace="shop",latencyprobe_probe="checkout",'
    'latencyprobe_target="cart",latencyprobe_objective="fast",latencyprobe_perspective="server"'
)
BAD = TOTAL + ',latencyprobe_outcome="bad"'


def judged(name: str, **fields: object) -> dict[str, object]:
    return {"name": name, "target": "cart", "threshold": "25ms", "goal": "99.9"} | fields


def written(form: str, *probes: LatencyProbe) -> list[Any]:
    return [*yaml.safe_load_all(forms.text(form, probes))]


@pytest.mark.parametrize("form", forms.FORMS)
def test_every_form_asks_for_the_bad_and_for_all_events(form: str, probe: MakeProbe) -> None:
    text = forms.text(form, [probe()])
    assert TOTAL + "}" in text
    assert BAD + "}" in text or "sum by (latencyprobe_outcome)" in text


@pytest.mark.parametrize("form", forms.FORMS)
def test_expressions_are_never_folded(form: str, probe: MakeProbe) -> None:
    lines = forms.text(form, [probe()]).splitlines()
    assert all(line.count("{") == line.count("}") for line in lines)


def test_prometheus_has_one_file_for_all(probe: MakeProbe) -> None:
    other = probe(objectives=[judged("slow", window="1d")])
    (document,) = written("prometheus", probe(), other)
    names = ["fast", "fast.budget", "slow.budget"]
    assert [f"latencyprobe.shop.checkout.{name}" for name in names] == [group["name"] for group in document["groups"]]
    assert ["1m", "2m", "2m"] == [group["interval"] for group in document["groups"]]


def test_a_prometheusrule_is_in_the_namespace_of_its_latencyprobe_and_has_the_same_groups(probe: MakeProbe) -> None:
    (document,) = written("prometheusrule", probe())
    assert ("monitoring.coreos.com/v1", "PrometheusRule") == (document["apiVersion"], document["kind"])
    metadata = document["metadata"]
    assert ("latencyprobe-checkout", "shop", False) == (
        metadata["name"],
        metadata["namespace"],
        "annotations" in metadata,
    )
    assert written("prometheus", probe())[0] == document["spec"]


@pytest.mark.parametrize(
    ("objectives", "sizes"),
    [
        (0, []),
        (8, [8]),
        pytest.param(9, [8, 1], marks=pytest.mark.long),
        pytest.param(32, [8] * 4, marks=pytest.mark.long),
    ],
)
def test_many_objectives_are_several_prometheusrules_each_small_enough_for_kubectl_and_the_prometheus_operator(
    probe: MakeProbe, objectives: int, sizes: list[int]
) -> None:
    longest = [judged(f"{i:063}", target="t" * 63, threshold="999999999ns", goal="99.99999") for i in range(objectives)]
    of = probe(targets=[{"name": "t" * 63, "ports": [80]}], objectives=longest)
    of = replace(of, name="p" * 63, namespace="n" * 63)
    documents = written("prometheusrule", of)
    groups = [[group["name"] for group in one["spec"]["groups"] if ".budget" in group["name"]] for one in documents]
    names = [f"latencyprobe-{of.name}{end}" for end in ("", ".2", ".3", ".4")]
    assert names[: len(sizes)] == [one["metadata"]["name"] for one in documents]
    assert sizes == [len(one) for one in groups]
    assert [entry["name"] for entry in longest] == [name.split(".")[3] for one in groups for name in one]
    assert [] == [size for one in documents if (size := len(json.dumps(one))) > 250_000]


def test_rows_left_out_are_told_as_comments_and_as_an_annotation(probe: MakeProbe) -> None:
    of = probe(objectives=[judged("fast", goal="90")])
    why = "shop/checkout/fast: no rule for page, 1h and 5m: it needs a burn rate above 14.4"
    assert forms.text("prometheus", [of]).startswith(f"# {why}")
    assert written("prometheusrule", of)[0]["metadata"]["annotations"][prometheus.LEFT_OUT].startswith(why)


def test_pyrra_has_one_object_for_each_objective(probe: MakeProbe) -> None:
    first, second = written("pyrra", probe(objectives=[judged("fast"), judged("all", window="7d", goal="99")]))
    assert ("pyrra.dev/v1alpha1", "ServiceLevelObjective") == (first["apiVersion"], first["kind"])
    assert {"name": "checkout.fast", "namespace": "shop"} == first["metadata"]
    assert ("99.9", "28d") == (first["spec"]["target"], first["spec"]["window"])
    assert ("99", "7d") == (second["spec"]["target"], second["spec"]["window"])
    assert {"errors": {"metric": f"{BAD}}}"}, "total": {"metric": f"{TOTAL}}}"}} == first["spec"]["indicator"]["ratio"]


def test_sloth_has_one_window_for_all(probe: MakeProbe) -> None:
    both = probe(objectives=[judged("fast"), judged("all", window="7d")])
    with pytest.raises(SpecError, match=r"spec\.objectives: windows 28d and 7d, .* choose with --window 28d"):
        forms.text("sloth", [both])


def test_sloth_is_told_the_window_on_its_command_line(probe: MakeProbe) -> None:
    assert forms.text("sloth", [probe()]).startswith("# sloth generate --default-slo-period 28d\n")
    week = forms.text("sloth", [probe(objectives=[judged("fast", window="7d")])])
    assert week.startswith("# sloth generate --default-slo-period 7d --slo-period-windows-path FOLDER, ")


def test_openslo_names_are_labels_and_differ_where_only_the_dashes_are_the_same(probe: MakeProbe) -> None:
    (document,) = written("openslo", probe())
    digest = hashlib.sha256(b"shop/checkout/fast").hexdigest()[:8]
    assert f"shop-checkout-fast-{digest}" == document["metadata"]["name"]
    (long,) = written("openslo", probe(objectives=[judged("a" * 63)]))
    assert 63 >= len(long["metadata"]["name"])
    (spec,) = (one["spec"] for one in written("openslo", probe()))
    assert [{"target": 0.999}] == spec["objectives"]
    assert [{"duration": "28d", "isRolling": True}] == spec["timeWindow"]


@pytest.mark.parametrize("text", ["{{ $value }}", '{{ query "up" }}', "a{{b}}", 'a"} or up{b="', "{{"])
def test_no_text_of_a_latencyprobe_becomes_a_template_or_a_selector_of_prometheus(text: str) -> None:
    """Prometheus expands templates in annotations, and in the labels of alerts."""
    own = {"{{ $value | humanize }}", "{{ $value | humanizePercentage }}"}
    right = whole() | {"metadata": {"name": "checkout", "namespace": "shop"}}
    assert own == templates(forms.text("prometheusrule", [parsing.parse(right)]))
    refused = 0
    for number in range(len([*places([right])])):
        document = deepcopy(right)
        holder, field = [*places([document])][number]
        if isinstance(holder[field], str):
            holder[field] = text
            try:
                rules = forms.text("prometheusrule", [parsing.parse(document)])
            except SpecError:
                refused += 1
            else:
                assert (text in rules, templates(rules)) == (False, own)
    assert refused > 10


def templates(text: str) -> set[str]:
    """What stands between the braces of Go's templates, and braces that nothing closes."""
    return {*re.findall(r"\{\{[^}]*(?:\}\})?", text)}


@pytest.mark.parametrize("goal", ["99.99999", "0.5", "99.9", "33.33333"])
def test_goals_lose_no_digit(goal: str, probe: MakeProbe) -> None:
    of = probe(objectives=[judged("fast", goal=goal)])
    (sloth,), (openslo,) = written("sloth", of), written("openslo", of)
    assert float(goal) == sloth["spec"]["slos"][0]["objective"]
    assert float(goal) == pytest.approx(100 * openslo["spec"]["objectives"][0]["target"], abs=1e-9)


def test_the_threshold_is_told_as_the_spec_has_it(probe: MakeProbe) -> None:
    for threshold in ("999999us", "60m", "1500ms", "25ms", "7ns"):
        of = probe(objectives=[judged("fast", threshold=threshold, errorsCountAsBad=False)])
        assert f"good: at most {threshold}. " in written("pyrra", of)[0]["spec"]["description"]


def test_an_objective_of_callers_asks_for_callers(probe: MakeProbe) -> None:
    of = probe(objectives=[judged("fast", perspective="Client")])
    (objective,) = objectives(of)
    assert "client" == counters.identity(objective)["perspective"]
    assert 'latencyprobe_perspective="client"' in counters.total(objective)
    (document,) = written("prometheus", of)
    assert all("client" == rule["labels"]["perspective"] for group in document["groups"] for rule in group["rules"])
