"""A real etcd and kube-apiserver with the interface of the played one (`api_server.py`): checks that it plays well.

Objects are made up as for the played one; what a real server wants besides, or gives out itself, is changed here: uids,
addresses of Services, agents' tokens. Writes are counted by the server's own metrics.
"""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from benchmarks.api_server import AGENT_ACCOUNT, AGENTS, OPERATOR, Document
from latencyprobe.api import API_VERSION
from latencyprobe_operator.directory.auth import AUDIENCE
from tests.support.api_server import ApiServer, api_server

_KINDS = {
    "namespaces": ("v1", "Namespace"),
    "nodes": ("v1", "Node"),
    "pods": ("v1", "Pod"),
    "services": ("v1", "Service"),
    "serviceaccounts": ("v1", "ServiceAccount"),
    "endpointslices": ("discovery.k8s.io/v1", "EndpointSlice"),
    "latencyprobes": (API_VERSION, "LatencyProbe"),
}
_WRITES = {
    ("nodes", ""): "labels of nodes",
    ("latencyprobes", "status"): "statuses",
    ("latencyreports", ""): "reports",
    ("latencyreports", "status"): "reports",
    ("events", ""): "events",
}


class RealApiServer:
    """`on_ready`: called with the uid of each pod when it is about to be ready."""

    def __init__(self, server: ApiServer) -> None:
        self.on_ready: Callable[[str], None] = lambda _: None
        self._server = server
        self._uids: dict[str, str] = {}  # of pods, by the uid that was made up
        for name in (OPERATOR, AGENTS):
            self.put("namespaces", {"metadata": {"name": name}})
        self.put("serviceaccounts", {"metadata": {"namespace": AGENTS, "name": AGENT_ACCOUNT}})

    def put(self, kind: str, document: Document) -> None:
        """Add or change an object."""
        version, name = _KINDS[kind]
        whole = {"apiVersion": version, "kind": name} | json.loads(json.dumps(document))
        made_up = whole["metadata"].pop("uid", "")
        if kind == "pods":
            self._put_pod(whole, made_up)
            return
        if kind == "services":
            del whole["spec"]["clusterIPs"]  # the server's own choice
        if kind == "endpointslices":
            self._complete(whole)
        status, answer = self._server.call("POST", _path(kind, whole), whole)
        if status == 409:
            status, answer = self._server.call("PUT", f"{_path(kind, whole)}/{whole['metadata']['name']}", whole)
        assert status in (200, 201), answer

    def drop(self, kind: str, document: Document) -> None:
        """Delete an object, at once."""
        path = f"{_path(kind, document)}/{document['metadata']['name']}"
        status, answer = self._server.call("DELETE", path, {"gracePeriodSeconds": 0})
        assert status == 200, answer

    def labelled(self) -> int:
        """Return how many nodes must measure, by their label."""
        _, answer = self._server.call("GET", "/api/v1/nodes?labelSelector=latencyprobe.dev%2Fmeasure")
        return len(answer["items"])

    def token(self, node: str) -> str:
        """Return a token of a node's agent."""
        of_node = {"apiVersion": "v1", "kind": "Node", "name": node}
        spec = {"audiences": [AUDIENCE], "boundObjectRef": of_node, "expirationSeconds": 86_400}
        asked = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
        path = f"/api/v1/namespaces/{AGENTS}/serviceaccounts/{AGENT_ACCOUNT}/token"
        token: str = self._server.create(path, asked)["status"]["token"]
        return token

    @property
    def writes(self) -> Counter[str]:
        """So far, by what is written; those of the cluster itself are none."""
        _, text = self._server.call("GET", "/metrics")
        found: Counter[str] = Counter()
        for family in text_string_to_metric_families(text):
            if family.name == "apiserver_request":
                for sample in family.samples:
                    of = sample.labels
                    if of["verb"] in ("PATCH", "APPLY") or (of["verb"] == "POST" and of["resource"] != "nodes"):
                        found[_WRITES.get((of["resource"], of["subresource"]), "")] += int(sample.value)
        found.pop("", None)
        return found

    async def change(self, work: Callable[[], object]) -> None:
        """Do what puts and drops, while the event loop goes on."""
        await asyncio.to_thread(work)

    @asynccontextmanager
    async def serve(self) -> AsyncIterator[Path]:
        """The kubeconfig of who may do everything."""
        yield self._server.kubeconfig

    def _put_pod(self, whole: Document, made_up: str) -> None:
        status = whole.pop("status")
        for owner in whole["metadata"]["ownerReferences"]:
            owner |= {"apiVersion": "apps/v1", "uid": owner["name"]}
        uid = self._server.create(_path("pods", whole), whole)["metadata"]["uid"]
        self._uids[made_up] = uid
        for one in status["containerStatuses"]:
            one |= {"image": "i", "imageID": "i", "ready": True, "restartCount": 0}
        self.on_ready(uid)
        path = f"{_path('pods', whole)}/{whole['metadata']['name']}/status"
        body = json.dumps({"status": status}).encode()
        code, answer = self._server.answer("PATCH", path, body, content_type="application/strategic-merge-patch+json")
        assert code == 200, answer

    def _complete(self, whole: Document) -> None:
        whole["addressType"] = "IPv4"
        for endpoint in whole["endpoints"]:
            endpoint["targetRef"]["uid"] = self._uids[endpoint["targetRef"]["uid"]]


@contextmanager
def real(folder: Path) -> Iterator[RealApiServer]:
    """Run both. `folder`: for what they write."""
    folder.mkdir()
    with api_server(folder) as server:
        yield RealApiServer(server)


def _path(kind: str, document: dict[str, Any]) -> str:
    version, _ = _KINDS[kind]
    base = f"/api/{version}" if version == "v1" else f"/apis/{version}"
    namespace = document["metadata"].get("namespace")
    return f"{base}/namespaces/{namespace}/{kind}" if namespace else f"{base}/{kind}"
