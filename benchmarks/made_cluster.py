"""A made-up cluster of a size, as an API server tells of it: nodes, namespaces, pods, Services, EndpointSlices.

One LatencyProbe in ten pods of each namespace, which all others of the namespace call; some of Cluster scope besides.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from latencyprobe.api import API_VERSION
from latencyprobe_operator.cluster import decoding

CLUSTER_SCOPE = 10  # LatencyProbes
TARGETS = 10  # pods of each namespace that its LatencyProbe is about

Document = dict[str, Any]


class Size(NamedTuple):
    """`probes`: of scope Namespace, one in each."""

    nodes: int
    pods: int
    probes: int


class Cluster:
    """`put` takes each object that comes or changes, by kind; `drop` each that goes."""

    def __init__(self, size: Size, put: Callable[[str, Document], None], drop: Callable[[str, Document], None]) -> None:
        self.size = size
        self._put = put
        self._drop = drop
        self._versions: dict[int, int] = {}  # of pods that were replaced
        for i in range(size.nodes):
            self.add_node(i)
        for i in range(size.probes):
            labels = {decoding.CLUSTER_SCOPE_LABEL: "allowed"}
            self._put("namespaces", {"metadata": {"name": f"team-{i}", "uid": f"team-{i}", "labels": labels}})
        for i in range(size.pods):
            self._put("pods", self.pod(i))
        for i in range(size.probes):
            metadata = {"namespace": f"team-{i}", "name": "cart", "uid": f"service-{i}"}
            spec = {"clusterIPs": [f"10.96.{i >> 8}.{i & 255}"], "ports": [{"name": "http", "port": 80}]}
            self._put("services", {"metadata": metadata, "spec": spec})
            self._put_slice(i)

    def add_node(self, i: int) -> None:
        """Add node number `i`."""
        addresses = [{"type": "InternalIP", "address": f"192.168.{i >> 8}.{i & 255}"}]
        self._put("nodes", {"metadata": {"name": f"node-{i}", "uid": f"node-{i}"}, "status": {"addresses": addresses}})

    def replace(self, i: int) -> str:
        """Replace pod number `i` by another one on its node, with another address; returns the new one's uid."""
        self._drop("pods", self.pod(i))
        self._versions[i] = self._versions.get(i, 0) + 1
        self._put("pods", new := self.pod(i))
        if i < self.size.probes * TARGETS:
            self._put_slice(i % self.size.probes)
        uid: str = new["metadata"]["uid"]
        return uid

    def target(self, of: int) -> int:
        """Return the number of a pod that a LatencyProbe is about."""
        return of

    def other(self, of: int) -> int:
        """Return the number of a pod that only calls."""
        return self.size.probes * TARGETS + of

    def pod(self, i: int) -> Document:
        """Return pod number `i` as it is now."""
        version = self._versions.get(i, 0)
        namespace, rank = f"team-{i % self.size.probes}", i // self.size.probes
        app = "cart" if rank < TARGETS else f"web-{rank % 10}"
        labels = {"app": app, "pod-template-hash": "5d8c7b9f4", "team": namespace, "version": "v1.2.3"}
        owner = {"kind": "ReplicaSet", "name": f"{app}-5d8c7b9f4", "controller": True}
        metadata = {
            "name": f"{app}-5d8c7b9f4-{i:05x}{version}",
            "namespace": namespace,
            "uid": f"{i:08x}-{version:04x}-4000-8000-{i:012x}",
            "labels": labels,
            "ownerReferences": [owner],
        }
        ports = [{"name": "http", "containerPort": 8080}]
        main = {"name": "main", "image": f"registry.example/{namespace}/{app}:1.2.3", "ports": ports}
        running = {"name": "main", "containerID": f"containerd://{i:032x}{version:032x}", "state": {"running": {}}}
        address = f"10.{(100 + version % 100 if version else 0) + (i >> 16)}.{i >> 8 & 255}.{i & 255}"
        return {
            "metadata": metadata,
            "spec": {"nodeName": f"node-{(i * 2_654_435_761 >> 7) % self.size.nodes}", "containers": [main]},
            "status": {"phase": "Running", "podIPs": [{"ip": address}], "containerStatuses": [running]},
        }

    def _put_slice(self, of: int) -> None:
        last = min(self.size.probes * TARGETS, self.size.pods)
        pods = [self.pod(i) for i in range(of, last, self.size.probes)]
        endpoints = [
            {
                "addresses": [ip["ip"] for ip in pod["status"]["podIPs"]],
                "targetRef": {"kind": "Pod", "uid": pod["metadata"]["uid"]},
            }
            for pod in pods
        ]
        labels = {decoding.SERVICE_NAME_LABEL: "cart"}
        metadata = {"namespace": f"team-{of}", "name": "cart-abc", "uid": f"slice-{of}", "labels": labels}
        port = {"name": "http", "port": 8080}
        self._put("endpointslices", {"metadata": metadata, "endpoints": endpoints, "ports": [port]})


def probes(size: Size, of_cluster_scope: int) -> list[Document]:
    """Return one LatencyProbe of each namespace, and some of Cluster scope beside the first ones."""
    found = [_probe(f"team-{i}", "checkout", "Namespace") for i in range(size.probes)]
    return found + [_probe(f"team-{i}", "everybody", "Cluster") for i in range(min(of_cluster_scope, size.probes))]


def _probe(namespace: str, name: str, scope: str) -> Document:
    objective = {"target": "cart", "threshold": "25ms", "goal": "99"}
    return {
        "apiVersion": API_VERSION,
        "kind": "LatencyProbe",
        "metadata": {"name": name, "namespace": namespace, "uid": f"{namespace}-{name}", "generation": 1},
        "spec": {
            "targets": [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"]}],
            "clients": {"scope": scope},
            "objectives": [{**objective, "name": "fast"}, {**objective, "name": "calls", "perspective": "Client"}],
        },
    }
