"""Reports that a shared store judges: a real Prometheus that answers, one that is away, one that never answers."""

import asyncio
import socket
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
import requests
from msgspec.structs import replace

from latencyprobe.shared_store import counts
from latencyprobe.shared_store.settings import Settings
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.reports.evaluation import Evaluation
from latencyprobe_operator.reports.shared_store import SharedStore
from latencyprobe_operator.reports.store_thread import StoreThread
from tests.support.ports import free_port
from tests.support.prometheus import Series, needs_prometheus, openmetrics, prometheus

KEY = ("shop", "checkout")
Result = dict[str, Any]


class World:
    """An evaluation of one LatencyProbe, of whose events our own store has 900 good and 100 bad ones."""

    def __init__(self, make: Any, folder: Path) -> None:
        self.now = int(time.time())
        self.planned = make.planned(make.pod("cart-1"), clients={"scope": "None"})
        self.planned.report("n1", 0)
        (self.objective,) = objectives(self.planned.probe)
        self.row = SliRow(
            *self.objective.key,
            minute=(self.now - 3600) // 60 * 60,
            good=900,
            bad=100,
            coverage=Coverage(seen=1000),
            dominant={"process": 100},
            stage_ns={"process": 10**9},
        )
        self.file = folder / "sli.db"
        self.failures: Counter[str] = Counter()

    def exported(self, good: int, bad: int, ago_s: int = 0) -> str:
        """Counters that had so many events in two hours, which ended so long ago."""
        key = self.objective.key
        labels = {
            "latencyprobe_probe_namespace": key.namespace,
            "latencyprobe_probe": key.probe,
            "latencyprobe_target": self.objective.target,
            "latencyprobe_objective": key.objective,
            "latencyprobe_objective_definition": key.hash,
            "latencyprobe_perspective": str(key.perspective).lower(),
        }
        return openmetrics(
            Series(
                "latencyprobe_slo_events_total",
                labels | {"latencyprobe_outcome": outcome},
                [(self.now - ago_s - 7200 + 60 * i, events * i // 120) for i in range(121)],
            )
            for outcome, events in (("good", good), ("bad", bad))
        )

    def turn(
        self,
        url: str,
        meanwhile: Callable[[StoreThread], Awaitable[None]] | None = None,
        timeout_s: float = 60,
    ) -> tuple[Result, str]:
        """The result of one evaluation by the store at `url`, and what is wrong with that one."""

        async def whole() -> tuple[Result, str]:
            shared = SharedStore(
                Settings(url, timeout_s=timeout_s), lambda: SqliteStore(self.file, readonly=True), self.failures
            )
            async with StoreThread(lambda: SqliteStore(self.file)) as thread:
                evaluation = Evaluation(
                    self.planned.planner,
                    self.planned.agents,
                    thread,
                    probes=lambda: {KEY: self.planned.probe},
                    upload_s=lambda: 5.0,
                    evaluated=(),
                    shared=shared,
                )
                await thread.run(thread.store.add, [self.row])
                turn = asyncio.create_task(evaluation.turn())
                if meanwhile:
                    await meanwhile(thread)
                await turn
            (figures,) = evaluation.figures(KEY)
            return figures, shared.problem

        return asyncio.run(whole())


@pytest.fixture
def world(make: Any, tmp_path: Path) -> World:
    return World(make, tmp_path)


@needs_prometheus
def test_the_shared_store_judges_and_our_own_explains(world: World, tmp_path: Path) -> None:
    with prometheus(tmp_path / "server", world.exported(good=890, bad=110)) as server:
        figures, problem = world.turn(server.url)
    assert problem == ""
    assert 105 <= figures["bad"] <= 112, "the server's"
    assert [(one["stage"], one["events"]) for one in figures["badByStage"]] == [("process", 100)], "ours"
    assert "untold" not in figures
    assert "reason" not in figures


@needs_prometheus
def test_exports_that_have_stalled_for_minutes_take_no_verdict_away(world: World, tmp_path: Path) -> None:
    latest = SliRow(*world.objective.key, minute=(world.now - 120) // 60 * 60, good=2, bad=1)
    with prometheus(tmp_path / "server", world.exported(good=890, bad=110, ago_s=480)) as server:
        figures, _ = world.turn(server.url, lambda thread: thread.run(thread.store.add, [latest]))
    assert (figures["state"], "reason" in figures) == ("Violated", False)
    assert 105 <= figures["bad"] <= 112


@needs_prometheus
def test_what_our_own_store_knows_of_other_events_explains_nothing(world: World, tmp_path: Path) -> None:
    with prometheus(tmp_path / "server", world.exported(good=8900, bad=1100)) as server:
        figures, _ = world.turn(server.url)
    assert "badByStage" not in figures
    assert {"badByStage", "coverage.lost", "quantiles", "slowest"} <= set(figures["untold"])


@needs_prometheus
def test_a_server_without_what_our_own_store_has_seen_is_told(world: World, tmp_path: Path) -> None:
    with prometheus(tmp_path / "server") as server:
        figures, _ = world.turn(server.url)
    assert figures["state"] == "Incomplete"
    assert "the agents' metrics (otlp.endpoint) do not arrive there" in figures["reason"]


@needs_prometheus
def test_without_any_traffic_nothing_is_wrong(world: World, tmp_path: Path) -> None:
    world.row = replace(world.row, good=0, bad=0, dominant={}, stage_ns={})
    with prometheus(tmp_path / "server") as server:
        figures, _ = world.turn(server.url)
    assert (figures["state"], figures["events"], "reason" in figures) == ("NoData", 0, False)


@needs_prometheus
def test_what_falls_out_of_the_servers_retention_is_not_told_as_measured(world: World, tmp_path: Path) -> None:
    text = world.exported(good=890, bad=110)
    with prometheus(tmp_path / "server", text, options=["--web.enable-admin-api"]) as server:
        shared = SharedStore(Settings(server.url), lambda: SqliteStore(world.file), world.failures)

        def since() -> int | None:
            return asyncio.run(shared.run(lambda counts: counts.since(world.objective.key)))

        assert world.now - 7200 <= (since() or 0) < world.now - 7140
        gone = {"match[]": '{__name__!=""}', "end": world.now - 3600}
        requests.post(f"{server.url}/api/v1/admin/tsdb/delete_series", params=gone, timeout=60).raise_for_status()
        assert world.now - 3600 <= (since() or 0) < world.now - 3480, "the first that is left"


def test_a_server_that_is_away_leaves_our_own_counts_and_a_condition(world: World) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    figures, problem = world.turn(url)
    assert (figures["events"], figures["bad"], figures["state"]) == (1000, 100, "Violated")
    assert figures["reason"].startswith(f"these are the operator's own counts: {url}: no answer")
    assert "refused" in problem
    assert world.failures == {"SharedStoreFailed": 1}


@pytest.mark.long
def test_a_server_that_never_answers_holds_up_no_counts(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(counts, "BUDGET_S", 2.0)
    stored: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as silent:

        async def meanwhile(thread: StoreThread) -> None:
            key = world.objective.key
            await thread.run(thread.store.add, [SliRow(*key, minute=world.now // 60 * 60, good=1)])
            stored.append((await thread.run(thread.store.events, key, world.now - 120, world.now + 120)).good)

        figures, problem = world.turn(f"http://127.0.0.1:{silent.getsockname()[1]}", meanwhile, timeout_s=1)
    assert stored == [1]
    assert "timed out" in problem
    assert figures["state"] == "Violated"
