"""Services that are slow for a known reason each (software/slow_server.py), and who asks them (slow_client.py)."""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bench.cluster import PATIENCE_S, Cluster
from tests.e2e.bench.software import FOLDER, programs, running

PORT = 7000
_DISK = "/disk"
_CALLER = "caller"


@dataclass(frozen=True)
class Service:
    """One pod, labelled `app: NAME`, behind a Service of that name. `reason`: as the server is told. `limits`: of its
    container. `disk`: a folder of the node."""

    name: str
    node: str
    reason: tuple[str, ...]
    limits: Mapping[str, str] | None = None
    disk: Path | None = None

    def manifests(self) -> list[dict[str, Any]]:
        """Both."""
        command = ["python3", f"{FOLDER}/slow_server.py", str(PORT), *self.reason]
        probe = {"tcpSocket": {"port": PORT}, "periodSeconds": 1, "timeoutSeconds": 5}
        resources = {"limits": dict(self.limits or {})}
        one = running(self.name, self.node, {"app": self.name}, command, readinessProbe=probe, resources=resources)
        if self.disk:
            one["spec"]["containers"][0]["volumeMounts"].append({"name": "disk", "mountPath": _DISK})
            one["spec"]["volumes"].append({"name": "disk", "hostPath": {"path": str(self.disk)}})
        spec = {"selector": {"app": self.name}, "ports": [{"port": PORT}]}
        return [one, {"apiVersion": "v1", "kind": "Service", "metadata": {"name": self.name}, "spec": spec}]


def on_disk(file: str) -> str:
    """The path of a file of a Service's disk, for its reason."""
    return f"{_DISK}/{file}"


@dataclass(frozen=True)
class Shop:
    """The services of one namespace."""

    cluster: Cluster
    namespace: str

    def open(self, *services: Service, callers_node: str) -> None:
        """Start them and the pod that asks, and wait until they listen."""
        caller = running(_CALLER, callers_node, {"app": _CALLER}, ["sleep", "infinity"])
        manifests = [manifest for service in services for manifest in service.manifests()]
        self.cluster.apply([programs(), caller, *manifests], self.namespace)
        ready = ("wait", "-n", self.namespace, "--for=condition=Ready", f"--timeout={PATIENCE_S}s", "pod", "--all")
        self.cluster.kubectl(*ready)

    def ask(self, times: Mapping[str, int], ways: Mapping[str, str]) -> None:
        """Ask each service so often, all at a time and some in their own way; all have answered when it returns."""
        words = [f"{name}:{PORT}={n}:{ways.get(name, '')}" for name, n in times.items()]
        command = ("python3", f"{FOLDER}/slow_client.py", *words)
        answered = json.loads(self.cluster.exec(_CALLER, *command, namespace=self.namespace).splitlines()[-1])
        assert answered == list(times.values())

    @contextmanager
    def dropping(self, **rules: str) -> Iterator[None]:
        """For the block, what comes to or leaves the pod of a service on n2, from or for other nodes, is dropped by
        `rules`: nftables matches, where `{ip}` is the pod's address."""
        table = f"slow_{self.namespace.replace('-', '_')}"
        self.cluster.in_node("n2", "nft", f"add table ip {table}")
        try:
            self.cluster.in_node(
                "n2", "nft", f"add chain ip {table} forward {{ type filter hook forward priority -10 ; }}"
            )
            for service, match in rules.items():
                (pod,) = self.cluster.pods(self.namespace, f"app={service}")
                rule = match.format(ip=pod["status"]["podIP"])
                self.cluster.in_node("n2", "nft", f"add rule ip {table} forward {rule} drop")
            yield
        finally:
            self.cluster.in_node("n2", "nft", f"delete table ip {table}")
