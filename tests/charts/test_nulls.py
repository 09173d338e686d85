"""`null` is Helm's way to take a default away: before the schema looks at it, so that none of its bounds applies."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from latencyprobe_agent import config as agent
from latencyprobe_operator.config import Config
from tests.charts.conftest import CHART, GIVEN, Manifests
from tests.charts.schemas import Conform

pytestmark = pytest.mark.cluster

Leaf = tuple[str, ...]
Render = Callable[..., Manifests]

# What nothing can stand for, so that the schema asks for it.
NEEDED = {
    ("agent", "cgroupPath"),
    ("agent", "image", "repository"),
    ("networkPolicy", "apiServerPorts"),
    ("operator", "image", "repository"),
    ("persistence", "size"),
}
SHARED = {("slo", "store"): "prometheus", ("slo", "prometheus", "url"): "https://p"}


def leaves(values: dict[str, Any], above: Leaf = ()) -> Iterator[tuple[Leaf, Any]]:
    for name, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, (*above, name))
        else:
            yield (*above, name), value


DEFAULTS = dict(leaves(yaml.safe_load((CHART / "values.yaml").read_text())))
ON = {leaf: True for leaf, value in DEFAULTS.items() if isinstance(value, bool)} | SHARED
NULL = dict.fromkeys(DEFAULTS.keys() - NEEDED) | dict(leaves(GIVEN))


def tree(values: dict[Leaf, Any]) -> dict[str, Any]:
    grown: dict[str, Any] = {}
    for leaf, value in values.items():
        branch = grown
        for name in leaf[:-1]:
            branch = branch.setdefault(name, {})
        branch[leaf[-1]] = value
    return grown


@pytest.mark.parametrize("values", [NULL | ON, NULL], ids=["switched on", "switched off"])
def test_null_is_the_default_of_the_programs_and_of_kubernetes(
    render: Render, conform: Conform, values: dict[Leaf, Any]
) -> None:
    manifests = render(**tree(values))
    told = {}
    for kind in ("DaemonSet", "Deployment"):
        container = manifests.one(kind)["spec"]["template"]["spec"]["containers"][0]
        told[kind] = {entry["name"]: entry["value"] for entry in container["env"] if "value" in entry}
    settings = agent.from_environment(told["DaemonSet"])

    conform(yaml.safe_dump_all(manifests))
    assert (settings.records_per_second, settings.spans_per_second) == (5000, 2000)
    assert Config.from_environment(told["Deployment"]).agent_tolerations == ()


def test_no_rule_of_a_policy_is_empty_which_would_allow_all_the_world(render: Render) -> None:
    policies = [one["spec"] for one in render(**tree(NULL | ON)) if one["kind"] == "NetworkPolicy"]
    rules = [rule for policy in policies for rule in policy.get("ingress", []) + policy["egress"]]

    assert rules
    assert [rule for rule in rules if not all(rule.values())] == []


@pytest.mark.parametrize("leaf", sorted(NEEDED), ids=".".join)
def test_what_nothing_can_stand_for_is_asked_for(render: Render, leaf: Leaf) -> None:
    with pytest.raises(AssertionError, match=f"'/{'/'.join(leaf[:-1])}': missing property '{leaf[-1]}'"):
        render(**tree({leaf: None}))
