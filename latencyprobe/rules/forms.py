"""The forms in which objectives are written, by the name that `latencyprobe rules -o` gives them."""

from collections.abc import Callable, Iterable

from latencyprobe.rules import documents, openslo, prometheus, pyrra, sloth
from latencyprobe.spec import LatencyProbe

FORMS: dict[str, Callable[[Iterable[LatencyProbe]], list[documents.Document]]] = {
    "prometheusrule": prometheus.prometheus_rules,
    "prometheus": prometheus.groups,
    "pyrra": pyrra.service_level_objectives,
    "sloth": sloth.service_levels,
    "openslo": openslo.slos,
}


def text(form: str, probes: Iterable[LatencyProbe]) -> str:
    """Return all objectives of the LatencyProbes in a form, as YAML."""
    return documents.text(FORMS[form](probes))
