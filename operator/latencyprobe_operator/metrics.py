"""The operator's own metrics, in the Prometheus exposition format: read from the parts at each scrape.

Names of tenants are no labels.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib.metadata import version
from typing import Any, NamedTuple

from prometheus_client import CollectorRegistry, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

from latencyprobe_operator.cluster.informer import Informer
from latencyprobe_operator.plan.agents import NodeState

DELIVERY_BUCKETS_S = (0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 60.0)
_PREFIX = "latencyprobe_operator"
_OF_INFORMERS = {
    "lists": "Lists of all objects, begun.",
    "watches": "Watches, begun.",
    "events": "Events of watches.",
    "undecodable": "Objects that could not be read, and are left out.",
}


class Sources(NamedTuple):
    """The counters and functions that the figures are read from."""

    informers: Callable[[], Iterable[Informer]]
    node_states: Callable[[], Iterable[NodeState]]
    probes: Callable[[], int]
    without_room: Callable[[], int]
    suspended: Callable[[], bool]
    left_out: Callable[[], Counter[str]]
    streams: Callable[[], int]
    connections: Callable[[], int]
    connections_cut: Callable[[], int]
    requests: Counter[tuple[str, int]]
    rows_accepted: Callable[[], int]
    rows_dropped: Counter[str]
    remote_joins: Counter[str]
    lookups: Counter[str]
    commits: Callable[[], int]
    upload_s: Callable[[], float]
    writes: Counter[tuple[str, str]]
    evaluations: Counter[str]
    loop_failures: Counter[tuple[str, str]]
    store_works: Callable[[], bool]
    store_failures: Counter[str]
    damaged_files: Callable[[], int]
    expected_forgotten: Callable[[], int]
    may_write: Callable[[], bool]
    unconfirmed_s: Callable[[], int]


class OperatorCollector(Collector):
    """Reads the sources anew each time."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources

    def collect(self) -> Iterator[Metric]:
        """Yield all families."""
        s = self._sources
        yield _gauge("build_info", "Always 1: its version.", {(version("latencyprobe"),): 1}, "version")
        yield _gauge("probes", "LatencyProbes known.", {(): s.probes()})
        yield _gauge("probes_without_room", "LatencyProbes left out for lack of room.", {(): s.without_room()})
        yield _gauge("suspended", "Whether an administrator has stopped all measuring.", {(): s.suspended()})
        left_out = {(kind,): n for kind, n in s.left_out().items()}
        yield _gauge("objects_left_out", "Pods, Services, slices that our memory has no room for.", left_out, "kind")
        counted = Counter(str(state) for state in s.node_states())
        by_state = {(str(state),): counted[str(state)] for state in NodeState}
        yield _gauge("nodes", "Nodes that must measure, by what they do.", by_state, "state")
        yield _gauge("plan_streams", "Agents that read their plan now.", {(): s.streams()})
        informers = list(s.informers())
        silent = {(i.kind,): i.signs.silent_s for i in informers}
        yield _gauge("watch_silent_seconds", "Time since the API server last sent anything.", silent, "kind")
        yield _gauge("store_works", "Whether the store takes counts.", {(): s.store_works()})
        failures = {(reason,): n for reason, n in s.store_failures.items()}
        yield _counter("store_failures", "Failed attempts to use a store.", failures, "reason")
        yield _gauge(
            "store_damaged_files", "Damaged files that were moved aside and are kept.", {(): s.damaged_files()}
        )
        forgotten = {(): s.expected_forgotten()}
        yield _counter("expected_time_forgotten", "Groups of minutes whose gaps nobody will see.", forgotten)
        age = {(): s.unconfirmed_s()}
        yield _gauge("unconfirmed_seconds", "Age of what is served, 0 while the API server confirms it.", age)
        yield _gauge("may_write", "Whether the Lease is ours: else nothing is written.", {(): s.may_write()})
        for name, text in _OF_INFORMERS.items():
            values = {(i.kind,): getattr(i.signs, name) for i in informers}
            yield _counter(f"informer_{name}", text, values, "kind")
        yield _gauge("connections", "Connections to the directory.", {(): s.connections()})
        yield _counter("connections_cut", "Those cut off: too many, or no token in time.", {(): s.connections_cut()})
        requests = {(route, str(status)): n for (route, status), n in s.requests.items()}
        yield _counter("directory_requests", "Requests to the directory.", requests, "route", "status")
        yield _counter("sli_rows_accepted", "SLI rows stored.", {(): s.rows_accepted()})
        dropped = {(reason,): n for reason, n in s.rows_dropped.items()}
        why = "SLI rows not taken: not_asked, future, late, impossible_*; lost: unstorable, unreadable (batches)."
        yield _counter("sli_rows_dropped", why, dropped, "reason")
        yield _counter("sli_commits", "Transactions in which SLI rows were stored.", {(): s.commits()})
        yield _gauge("sli_upload_interval_seconds", "How often agents shall hand in counts.", {(): s.upload_s()})
        lookups = {(outcome,): n for outcome, n in s.lookups.items()}
        yield _counter("identity_lookups", "Owners that agents asked for: new, again, too_many.", lookups, "outcome")
        remote_joins = {(outcome,): n for outcome, n in s.remote_joins.items()}
        yield _counter("remote_join_keys", "Halves that agents asked each other for.", remote_joins, "outcome")
        yield _counter(
            "writes", "Writes to the API server: ok, error, held_back (no Lease).", s.writes, "kind", "result"
        )
        evaluations = {(result,): n for result, n in s.evaluations.items()}
        yield _counter(
            "evaluations", "Objectives evaluated: ok, failed (not of the latest counts).", evaluations, "result"
        )
        yield _counter("loop_failures", "Turns of the operator's loops that failed.", s.loop_failures, "loop", "error")


def delivery_times() -> Histogram:
    """Return the histogram of the time from a change to an agent that follows it (plan/deliveries.py)."""
    what = "From a change in the cluster until an agent follows it."
    return Histogram(f"{_PREFIX}_plan_delivery_seconds", what, buckets=DELIVERY_BUCKETS_S, registry=None)


def exposition(*collectors: Collector) -> Callable[[], bytes]:
    """Return a function that writes all metrics, those of the process too."""
    registry = CollectorRegistry()
    for collector in collectors:
        registry.register(collector)
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
