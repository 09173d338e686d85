"""Single calls to the API server: besides lists, watches and the Lease, the operator does nothing else there.

Objects are written by server-side apply with the field manager `latencyprobe-operator`, so that only our fields ever
change; a label is taken off by a merge patch. Raises ClusterError. The rights that these calls and the informer need
are `tests/data/operator_rbac.yaml`, which the chart repeats.
"""

import asyncio
import datetime
import logging
import uuid
from collections.abc import AsyncIterator, Mapping
from typing import Any

import msgspec

from latencyprobe.api import API_VERSION, GROUP
from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import APPLY_PATCH, JSON, MERGE_PATCH, METADATA, METADATA_OF_ALL, Api, ApiError
from latencyprobe_operator.cluster.decoding import MEASURE_LABEL
from latencyprobe_operator.cluster.nesting import decoded
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.owners import MANAGED_BY
from latencyprobe_operator.cluster.pages import pages

log = logging.getLogger(__name__)

FIELD_MANAGER = "latencyprobe-operator"
NUDGED = f"{GROUP}/nudged"
_OURS = f"/apis/{API_VERSION}"
_MONITORING, _OPEN_REPORTS = "/apis/monitoring.coreos.com/v1", "/apis/openreports.io/v1alpha1"
_REVIEW_S = 5.0  # agents wait for 10 s


