"""The same events through our own store, a real Prometheus and a real VictoriaMetrics: the same report."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.report import build
from latencyprobe.report.model import Result
from latencyprobe.report.units import duration_ns
from latencyprobe.shared_store.client import Client
from latencyprobe.shared_store.counts import PrometheusCounts
from latencyprobe.shared_store.settings import Settings
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import Counts
from tests.latencyprobe.shared_events import KEY, NOW, OBJECTIVE, Log, other
from tests.latencyprobe.store_rows import DAY_S, HOUR_S
from tests.support.prometheus import (
    Series,
    Server,
    needs_prometheus,
    needs_victoria_metrics,
    openmetrics,
    prometheus,
    victoria_metrics,
)
from tests.support.remote_write import FEATURES, write

Started = Callable[[Path, Log, list[Series]], AbstractContextManager[Server]]


@contextmanager
def prometheus_with(folder: Path, log: Log, more: list[Series]) -> Iterator[Server]:
    with prometheus(folder, options=FEATURES) as server:
        write(server, [*log.series(), *log.native(), *more])
        yield server


@contextmanager
def victoria_metrics_with(folder: Path, log: Log, more: list[Series]) -> Iterator[Server]:
    with victoria_metrics(folder, openmetrics([*log.series(), *log.ranges(), *more])) as server:
        yield server


SERVERS = [
    pytest.param(prometheus_with, marks=needs_prometheus, id="prometheus"),
    pytest.param(victoria_metrics_with, marks=needs_victoria_metrics, id="victoria-metrics"),
]


def counts(server: Server) -> PrometheusCounts:
    return PrometheusCounts(Client(Settings(server.url)))


class Over:
    """Our own store, of minutes that are over: its rows are as long, and the next one is no part of a moment that a
    test looks back at."""

    def __init__(self, own: Counts) -> None:
        self._own = own

    def read(self, key: ObjectiveKey, since: int, until: int) -> SliRow:
        return self._own.read(key, since, until - 1)

    def events(self, key: ObjectiveKey, since: int, until: int) -> Events:
        return self._own.events(key, since, until - 1)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._own, name)


def result(store: Counts, at: int = NOW, since_s: int | None = None) -> Result:
    (found,) = build.build(store, [OBJECTIVE], at, since_s=since_s).results
    assert not found.reason, found.reason
    return found


def near(one: int, other: int, what: str) -> None:
    """Within 1 %, or one event at each end of the window."""
    assert abs(one - other) <= max(0.01 * max(one, other), 2), (what, one, other)


def same(ours: Result, theirs: Result) -> None:
    near(ours.events, theirs.events, "events")
    near(ours.bad, theirs.bad, "bad")
    assert ours.state == theirs.state
    assert [burn.state for burn in ours.burn_rates] == [burn.state for burn in theirs.burn_rates]
    for one, two in zip(ours.burn_rates, theirs.burn_rates, strict=True):
        for mine, other_ in ((one.long_rate, two.long_rate), (one.short_rate, two.short_rate)):
            assert (mine is None) == (other_ is None)
            rates = Decimal(mine or 0), Decimal(other_ or 0)
            assert abs(rates[0] - rates[1]) <= max(rates) * Decimal("0.02") + Decimal("0.01"), (one, two)
    near(ours.coverage.seen, theirs.coverage.seen, "seen")
    near(ours.coverage.ambiguous, theirs.coverage.ambiguous, "ambiguous")
    assert abs(Decimal(ours.coverage.ratio) - Decimal(theirs.coverage.ratio)) <= Decimal("0.1")
    for quantile in ("p50", "p90", "p99"):
        mine, other_ns = (duration_ns(getattr(one.quantiles, quantile)) for one in (ours, theirs))
        assert abs(mine - other_ns) <= 0.03 * mine, (quantile, mine, other_ns)


@pytest.mark.parametrize("started", SERVERS)
def test_the_same_events_give_the_same_report(tmp_path: Path, started: Started) -> None:
    minutes = 2 * 1440
    outage = range(minutes - 300, minutes - 240)
    log = Log(minutes, outage=outage)
    with log.store(tmp_path / "sli.db") as own, started(tmp_path / "server", log, []) as server:
        for at in (NOW, NOW - 2 * HOUR_S, NOW - 4 * HOUR_S, NOW - 4 * HOUR_S - 1800, NOW - DAY_S):
            same(result(Over(own), at), result(counts(server), at))
        same(result(own, since_s=3 * HOUR_S), result(counts(server), since_s=3 * HOUR_S))
        same(result(own, since_s=300), result(counts(server), since_s=300))
        assert ["AtRisk", "Violated"].count(result(Over(own), NOW - 4 * HOUR_S).state), "the outage is about something"


@pytest.mark.parametrize("started", SERVERS)
def test_nothing_of_others_is_counted(tmp_path: Path, started: Started) -> None:
    log, hostile = Log(60), 'shop"} or {latencyprobe_probe="checkout'
    more = [
        series
        for key in (
            other(namespace="bank"),
            other(namespace=hostile),
            other(namespace="shop\\"),
            other(hash="h0"),
            other(objective="slow"),
            other(perspective="Client"),
        )
        for series in Log(60, seed=8).series(key)
        if series.name == "latencyprobe_slo_events_total"
    ]
    with log.store(tmp_path / "sli.db") as own, started(tmp_path / "server", log, more) as server:
        asked = counts(server)
        near(own.events(KEY, NOW - HOUR_S, NOW + 1).total, asked.events(KEY, NOW - HOUR_S, NOW + 1).total, "shop's")
        for namespace in ("bank", hostile, "shop\\"):
            key = other(namespace=namespace)
            near(asked.events(key, NOW - HOUR_S, NOW + 1).total, Log(60, seed=8).total, namespace)
        for namespace in (".*", 'sh"or"op', 'x"} or on() {a!="', "shop\n", "{{shop}}", ""):
            key = other(namespace=namespace)
            assert asked.events(key, NOW - HOUR_S, NOW + 1) == (0, 0), namespace
            assert asked.events_by_step(key, NOW - HOUR_S, NOW + 1, 600) == [], namespace
            assert asked.since(key) is None, namespace
