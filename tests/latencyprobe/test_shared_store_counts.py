"""The same events through our own store, a real Prometheus and a real VictoriaMetrics: the same report."""

import csv as csv_
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from latencyprobe.errors import StoreError
from latencyprobe.report import build, csv, html, notes
from latencyprobe.report.model import Coverage, Result
from latencyprobe.report.units import duration_ns
from latencyprobe.shared_store.client import FAILED, Client
from latencyprobe.shared_store.counts import NOT_IN_METRICS, PrometheusCounts
from latencyprobe.shared_store.settings import Settings
from latencyprobe.sli import SliRow
from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import ObjectiveKey
from latencyprobe.store import Counts
from tests.latencyprobe.shared_events import EVENTS, KEY, NOW, OBJECTIVE, Log, good_and_bad, other
from tests.latencyprobe.store_rows import DAY_S, HOUR_S
from tests.support.native_writes import FEATURES, write
from tests.support.prometheus import (
    Series,
    Server,
    needs_prometheus,
    needs_victoria_metrics,
    openmetrics,
    prometheus,
    victoria_metrics,
)

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
    pytest.param(victoria_metrics_with, marks=(needs_victoria_metrics, pytest.mark.long), id="victoria-metrics"),
]


def counts(server: Server) -> PrometheusCounts:
    return PrometheusCounts(Client(Settings(server.url)))


class Over:
    """Our own store, of minutes that are over: its rows are as long, and the next one is no part of a moment that a
    test looks back at."""

    def __init__(self, own: Counts) -> None:
        self._own = own

    def read(self, key: ObjectiveKey, since: int, until: int, *, exemplars: bool = True) -> SliRow:
        return self._own.read(key, since, until - 1, exemplars=exemplars)

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


@pytest.mark.long
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
        if series.name == EVENTS
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


@pytest.mark.long
@pytest.mark.parametrize("started", SERVERS)
def test_exports_between_full_minutes_shift_each_end_by_less_than_one(tmp_path: Path, started: Started) -> None:
    log = Log(600, outage=range(400, 420), phase_s=(17, 41))
    with log.store(tmp_path / "sli.db") as own, started(tmp_path / "server", log, []) as server:
        asked, most = counts(server), 2 * 2 * 400  # both agents' events of a minute, at both ends
        for window_s in (300, 1800, HOUR_S, 6 * HOUR_S):
            ours, theirs = (store.events(KEY, NOW - window_s, NOW + 1) for store in (own, asked))
            assert abs(ours.total - theirs.total) <= most + 0.01 * ours.total, window_s
            assert abs(ours.bad - theirs.bad) <= most * 0.02 + 0.01 * ours.bad, window_s


@needs_prometheus
def test_a_short_window_is_not_extrapolated(tmp_path: Path) -> None:
    """`increase()` alone makes 125 of 100 events that came within the four minutes between the samples it sees."""
    log = Log(60)
    with prometheus_with(tmp_path, log, []) as server:
        selector = 'latencyprobe_slo_events_total{node="0",latencyprobe_outcome="good"}'
        plain = server.query(f"increase({selector}[5m])", NOW - 1)[0].value
        exact = sum(good_and_bad(minute)[0] for minute in log.of[0][-6:-1])
        assert abs(plain - exact) > 0.02 * exact, "otherwise there is nothing to show"
        alone = Log(60)
        alone.of[1] = [{} for _ in alone.of[1]]
    with prometheus_with(tmp_path / "alone", alone, []) as server:
        assert exact == counts(server).events(KEY, NOW - 301, NOW).good


@pytest.mark.long
@pytest.mark.parametrize("started", SERVERS)
def test_a_series_is_known_from_its_first_sample_on(tmp_path: Path, started: Started) -> None:
    log = Log(600)
    with started(tmp_path, log, []) as server:
        asked = Client(Settings(server.url))
        assert log.first == PrometheusCounts(asked, clock=lambda: NOW).since(KEY)
        known: dict[ObjectiveKey, int] = {}
        assert PrometheusCounts(asked, known, clock=lambda: NOW + 91 * DAY_S).since(KEY) is None
        assert known == {}, "it may still come"
        known[KEY] = NOW + HOUR_S
        assert log.first == PrometheusCounts(asked, known, clock=lambda: NOW).since(KEY), "a clock was ahead"