class Reviewed(msgspec.Struct, frozen=True):
    """A token that the API server vouches for: its user's name and the token's claims."""

    username: str
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class Cluster:
    """The calls. Stateless."""

    def __init__(self, api: Api) -> None:
        self._api = api

    async def probes(self) -> AsyncIterator[dict[str, Any]]:
        """Yield every LatencyProbe as the API server stores it, one at a time; none where their CRD was deleted, and
        they with it."""
        try:
            async for item in self._list(f"{_OURS}/latencyprobes"):
                yield item
        except ApiError as error:
            if error.status != 404:
                raise
            log.warning("there is no kind LatencyProbe, so nothing is measured: is its CRD to be installed again?")

    async def label_node(self, name: str, uid: str, measure: bool) -> None:
        """Set our label on a node, or take it off, whoever else has set it: an apply without it would leave it to them.
        A node that is gone meanwhile is no error: its uid no longer fits."""
        path, metadata = f"/api/v1/nodes/{name}", {"uid": uid, "labels": {MEASURE_LABEL: "true" if measure else None}}
        try:
            if measure:
                await self._apply(path, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, **metadata}})
            else:
                await self._api.call("PATCH", path, body={"metadata": metadata}, content_type=MERGE_PATCH)
        except ApiError as error:
            if not _gone(error):
                raise

    async def labelled_nodes(self) -> list[tuple[str, str]]:
        """Return name and uid of every node with our label."""
        found = [item async for item in self._list("/api/v1/nodes", labelSelector=MEASURE_LABEL)]
        return [(item["metadata"]["name"], item["metadata"]["uid"]) for item in found]

    async def names(self, path: str, label_selector: str) -> list[str]:
        """Return the names of all objects of a kind, for example of the pods of a namespace."""
        return [item["metadata"]["name"] async for item in self._list(path, labelSelector=label_selector)]

    async def metadata(self, path: str) -> dict[str, Any] | None:
        """Return an object's metadata, or None when there is no such object."""
        try:
            found: dict[str, Any] = decoded(await self._api.call("GET", path, accept=METADATA))["metadata"]
        except ApiError as error:
            if error.status != 404:
                raise
            return None
        return found

    async def nudge(self, path: str) -> None:
        """Change an annotation of an object, so that its controller looks at it again. One that is gone is no error."""
        body = {"metadata": {"annotations": {NUDGED: str(uuid.uuid4())}}}
        try:
            await self._api.call("PATCH", path, body=body, content_type=MERGE_PATCH)
        except ApiError as error:
            if not _gone(error):
                raise

    async def write_status(self, namespace: str, name: str, uid: str, status: Mapping[str, object]) -> None:
        """Replace a LatencyProbe's status. One that is gone is no error."""
        body = {
            "apiVersion": API_VERSION,
            "kind": "LatencyProbe",
            "metadata": {"name": name, "namespace": namespace, "uid": uid},
            "status": status,
        }
        path = f"{_OURS}/namespaces/{namespace}/latencyprobes/{name}"
        try:
            await self._apply(f"{path}/status", body)
        except ApiError as error:
            if not _gone(error):
                raise

    async def write_report(self, namespace: str, report: Mapping[str, object]) -> None:
        """Write a namespace's LatencyReport `latency`, made or changed."""
        await self._apply(f"{_OURS}/namespaces/{namespace}/latencyreports/latency", report)

    async def open_report(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the metadata of a Report of openreports.io, or None when there is no such object, or no such kind."""
        return await self.metadata(f"{_OPEN_REPORTS}/namespaces/{namespace}/reports/{name}")

    async def write_open_report(self, namespace: str, name: str, report: Mapping[str, object]) -> None:
        """Write a Report of openreports.io, made or changed. Raises ApiError 404 while there is no such kind."""
        await self._apply(f"{_OPEN_REPORTS}/namespaces/{namespace}/reports/{name}", report)

    async def rules(self) -> list[dict[str, Any]]:
        """Return the metadata of every PrometheusRule with our label. Raises ApiError 404 without such a kind."""
        label = ",".join("=".join(one) for one in MANAGED_BY.items())
        found = self._list(f"{_MONITORING}/prometheusrules", METADATA_OF_ALL, labelSelector=label)
        return [item["metadata"] async for item in found]

    async def rule(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return a PrometheusRule's metadata, or None when there is no such object."""
        return await self.metadata(_rule(namespace, name))

    async def write_rule(self, rule: Mapping[str, Any]) -> str:
        """Write a PrometheusRule, made or changed; returns its resource version. With a uid in its metadata it is
        refused unless that one is still there: 409 if there is none of the name, 422 if there is another."""
        path = _rule(rule["metadata"]["namespace"], rule["metadata"]["name"])
        version: str = decoded(await self._apply(path, rule, METADATA))["metadata"]["resourceVersion"]
        return version

    async def delete_rule(self, namespace: str, name: str, uid: str, version: str) -> None:
        """Delete a PrometheusRule. One that is gone is no error, and neither is one that was changed since `version`:
        it may be somebody else's now."""
        preconditions = {"uid": uid, "resourceVersion": version}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": preconditions}
        try:
            await self._api.call("DELETE", _rule(namespace, name), body=body)
        except ApiError as error:
            if not _gone(error):
                raise

    async def post_event(self, probe: Mapping[str, str], kind: str, reason: str, note: str) -> None:
        """Post an event about a LatencyProbe. `probe`: namespace, name, uid; `kind`: Normal or Warning."""
        body = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{probe['name']}.{uuid.uuid4().hex[:16]}", "namespace": probe["namespace"]},
            "eventTime": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
            "reportingController": "latencyprobe.dev/operator",
            "reportingInstance": FIELD_MANAGER,
            "action": "Reconcile",
            "type": kind,
            "reason": reason,
            "note": note[:1024],  # the API's own limit
            "regarding": {"apiVersion": API_VERSION, "kind": "LatencyProbe", **probe},
        }
        await self._api.call("POST", f"/apis/events.k8s.io/v1/namespaces/{probe['namespace']}/events", body=body)

    async def review_token(self, token: str, audience: str = "") -> Reviewed | None:
        """Ask whose token this is, for an audience (empty: the API server's own); None when it is not valid."""
        spec: dict[str, object] = {"token": token, **({"audiences": [audience]} if audience else {})}
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": spec}
        path = "/apis/authentication.k8s.io/v1/tokenreviews"
        answer = await self._api.call("POST", path, body=body, timeout_s=_REVIEW_S)
        status = msgspec.json.decode(answer).get("status", {})
        if not status.get("authenticated") or (audience and audience not in status.get("audiences", ())):
            return None
        return msgspec.convert(status.get("user", {}), Reviewed)

    async def may_read_metrics(self, user: Reviewed) -> bool:
        """Ask whether a user may `get` the non-resource URL /metrics, as Kubernetes' own components do."""
        spec = {
            "user": user.username,
            "groups": user.groups,
            "extra": user.extra,
            "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        }
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._api.call("POST", path, body=body, timeout_s=_REVIEW_S)
        return bool(msgspec.json.decode(answer).get("status", {}).get("allowed"))

    async def _apply(self, path: str, body: Mapping[str, object], accept: str = JSON) -> bytes:
        query = {"fieldManager": FIELD_MANAGER, "force": "true"}
        return await self._api.call("PATCH", path, query=query, body=body, content_type=APPLY_PATCH, accept=accept)

    async def _list(self, path: str, accept: str = JSON, **query: str) -> AsyncIterator[dict[str, Any]]:
        async for page in pages(self._api, path, {k: v for k, v in query.items() if v}, accept=accept):
            for raw in page.items or ():
                item: dict[str, Any] = decoded(raw)
                yield item
                await asyncio.sleep(0)  # one may have taken 20 ms
            del page


def _gone(error: ApiError) -> bool:
    """Return whether there is no such object any more, or another one has its name: then the uid does not fit, which
    is a conflict or a field that cannot be changed."""
    return error.status in (404, 409) or (error.status == 422 and "metadata.uid" in str(error))


def _rule(namespace: str, name: str) -> str:
    return f"{_MONITORING}/namespaces/{namespace}/prometheusrules/{name}"


class FakeCluster(Cluster):
    """A Cluster for tests: `documents` are its LatencyProbes, `there` its PrometheusRules and `mirrored` its Reports by
    namespace, if it `knows` these kinds; `calls` keeps what is written, `fails` names the writes that fail."""

    def __init__(self, *documents: dict[str, Any]) -> None:
        self.documents = list(documents)
        self.there: dict[Key, dict[str, Any]] = {}
        self.mirrored: dict[str, dict[str, Any]] = {}
        self.knows = True
        self.calls: list[tuple[Any, ...]] = []
        self.fails: set[str] = set()

    async def probes(self) -> AsyncIterator[dict[str, Any]]:
        """Yield `documents`."""
        for document in self.documents:
            yield document

    async def label_node(self, name: str, uid: str, measure: bool) -> None:
        """Keep the call."""
        self._keep("label_node", name, uid, measure)

    async def write_status(self, namespace: str, name: str, uid: str, status: Mapping[str, object]) -> None:
        """Keep the call."""
        self._keep("write_status", namespace, name, uid, status)

    async def write_report(self, namespace: str, report: Mapping[str, object]) -> None:
        """Keep the call."""
        self._keep("write_report", namespace, report)

    async def post_event(self, probe: Mapping[str, str], kind: str, reason: str, note: str) -> None:
        """Keep the call."""
        self._keep("post_event", probe, kind, reason, note)

    async def open_report(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the metadata of one of `mirrored`."""
        return self.mirrored[namespace]["metadata"] if namespace in self.mirrored else None

    async def write_open_report(self, namespace: str, name: str, report: Mapping[str, Any]) -> None:
        """Keep the call, and the object."""
        self._keep("write_open_report", namespace)
        if not self.knows:
            raise ApiError(404, "the server could not find the requested resource")
        self.mirrored[namespace] = dict(report)

    async def rules(self) -> list[dict[str, Any]]:
        """Return the metadata of those with our label in `there`."""
        if not self.knows:
            raise ApiError(404, "the server could not find the requested resource")
        everything = [rule["metadata"] for rule in self.there.values()]
        return [one for one in everything if one.get("labels", {}).items() >= MANAGED_BY.items()]

    async def rule(self, namespace: str, name: str) -> dict[str, Any] | None:
        """Return the metadata of one in `there`."""
        return self.there[namespace, name]["metadata"] if (namespace, name) in self.there else None

    async def write_rule(self, rule: Mapping[str, Any]) -> str:
        """Keep the call, and the object with a resource version of its own."""
        metadata, version = rule["metadata"], str(len(self.calls) + 1)
        self._keep("write_rule", metadata["namespace"], metadata["name"])
        known = {"uid": f"uid-{version}"} | metadata | {"resourceVersion": version}
        self.there[metadata["namespace"], metadata["name"]] = {**rule, "metadata": known}
        return version

    async def delete_rule(self, namespace: str, name: str, uid: str, version: str) -> None:
        """Keep the call, and forget the object."""
        self._keep("delete_rule", namespace, name)
        del self.there[namespace, name]

    def _keep(self, name: str, *arguments: object) -> None:
        self.calls.append((name, *arguments))
        if name in self.fails:
            raise ClusterError("the API server is away")
