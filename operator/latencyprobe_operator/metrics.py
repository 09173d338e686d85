"""The operator's own metrics, in the Prometheus exposition format: read from the parts when somebody asks.

`directory/server.py` serves `exposition()` at /metrics, behind authentication. Names of tenants are no labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from latencyprobe_operator.agents import NodeState
from latencyprobe_operator.informer import Informer

_PREFIX = "latencyprobe_operator"


class Sources(NamedTuple):
    """Where the figures come from."""

    informers: Callable[[], Iterable[Informer]]
    node_states: Callable[[], Iterable[NodeState]]
    probes: Callable[[], int]
    streams: Callable[[], int]
    requests: Counter[tuple[str, int]]
    rows_accepted: Callable[[], int]
    rows_dropped: Counter[str]
    recalled: Counter[str]
    writes: Counter[tuple[str, str]]
    evaluations: Counter[str]
    failures: Counter[str]


class _OperatorCollector(Collector):
    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        s = self._sources
        yield _gauge("build_info", "Version.", {(version("latencyprobe"),): 1}, "version")
        yield _gauge("probes", "LatencyProbes known.", {(): s.probes()})
        counted = Counter(str(state) for state in s.node_states())
        by_state = {(str(state),): counted[str(state)] for state in NodeState}
        yield _gauge("nodes", "Nodes that must measure, by what they do.", by_state, "state")
        yield _gauge("plan_streams", "Agents that read their plan now.", {(): s.streams()})
        informers = list(s.informers())
        silent = {(i.kind,): i.silent_s for i in informers}
        yield _gauge("watch_silent_seconds", "Time since the API server last said anything.", silent, "kind")
        for name in ("lists", "watches", "events", "undecodable"):
            values = {(i.kind,): getattr(i.signs, name) for i in informers}
            yield _counter(f"informer_{name}", f"Informer: {name}.", values, "kind")
        requests = {(route, str(status)): n for (route, status), n in s.requests.items()}
        yield _counter("directory_requests", "Requests to the directory.", requests, "route", "status")
        yield _counter("sli_rows_accepted", "SLI rows stored.", {(): s.rows_accepted()})
        dropped = {(reason,): n for reason, n in s.rows_dropped.items()}
        yield _counter("sli_rows_dropped", "SLI rows that were not taken.", dropped, "reason")
        recalled = {(outcome,): n for outcome, n in s.recalled.items()}
        yield _counter("recall_keys", "Halves that agents asked each other for.", recalled, "outcome")
        yield _counter("writes", "Writes to the API server.", s.writes, "kind", "result")
        evaluations = {(result,): n for result, n in s.evaluations.items()}
        yield _counter("evaluations", "Evaluations of objectives.", evaluations, "result")
        failures = {(work,): n for work, n in s.failures.items()}
        yield _counter("failures", "Rounds of the operator's own work that failed.", failures, "work")


def exposition(sources: Sources) -> Callable[[], bytes]:
    """Return a function that writes all metrics."""
    registry = CollectorRegistry()
    registry.register(_OperatorCollector(sources))
    ProcessCollector(registry=registry)
    return lambda: generate_latest(registry)


def _gauge(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = GaugeMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family


def _counter(name: str, text: str, values: Mapping[Any, float], *labels: str) -> Metric:
    family = CounterMetricFamily(f"{_PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric(key, value)
    return family
