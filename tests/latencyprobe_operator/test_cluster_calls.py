"""Every call to the API server, and that the listed rights are exactly what they need."""

import asyncio
import re
from collections.abc import Callable, Coroutine
from contextlib import nullcontext
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml
from aiohttp import web

from latencyprobe.errors import ClusterError
from latencyprobe_operator import cleanup
from latencyprobe_operator.cluster import election
from latencyprobe_operator.cluster.api import Api, ApiError
from latencyprobe_operator.cluster.calls import Cluster, Reviewed
from latencyprobe_operator.cluster.election import Claim
from latencyprobe_operator.cluster.informer import Informers
from latencyprobe_operator.cluster.loops import Loops
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.config import Namespaces

RIGHTS = yaml.safe_load((Path(__file__).parents[1] / "data/operator_rbac.yaml").read_text())
RESOURCE = re.compile(
    r"/api(?:s/(?P<group>[^/]+))?/v1(?:alpha1)?(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+)(?:/(?P<sub>[a-z]+))?)?"
)


class Recorder:
    """An API server that takes everything down and answers with `answers[path]`, else an empty list."""

    def __init__(self, answers: dict[str, Any] | None = None) -> None:
        self.answers = answers or {}
        self.accepted: list[str] = []
        self.requests: list[tuple[str, str, dict[str, str], Any]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.text()
        self.accepted.append(request.headers["Accept"])
        self.requests.append(
            (request.method, request.path, dict(request.query), yaml.safe_load(body) if body else None)
        )
        if "watch" in request.query:
            response = web.StreamResponse()
            await response.prepare(request)
            await asyncio.sleep(60)
        answer = self.answers.get(request.path, {"metadata": {"resourceVersion": "1"}, "items": [], "status": {}})
        return answer() if callable(answer) else web.json_response(answer)

    def run(self, make: Any, scene: Callable[[Api], Coroutine[Any, Any, Any]]) -> Any:
        async def play() -> Any:
            async with make.served([web.route("*", "/{path:.*}", self.handle)]) as api:
                return await scene(api)

        return asyncio.run(play())

    def rights(self) -> set[tuple[str, str, str]]:
        """(group, resource, verb) of every request."""
        verbs = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}
        found = set()
        for method, path, query, body in self.requests:
            match = RESOURCE.fullmatch(path)
            assert match, path
            resource = match["resource"] + (f"/{match['sub']}" if match["sub"] else "")
            verb = verbs.get(method) or ("watch" if "watch" in query else "get" if match["name"] else "list")
            found.add((match["group"] or "", resource, verb))
            if method == "PATCH" and body.get("kind") in ("LatencyReport", "PrometheusRule", "Report"):
                found.add((match["group"] or "", resource, "create"))  # apply makes what is not there
        return found


def listed(rules: list[dict[str, list[str]]]) -> set[tuple[str, str, str]]:
    return {(g, r, v) for rule in rules for g in rule["apiGroups"] for r in rule["resources"] for v in rule["verbs"]}


async def probes(api: Api) -> list[dict[str, Any]]:
    return [one async for one in Cluster(api).probes()]


def test_calls_need_exactly_the_listed_rights(make: Any) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{election.NAME}"
    recorder = Recorder({lease: {"metadata": {"name": election.NAME}}})
    about = {"namespace": "shop", "name": "checkout", "uid": "u"}

    async def scene(api: Api) -> None:
        cluster = Cluster(api)
        await probes(api)
        await cluster.label_node("n1", "u", measure=True)
        await cluster.labelled_nodes()
        await cluster.write_status("shop", "checkout", "u", {})
        await cluster.write_report("shop", {"kind": "LatencyReport"})
        await cluster.post_event(about, "Normal", "Measuring", "fine")
        await cluster.review_token("t", "audience")
        await cluster.may_read_metrics(Reviewed("u"))
        await Claim("ops", "me").attempt(api)
        informers = asyncio.create_task(Informers(api, ClusterState(), lambda: None).run(Loops()))
        await make.until(lambda: sum("watch" in query for _, _, query, _ in recorder.requests) == 5)
        informers.cancel()
        await asyncio.gather(informers, return_exceptions=True)

    recorder.run(make, scene)
    of_kopf = {("latencyprobe.dev", "latencyprobes", verb) for verb in ("list", "watch")}
    assert recorder.rights() | of_kopf == listed(RIGHTS["clusterRules"]) | listed(RIGHTS["namespaceRules"])


