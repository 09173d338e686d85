"""After uninstalling: what is taken away, what is waited for, and that a release that is installed is left alone."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from latencyprobe.errors import ClusterError, LatencyProbeError
from latencyprobe_operator import cleanup
from latencyprobe_operator.cluster import election
from latencyprobe_operator.cluster.api import MERGE_PATCH, Api
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.decoding import MEASURE_LABEL
from latencyprobe_operator.config import Namespaces
from tests.support.api_server import ApiServer, api_server, run_until_closed

NAMESPACES = Namespaces.from_environment({"LATENCYPROBE_NAMESPACE": "ops"})
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/ops/leases/{election.NAME}"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
AGENTS = "/api/v1/namespaces/ops-agents"
GOING = {"deletionTimestamp": "2026-01-01T00:00:00Z"}


class FakeApiServer:
    """The API server's objects by path; the label of a node goes with its patch. A poll takes 100 s of our clock."""

    def __init__(self, **nodes: str) -> None:
        self.labelled = dict(nodes)
        self.lists: dict[str, list[str]] = {}
        self.objects: dict[str, dict[str, Any]] = {}
        self.away = 0  # so many requests fail
        self.on_patch: Callable[[], None] = lambda: None
        self.unnoticed: set[str] = set()  # objects of which the API server has forgotten that they are to go
        self.polls = 0

    async def handle(self, request: web.Request) -> web.Response:
        path = request.path
        if self.away:
            self.away -= 1
            return web.json_response({"message": "not yet"}, status=403)
        if request.method == "PATCH" and path.startswith(CRDS):
            if path in self.unnoticed:
                del self.objects[path]
            return web.json_response({})
        if request.method == "PATCH":
            self.labelled.pop(path.rpartition("/")[2])
            self.on_patch()
            return web.json_response({})
        if path == "/api/v1/nodes":
            self.polls += 1
            items = [{"metadata": {"name": name, "uid": uid}} for name, uid in self.labelled.items()]
        elif path.endswith(("/pods", "/persistentvolumeclaims")):
            assert request.query["labelSelector"].startswith("app.kubernetes.io/name=latencyprobe,")
            items = [{"metadata": {"name": name}} for name in self.lists.get(path, [])]
        elif path in self.objects:
            return web.json_response({"metadata": self.objects[path]})
        else:
            return web.json_response({"message": "none"}, status=404)
        return web.json_response({"metadata": {}, "items": items})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cleanup, "_POLL_S", 0.01)


@pytest.fixture
def sweep(make: Any) -> Any:
    async def run(fake: FakeApiServer) -> None:
        async with make.served([web.route("*", "/{path:.*}", fake.handle)]) as api:
            await cleanup.sweep(Cluster(api), NAMESPACES, clock=lambda: 100.0 * fake.polls)

    return lambda fake: asyncio.run(run(fake))


def test_labels_of_all_nodes_are_taken_away(sweep: Any) -> None:
    fake = FakeApiServer(n1="u1", n2="u2")

    sweep(fake)

    assert fake.labelled == {}


@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/api/v1/namespaces/ops/pods", "operator pod one"),
        (f"{AGENTS}/pods", "agent pod one"),
        ("/api/v1/namespaces/ops/persistentvolumeclaims", "volume claim one"),
        (AGENTS, "a deletion of ops-agents"),
        (f"{CRDS}/latencyprobes.latencyprobe.dev", "a deletion of latencyprobes.latencyprobe.dev"),
        (f"{CRDS}/latencyreports.latencyprobe.dev", "a deletion of latencyreports.latencyprobe.dev"),
    ],
)
def test_what_does_not_go_is_waited_for_and_named(sweep: Any, path: str, words: str) -> None:
    fake = FakeApiServer()
    fake.lists[path], fake.objects[path] = ["one"], GOING

    with pytest.raises(ClusterError, match=f"after 150 s there is still {words}: a node that does not answer or a fin"):
        sweep(fake)

    assert fake.polls == 2, "at 100 s and 200 s"


def test_crd_that_the_api_server_has_forgotten_to_delete_is_brought_to_its_mind(sweep: Any) -> None:
    fake = FakeApiServer()
    fake.objects = {f"{CRDS}/{name}.latencyprobe.dev": GOING for name in ("latencyprobes", "latencyreports")}
    fake.unnoticed = set(fake.objects)

    sweep(fake)

    assert fake.objects == {}


def test_what_is_kept_is_not_waited_for(sweep: Any) -> None:
    fake = FakeApiServer()
    fake.objects = {AGENTS: {"name": "ops-agents"}, f"{CRDS}/latencyprobes.latencyprobe.dev": {"name": "kept"}}

    sweep(fake)


def test_call_that_fails_is_made_again(sweep: Any) -> None:
    fake = FakeApiServer(n1="u1")
    fake.away = 3  # rights that were granted a moment ago

    sweep(fake)

    assert fake.labelled == {}


def test_nothing_is_touched_while_a_release_is_installed(sweep: Any) -> None:
    fake = FakeApiServer(n1="u1")
    fake.objects[LEASE] = {"name": election.NAME}

    with pytest.raises(LatencyProbeError, match="LatencyProbe is installed in namespace ops"):
        sweep(fake)

    assert fake.labelled == {"n1": "u1"}


def test_clean_up_ends_with_the_first_label_after_a_release_came(sweep: Any) -> None:
    fake = FakeApiServer(n1="u1", n2="u2", n3="u3")
    fake.on_patch = lambda: fake.objects.update({LEASE: {"name": election.NAME}})

    with pytest.raises(LatencyProbeError, match="uninstall it first"):
        sweep(fake)

    assert len(fake.labelled) == 2


def test_lease_that_is_going_is_no_release(sweep: Any) -> None:
    fake = FakeApiServer(n1="u1")
    fake.objects[LEASE] = GOING

    sweep(fake)

    assert fake.labelled == {}


@pytest.mark.cluster
def test_labels_that_somebody_else_has_set_go_too_on_a_real_api_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def labels(server: ApiServer, name: str) -> dict[str, str]:
        found: dict[str, str] = server.call("GET", f"/api/v1/nodes/{name}")[1]["metadata"].get("labels", {})
        return found

    def label(server: ApiServer, name: str, value: str) -> None:
        body = f'{{"metadata": {{"labels": {{"{MEASURE_LABEL}": "{value}", "theirs": "stays"}}}}}}'.encode()
        path = f"/api/v1/nodes/{name}?fieldManager=kubectl-label"
        assert server.answer("PATCH", path, body, MERGE_PATCH)[0] == 200

    async def scene(server: ApiServer) -> None:
        nodes = {f"n{i}": server.create("/api/v1/nodes", {"metadata": {"name": f"n{i}"}}) for i in range(3)}
        for name, value in (("n0", "true"), ("n1", "false")):
            label(server, name, value)
        async with await Api.connect() as api:
            cluster = Cluster(api)
            for name in ("n0", "n2"):
                await cluster.label_node(name, nodes[name]["metadata"]["uid"], measure=True)
            for name in ("n0", "gone"):
                await cluster.label_node(name, "another", measure=False)
                await cluster.label_node(name, "another", measure=True)
            assert labels(server, "n0")[MEASURE_LABEL] == "true", "another node has the name now"
            await cleanup.sweep(cluster, NAMESPACES, clock=lambda: next(polled))
        assert [labels(server, name) for name in nodes] == [{"theirs": "stays"}, {"theirs": "stays"}, {}]

    polled = count(0, 60)
    with api_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        run_until_closed(scene(server))
