"""The loop of the rules: what it says while there is no such kind, and that it goes on by itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.errors import ClusterError
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.api import Api, ApiError
from latencyprobe_operator.cluster.calls import Cluster, FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.rules import documents
from latencyprobe_operator.rules import rules as rules_
from latencyprobe_operator.rules.rules import UNKNOWN, Rules
from latencyprobe_operator.rules.writer import RuleWriter
from tests.support import definitions
from tests.support.api_server import ApiServer, api_server, run_until_closed

KEY, NAME = ("shop", "checkout"), "latencyprobe-checkout"
RULES = "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules"


class Away(FakeCluster):
    """An API server that lists no rules."""

    def __init__(self, error: ClusterError) -> None:
        super().__init__()
        self._error = error

    async def rules(self) -> list[dict[str, Any]]:
        raise self._error


def rules_of(
    make: Any,
    cluster: Cluster,
    *,
    edited: Trigger | None = None,
    told: Trigger | None = None,
    probes: dict[Key, LatencyProbe] | None = None,
    writes: Writes | None = None,
) -> Rules:
    writer, known = RuleWriter(cluster, writes or Writes(), make.state(), {"release": "stack"}), {KEY: make.probe()}
    return Rules(cluster, writer, probes=lambda: probes or known, edited=edited or Trigger(), told=told or Trigger())


def is_set(trigger: Trigger) -> bool:
    found = trigger._event.is_set()
    trigger._event.clear()
    return found


def test_without_the_kind_every_latencyprobe_says_so_the_log_once_and_with_it_rules_are_written(
    make: Any, cluster: FakeCluster, caplog: pytest.LogCaptureFixture
) -> None:
    async def play() -> None:
        told = Trigger()
        rules = rules_of(make, cluster, told=told)
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
        refused = rules_of(make, Away(ApiError(403, "GET /x: 403 forbidden")))
        await refused.turn()
        problem = refused.problem(KEY)
        assert problem is not None
        assert problem.reason == "ListRefused"
        assert problem.message.startswith("GET /x: 403 forbidden; the chart gives this right")
        away = rules_of(make, Away(ClusterError("no answer")))
        with pytest.raises(ClusterError):
            await away.turn()
        assert away.problem(KEY) is None

    asyncio.run(play())


@pytest.mark.cluster
def test_rules_come_and_go_with_objectives_on_a_real_api_server(
    make: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(server: ApiServer) -> None:
        async with await Api.connect() as api:
            cluster, writes, probes = Cluster(api), Writes(), {KEY: make.probe()}
            rules = rules_of(make, cluster, probes=probes, writes=writes)
            await rules.turn()
            assert rules.problem(KEY) == UNKNOWN
            server.define(definitions.monitoring("prometheusrules"))
            for _ in range(2):
                await rules.turn()
            assert (rules.problem(KEY), writes.counts) == (None, {("rule", "ok"): 1})
            rule = server.call("GET", f"{RULES}/{NAME}")[1]
            (wanted,) = documents.wanted(probes[KEY], {"release": "stack"})
            assert rule["spec"] == wanted["spec"], "the kind knows every field, and adds none"
            assert rule["metadata"].items() >= wanted["metadata"].items()
            fields = [(one["manager"], one["operation"]) for one in rule["metadata"]["managedFields"]]
            assert fields == [("latencyprobe-operator", "Apply")]

            # another process, which knows nothing of it, changes nothing
            await rules_of(make, cluster, probes=probes).turn()
            version = rule["metadata"]["resourceVersion"]
            assert server.call("GET", f"{RULES}/{NAME}")[1]["metadata"]["resourceVersion"] == version

            # what others do to it is mended, what they add stays
            edit = b'{"metadata": {"annotations": {"note": "mine"}}, "spec": {"groups": []}}'
            assert server.answer("PATCH", f"{RULES}/{NAME}", edit, "application/merge-patch+json")[0] == 200
            await rules.turn()
            mended = server.call("GET", f"{RULES}/{NAME}")[1]
            assert (mended["spec"], mended["metadata"]["annotations"]) == (wanted["spec"], {"note": "mine"})

            # neither another's of the same name nor one that was changed meanwhile is touched
            theirs = {"apiVersion": "monitoring.coreos.com/v1", "kind": "PrometheusRule", "spec": {}}
            theirs = server.create(RULES, theirs | {"metadata": {"name": "latencyprobe-theirs"}})
            probes[("shop", "theirs")] = make.probe("theirs")
            await rules.turn()
            problem = rules.problem(("shop", "theirs"))
            assert problem is not None
            assert problem.reason == "NameTaken"
            assert server.call("GET", f"{RULES}/latencyprobe-theirs")[1] == theirs
            await cluster.delete_rule("shop", NAME, mended["metadata"]["uid"], version)
            assert server.call("GET", f"{RULES}/{NAME}")[1] == mended
            for name, status in ((NAME, 422), ("latencyprobe-gone", 409)):
                with pytest.raises(ApiError) as refused:
                    await cluster.write_rule(
                        wanted | {"metadata": wanted["metadata"] | {"name": name, "uid": "another"}}
                    )
                assert refused.value.status == status

            # nine objectives are two, none are none
            nine = [{"name": f"o{i}", "target": "cart", "threshold": "25ms", "goal": "99"} for i in range(9)]
            probes[KEY] = make.probe(objectives=nine)
            await rules.turn()
            assert names(server) == {NAME, f"{NAME}.2", "latencyprobe-theirs"}
            probes[KEY] = make.probe(objectives=[])
            await rules.turn()
            assert names(server) == {"latencyprobe-theirs"}

    def names(server: ApiServer) -> set[str]:
        return {one["metadata"]["name"] for one in server.call("GET", RULES)[1]["items"]}

    with api_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
        server.create("/api/v1/namespaces", namespace)
        run_until_closed(scene(server))


@pytest.mark.parametrize("edited", [True, False])
def test_rules_are_written_after_an_edit_and_looked_at_from_time_to_time(
    make: Any, cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch, edited: bool
) -> None:
    monkeypatch.setattr(rules_, "SETTLE_S", 0.001)
    monkeypatch.setattr(rules_, "LOOK_S", 60 if edited else 0.001)

    async def play() -> None:
        trigger = Trigger()
        task = asyncio.create_task(Loops().run(rules_of(make, cluster, edited=trigger)))
        if edited:
            trigger.set()
        await make.until(lambda: cluster.calls)
        task.cancel()

    asyncio.run(play())
    assert cluster.calls == [("write_rule", "shop", NAME)]
