"""PrometheusRules as the operator writes them: those of `latencyprobe rules`, and whose they are. Pure."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from latencyprobe.rules import prometheus
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster import owners
from latencyprobe_operator.cluster.objects import Key

Metadata = dict[str, Any]


def wanted(probe: LatencyProbe, labels: Mapping[str, str]) -> Iterator[dict[str, Any]]:
    """Yield the PrometheusRules of a LatencyProbe, none without objectives. `labels`: by which the administrator's
    Prometheus selects them; ours win."""
    for document in prometheus.prometheus_rules([probe]):
        metadata: Any = document.content["metadata"]
        of_all = {"labels": {**labels, **metadata["labels"], **owners.MANAGED_BY}}
        yield document.content | {
            "metadata": metadata | of_all | {"ownerReferences": [owners.reference(probe.name, probe.uid)]}
        }


def by_probe(found: Iterable[Metadata]) -> dict[Key, dict[str, Metadata]]:
    """Group the metadata of PrometheusRules by LatencyProbe, then by their names. What only looks like one of ours, a
    copy under another name for example, is left out."""
    grouped: defaultdict[Key, dict[str, Metadata]] = defaultdict(dict)
    for metadata in found:
        probe, name = owners.owner(metadata), metadata["name"]
        if probe is not None and name.partition(".")[0] == prometheus.object_name(probe):
            grouped[metadata["namespace"], probe][name] = metadata
    return dict(grouped)