def test_rules_need_exactly_the_listed_rights_and_no_more_of_an_object_than_its_metadata_is_read(make: Any) -> None:
    path = "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules/latencyprobe-checkout"
    recorder = Recorder({path: {"metadata": {"name": "latencyprobe-checkout", "resourceVersion": "7"}}})
    rule = {"kind": "PrometheusRule", "metadata": {"namespace": "shop", "name": "latencyprobe-checkout", "uid": "u"}}

    async def scene(api: Api) -> None:
        cluster = Cluster(api)
        assert await cluster.rules() == []
        assert (await cluster.rule("shop", "latencyprobe-checkout") or {})["resourceVersion"] == "7"
        assert await cluster.write_rule(rule) == "7"
        await cluster.delete_rule("shop", "latencyprobe-checkout", "u", "7")

    recorder.run(make, scene)
    assert recorder.rights() == listed(RIGHTS["ruleClusterRules"])
    assert ["as=PartialObjectMetadata" in accepted for accepted in recorder.accepted] == [True, True, True, False]
    (_, _, query, _), _, (_, _, applied, body), (_, _, _, options) = recorder.requests
    assert query["labelSelector"] == "app.kubernetes.io/managed-by=latencyprobe-operator"
    assert (applied, body) == ({"fieldManager": "latencyprobe-operator", "force": "true"}, rule)
    assert options["preconditions"] == {"uid": "u", "resourceVersion": "7"}


def test_reports_of_openreports_need_exactly_the_listed_rights(make: Any) -> None:
    recorder = Recorder()

    async def scene(api: Api) -> None:
        await Cluster(api).open_report("shop", "latencyprobe")
        await Cluster(api).write_open_report("shop", "latencyprobe", {"kind": "Report"})

    recorder.run(make, scene)
    assert recorder.rights() == listed(RIGHTS["openReportClusterRules"])


@pytest.mark.parametrize(("status", "told"), [(404, False), (409, False), (403, True)])
def test_rule_that_is_gone_or_changed_is_not_deleted_and_no_error(make: Any, status: int, told: bool) -> None:
    path = "/apis/monitoring.coreos.com/v1/namespaces/shop/prometheusrules/latencyprobe-checkout"
    recorder = Recorder({path: lambda: web.json_response({"message": "no"}, status=status)})
    with pytest.raises(ApiError) if told else nullcontext():
        recorder.run(make, lambda api: Cluster(api).delete_rule("shop", "latencyprobe-checkout", "u", "7"))


