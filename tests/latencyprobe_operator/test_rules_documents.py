"""PrometheusRules of the operator: what `latencyprobe rules` writes, owned, with the administrator's labels."""

from typing import Any

import yaml

from latencyprobe.rules import forms
from latencyprobe_operator.cluster.owners import reference
from latencyprobe_operator.rules.documents import by_probe, wanted

OURS = {"app.kubernetes.io/name": "latencyprobe", "app.kubernetes.io/managed-by": "latencyprobe-operator"}


def test_rules_are_those_of_the_command_with_an_owner_and_labels(make: Any) -> None:
    probe = make.probe()
    (ours,), (theirs,) = wanted(probe, {"release": "stack"}), yaml.safe_load_all(forms.text("prometheusrule", [probe]))
    assert ours["metadata"].pop("ownerReferences") == [reference(probe.name, probe.uid)]
    assert ours["metadata"].pop("labels") == {"release": "stack", **OURS}
    assert theirs["metadata"].pop("labels").items() <= OURS.items()
    assert ours == theirs


def test_labels_of_the_administrator_take_none_of_ours_away(make: Any) -> None:
    (rule,) = wanted(make.probe(), {"app.kubernetes.io/managed-by": "Helm", "app.kubernetes.io/name": "x"})
    assert rule["metadata"]["labels"] == OURS


def test_without_objectives_there_are_no_rules(make: Any) -> None:
    assert [*wanted(make.probe(objectives=[]), {})] == []


def test_what_is_there_is_found_by_its_latencyprobe_and_no_copy_of_it_is(make: Any) -> None:
    many = [{"name": f"o{i}", "target": "cart", "threshold": "25ms", "goal": "99"} for i in range(9)]
    first, second = (rule["metadata"] for rule in wanted(make.probe(objectives=many), {}))
    (other,) = (rule["metadata"] for rule in wanted(make.probe("checkout-2"), {}))
    copy = first | {"name": "mine"}
    like = first | {"name": "latencyprobe-checkout-2"}
    assert by_probe([first, second, other, copy, like, {"name": "a", "namespace": "shop"}]) == {
        ("shop", "checkout"): {"latencyprobe-checkout": first, "latencyprobe-checkout.2": second},
        ("shop", "checkout-2"): {"latencyprobe-checkout-2": other},
    }