@pytest.mark.parametrize("idle_s", [600, 5 * HOUR_S, 9 * HOUR_S])
@pytest.mark.parametrize("started", SERVERS)
def test_a_series_that_was_short_and_is_over_is_known_as_well(tmp_path: Path, started: Started, idle_s: int) -> None:
    log = Log(60)
    with started(tmp_path, log, []) as server:
        assert log.first == PrometheusCounts(Client(Settings(server.url)), clock=lambda: NOW + idle_s).since(KEY)


@pytest.mark.long
@pytest.mark.parametrize("started", SERVERS)
def test_steps_add_up_to_the_window(tmp_path: Path, started: Started) -> None:
    log = Log(600)
    with started(tmp_path, log, []) as server:
        asked = counts(server)
        steps = asked.events_by_step(KEY, NOW - 10 * HOUR_S, NOW + 1, HOUR_S)
        near(sum(one.total for one in steps), log.total, "all steps")
        near(steps[3].total, sum(sum(minute.values()) for agent in log.of for minute in agent[180:240]), "the fourth")


@needs_prometheus
def test_a_namespace_without_series_is_told(tmp_path: Path) -> None:
    with prometheus_with(tmp_path, Log(60), []) as server:
        (found,) = build.build(counts(server), [OBJECTIVE], NOW + 30 * DAY_S).results
        assert found.state == "Incomplete"
        assert "no latencyprobe_slo_events_total of namespace shop in this window: no traffic yet, or" in found.reason


@needs_prometheus
def test_a_side_figure_without_samples_takes_no_verdict_away(tmp_path: Path) -> None:
    log, day = Log(60, outage=range(60)), replace(OBJECTIVE, window="1d")
    began = [
        Series(series.name, {**series.labels, "node": "2"}, [(NOW - 9 * DAY_S, 0), (NOW - 9 * DAY_S + 60, 9)])
        for series in log.series()
        if series.name == EVENTS
    ]
    with prometheus(tmp_path, openmetrics([*log.series(), *began])) as server:
        asked = PrometheusCounts(Client(Settings(server.url)), clock=lambda: NOW)
        assert (NOW - 9 * DAY_S, 0) == (asked.since(KEY), asked.events(KEY, NOW - 8 * DAY_S, NOW - 7 * DAY_S).total)
        found = [
            build.build(asked, [day], NOW).results[0],  # nothing on the day a week before
            build.build(asked, [day], NOW + 600).results[0],  # nor in the last full minutes
            build.build(asked, [day], NOW + 600, since_s=300).results[0],
        ]
    assert [(one.state, one.reason) for one in found] == [("Violated", "")] * 3
    near(found[0].events, log.total, "the day")
    assert (found[1].now, found[0].week_before) == (None, None)
    assert (found[2].events, found[2].window_events) == (0, found[1].events)


@needs_prometheus
def test_an_objective_whose_definition_is_new_has_no_events_yet(tmp_path: Path) -> None:
    edited = replace(OBJECTIVE, key=other(hash="h2"))
    with prometheus_with(tmp_path, Log(60), []) as server:
        (found,) = build.build(counts(server), [edited], NOW).results
        assert (found.state, found.events) == ("NoData", 0)


@pytest.mark.long
@needs_prometheus
def test_what_metrics_do_not_carry_is_named_in_every_form(tmp_path: Path) -> None:
    with prometheus_with(tmp_path, Log(600), []) as server:
        report = build.document("shop", build.build(counts(server), [OBJECTIVE], NOW))
    (found,) = report.results
    assert set(NOT_IN_METRICS) == set(found.untold)
    for field in NOT_IN_METRICS:
        first, _, inner = field.partition(".")
        of = Coverage if inner else Result
        assert (inner or first) in {one.encode_name for one in msgspec.structs.fields(of)}, field
    note = next(note.text for note in notes.told(found) if "not in the metrics" in note.text)
    assert "stages of bad RPCs" in note
    assert "lost turns" in note
    (row,) = csv_.DictReader(csv.render([report]).splitlines())
    assert (row["lost"], row["not_measured"], row["joined"]) == ("", "", "")
    assert row["ambiguous"] != ""
    assert "not in the metrics" in html.render([report])


def test_too_many_questions_end_in_time() -> None:
    asked = PrometheusCounts(Client(Settings("http://127.0.0.1:1")), steady=iter((0.0, 46.0)).__next__)
    with pytest.raises(StoreError, match="too slow") as raised:
        asked.events(KEY, NOW - 300, NOW)
    assert raised.value.reason == FAILED