def test_clean_up_needs_exactly_the_listed_rights(make: Any) -> None:
    lease = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{election.NAME}"
    none = lambda: web.json_response({"message": "none"}, status=404)  # noqa: E731 - one line
    nodes = lambda: labelled() if len(recorder.requests) < 5 else web.json_response({"metadata": {}})  # noqa: E731
    labelled = lambda: web.json_response({"metadata": {}, "items": [{"metadata": {"name": "n1", "uid": "u"}}]})  # noqa: E731
    crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/latencyprobes.latencyprobe.dev"
    going = {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    stays = iter([going, going])  # when it is looked for, and when it is nudged
    recorder = Recorder(
        {lease: none, "/api/v1/nodes": nodes, crd: lambda: web.json_response({"metadata": next(stays, {})})}
    )
    namespaces = Namespaces.from_environment({"LATENCYPROBE_NAMESPACE": "ops"})
    clock = count(0, 5)

    recorder.run(make, lambda api: cleanup.sweep(Cluster(api), namespaces, clock=lambda: next(clock)))
    assert recorder.rights() == listed(RIGHTS["cleanupClusterRules"]) | listed(RIGHTS["cleanupNamespaceRules"])


def test_rights_have_no_wildcards_secrets_or_workloads() -> None:
    rights = set[tuple[str, str, str]]().union(*map(listed, RIGHTS.values()))
    assert not any("*" in part for right in rights for part in right)
    assert {group for group, _, _ in rights}.isdisjoint({"apps", "batch", "rbac.authorization.k8s.io"})
    assert {resource for _, resource, _ in rights}.isdisjoint({"secrets", "pods/exec", "configmaps", "serviceaccounts"})


def test_label_is_applied_with_our_field_manager_and_taken_off_alone(make: Any) -> None:
    recorder = Recorder()

    async def scene(api: Api) -> None:
        await Cluster(api).label_node("n1", "u1", measure=True)
        await Cluster(api).label_node("n1", "u1", measure=False)

    recorder.run(make, scene)
    (_, path, query, given), (_, _, _, taken) = recorder.requests
    assert (path, query) == ("/api/v1/nodes/n1", {"fieldManager": "latencyprobe-operator", "force": "true"})
    assert given["metadata"] == {"name": "n1", "uid": "u1", "labels": {"latencyprobe.dev/measure": "true"}}
    assert taken == {"metadata": {"uid": "u1", "labels": {"latencyprobe.dev/measure": None}}}


@pytest.mark.parametrize(("status", "why"), [(404, "not found"), (409, "gone"), (422, "metadata.uid: Invalid value")])
def test_object_that_is_gone_meanwhile_is_no_error(make: Any, status: int, why: str) -> None:
    gone = lambda: web.json_response({"message": why}, status=status)  # noqa: E731 - one line
    probe = "/apis/latencyprobe.dev/v1alpha1/namespaces/shop/latencyprobes/checkout/status"
    recorder = Recorder({"/api/v1/nodes/n1": gone, probe: gone})

    async def scene(api: Api) -> None:
        await Cluster(api).label_node("n1", "u1", measure=True)
        await Cluster(api).label_node("n1", "u1", measure=False)
        await Cluster(api).write_status("shop", "checkout", "u1", {})

    recorder.run(make, scene)


def test_refusal_of_the_api_server_names_what_was_asked_and_why(make: Any) -> None:
    refused = lambda: web.json_response({"message": 'nodes "n1" is forbidden'}, status=403)  # noqa: E731 - one line
    recorder = Recorder({"/api/v1/nodes/n1": refused})
    with pytest.raises(ApiError, match=r'PATCH /api/v1/nodes/n1: 403 nodes "n1" is forbidden') as error:
        recorder.run(make, lambda api: Cluster(api).label_node("n1", "u1", measure=True))
    assert error.value.status == 403


def test_server_that_is_away_is_a_cluster_error(make: Any) -> None:
    def reset() -> web.Response:
        raise ConnectionResetError

    recorder = Recorder({"/api/v1/nodes": reset})
    with pytest.raises(ClusterError):
        recorder.run(make, lambda api: Cluster(api).labelled_nodes())


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ({"authenticated": True, "audiences": ["a"], "user": {"username": "u", "uid": "x"}}, Reviewed("u")),
        ({"authenticated": True, "audiences": ["other"], "user": {"username": "u"}}, None),
        ({"authenticated": True, "user": {"username": "u"}}, None),
        ({"authenticated": False, "error": "expired"}, None),
        ({}, None),
    ],
)
def test_token_counts_only_for_its_audience(make: Any, status: dict[str, Any], expected: Reviewed | None) -> None:
    recorder = Recorder({"/apis/authentication.k8s.io/v1/tokenreviews": {"status": status}})
    assert recorder.run(make, lambda api: Cluster(api).review_token("t", "a")) == expected


def test_lists_are_read_to_their_last_page(make: Any) -> None:
    def page() -> web.Response:
        first = len(recorder.requests) == 1
        names = ["n1"] if first else ["n2"]
        items = [{"metadata": {"name": n, "uid": f"u-{n}"}} for n in names]
        return web.json_response({"metadata": {"continue": "more" if first else ""}, "items": items})

    recorder = Recorder({"/api/v1/nodes": page})
    found = recorder.run(make, lambda api: Cluster(api).labelled_nodes())
    assert found == [("n1", "u-n1"), ("n2", "u-n2")]


def test_latencyprobes_are_told_of_before_the_next_page_is_asked_for(make: Any) -> None:
    path = "/apis/latencyprobe.dev/v1alpha1/latencyprobes"

    def page() -> web.Response:
        more = "more" if len(recorder.requests) == 1 else ""
        return web.json_response({"metadata": {"continue": more}, "items": [{"n": len(recorder.requests)}] * 2})

    async def scene(api: Api) -> list[tuple[int, int]]:
        return [(one["n"], len(recorder.requests)) async for one in Cluster(api).probes()]

    recorder = Recorder({path: page})
    assert recorder.run(make, scene) == [(1, 1), (1, 1), (2, 2), (2, 2)]


def test_without_their_crd_there_are_no_latencyprobes(make: Any, caplog: pytest.LogCaptureFixture) -> None:
    gone = Recorder({"/apis/latencyprobe.dev/v1alpha1/latencyprobes": lambda: web.json_response({}, status=404)})
    away = Recorder({"/apis/latencyprobe.dev/v1alpha1/latencyprobes": lambda: web.json_response({}, status=503)})
    assert gone.run(make, probes) == []
    assert "CRD" in caplog.text
    with pytest.raises(ApiError):
        away.run(make, probes)
