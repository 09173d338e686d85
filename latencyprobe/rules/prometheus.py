"""Rules as Prometheus reads them in a file, and as PrometheusRule objects of the Prometheus Operator. Pure."""

from collections.abc import Iterable

from latencyprobe.rules import promql
from latencyprobe.rules.documents import Document
from latencyprobe.rules.objective_rules import Group, ObjectiveRules, objective_rules
from latencyprobe.slo.objective import objectives
from latencyprobe.spec import LatencyProbe

LEFT_OUT = "latencyprobe.dev/left-out"  # annotation: comments do not reach a cluster
OBJECTIVES = 8  # `kubectl apply` refuses more than 256 KiB, the Prometheus Operator 512; an objective has up to 30


def groups(probes: Iterable[LatencyProbe]) -> list[Document]:
    """Return one file of rule groups (`rule_files` in prometheus.yml) for all objectives."""
    of_all = [rules for probe in probes for rules in _rules(probe)]
    return [Document(_groups(of_all), _left_out(of_all))]


def prometheus_rules(probes: Iterable[LatencyProbe]) -> list[Document]:
    """Return the monitoring.coreos.com/v1 PrometheusRules of each LatencyProbe, in its namespace: one for each
    `OBJECTIVES` of its objectives."""
    documents = []
    for probe in probes:
        rules = _rules(probe)
        parts = (rules[i : i + OBJECTIVES] for i in range(0, len(rules), OBJECTIVES))
        documents += [Document(_object(probe, number, part)) for number, part in enumerate(parts, 1)]
    return documents


def object_name(probe: str, number: int = 1) -> str:
    """Return the name of a LatencyProbe's PrometheusRule, counted from 1. A dot, which no part has in it, keeps apart
    the second of `a` and the first of `a-2`."""
    return f"latencyprobe-{probe}" + (f".{number}" if number > 1 else "")


def _object(probe: LatencyProbe, number: int, rules: list[ObjectiveRules]) -> dict[str, object]:
    metadata: dict[str, object] = {
        "name": object_name(probe.name, number),
        "namespace": probe.namespace,
        "labels": {"app.kubernetes.io/name": "latencyprobe"},
    }
    if left_out := _left_out(rules):
        metadata["annotations"] = {LEFT_OUT: "\n".join(left_out)}
    kind = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule"}
    return {**kind, "metadata": metadata, "spec": _groups(rules)}


def _rules(probe: LatencyProbe) -> list[ObjectiveRules]:
    return [objective_rules(objective) for objective in objectives(probe)]


def _left_out(rules: Iterable[ObjectiveRules]) -> tuple[str, ...]:
    return tuple(why for one in rules for why in one.left_out)


def _groups(rules: Iterable[ObjectiveRules]) -> dict[str, object]:
    return {"groups": [_group(group) for one in rules for group in one.groups]}


def _group(group: Group) -> dict[str, object]:
    entries = [rule._asdict() for rule in group.rules]
    return {"name": group.name, "interval": promql.duration(group.interval_s), "rules": entries}
