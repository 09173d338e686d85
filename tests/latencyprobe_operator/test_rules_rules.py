"""The loop of the rules: what it says while there is no such kind, and that it goes on by itself."""

import asyncio
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.rules import rules as rules_
from latencyprobe_operator.rules.rules import UNKNOWN, Rules
from latencyprobe_operator.rules.writer import RuleWriter

KEY, NAME = ("shop", "checkout"), "latencyprobe-checkout"


class Away(FakeCluster):
    """An API server that lists no rules."""

    def __init__(self, error: ClusterError) -> None:
        super().__init__()
        self._error = error

    async def rules(self) -> list[dict[str, Any]]:
        raise self._error


def rules_of(make: Any, cluster: FakeCluster, edited: Trigger, told: Trigger) -> Rules:
    writer = RuleWriter(cluster, Writes(), make.state(), {})
    return Rules(cluster, writer, probes=lambda: {KEY: make.probe()}, edited=edited, told=told)


def is_set(trigger: Trigger) -> bool:
    found = trigger._event.is_set()
    trigger._event.clear()
    return found


def test_without_the_kind_every_latencyprobe_says_so_the_log_once_and_with_it_rules_are_written(
    make: Any, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        told = Trigger()
        rules = rules_of(make, cluster, Trigger(), told)
        cluster.knows = False
        await rules.turn()
        assert (rules.problem(KEY), is_set(told)) == (UNKNOWN, True)
        await rules.turn()
        assert not is_set(told)
        assert caplog.text.count("there is no kind PrometheusRule") == 1
        assert cluster.calls == []
        cluster.knows = True
        await rules.turn()
        assert (rules.problem(KEY), is_set(told)) == (None, True)
        assert cluster.calls == [("write_rule", "shop", NAME)]
        await rules.turn()
        assert not is_set(told)

    asyncio.run(play())


def test_a_right_that_is_missing_is_told_and_an_api_server_that_is_away_changes_nothing(make: Any) -> None:
    async def play() -> None:
        refused = rules_of(make, Away(ApiError(403, "GET /x: 403 forbidden")), Trigger(), Trigger())
        await refused.turn()
        problem = refused.problem(KEY)
        assert problem is not None
        assert problem.reason == "ListRefused"
        assert problem.message.startswith("GET /x: 403 forbidden; the chart gives this right")
        away = rules_of(make, Away(ClusterError("no answer")), Trigger(), Trigger())
        with pytest.raises(ClusterError):
            await away.turn()
        assert away.problem(KEY) is None

    asyncio.run(play())


@pytest.mark.parametrize("edited", [True, False])
def test_rules_are_written_after_an_edit_and_looked_at_from_time_to_time(
    make: Any, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    monkeypatch.setattr(rules_, "SETTLE_S", 0.001)
    monkeypatch.setattr(rules_, "LOOK_S", 60 if edited else 0.001)

    async def play() -> None:
        trigger = Trigger()
        task = asyncio.create_task(Loops().run(rules_of(make, cluster, trigger, Trigger())))
        if edited:
            trigger.set()
        await make.until(lambda: cluster.calls)
        task.cancel()

    asyncio.run(play())
    assert cluster.calls == [("write_rule", "shop", NAME)]
