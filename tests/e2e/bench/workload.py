"""Real traffic between pods: the truth generator (tests/truth) as Deployments behind a Service and as client pods."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tests.e2e.bench.cluster import Cluster, wait_for

IMAGE = "bench.local/workload:1"
PORT, CONTROL_PORT = 9000, 9001


def pod(arguments: list[str], node: str | None, labels: Mapping[str, str], **more: Any) -> dict[str, Any]:
    """A pod template that runs the truth generator with these arguments."""
    container = {"name": "truth", "image": IMAGE, "imagePullPolicy": "Never", "args": arguments, **more}
    spec: dict[str, Any] = {"terminationGracePeriodSeconds": 2, "enableServiceLinks": False, "containers": [container]}
    if node:
        spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return {"metadata": {"labels": dict(labels)}, "spec": spec}


def deployment(name: str, template: dict[str, Any], replicas: int = 1) -> dict[str, Any]:
    """A Deployment of that pod, labelled `app: NAME`."""
    template["metadata"]["labels"]["app"] = name
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": name}}, "template": template}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name}, "spec": spec}


@dataclass(frozen=True)
class Workload:
    """Servers and clients in one namespace. The Service's name is the server's."""

    cluster: Cluster
    namespace: str

    def serve(self, name: str = "server", node: str | None = "n2", replicas: int = 1, *more: str) -> None:
        """Start servers behind a Service and wait until they listen."""
        arguments = ["serve", "--address", f"0.0.0.0:{PORT}", "--control", f"0.0.0.0:{CONTROL_PORT}", *more]
        probe = {"tcpSocket": {"port": CONTROL_PORT}, "periodSeconds": 1}
        service = {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": name},
            "spec": {"selector": {"app": name}, "ports": [{"name": "rpc", "port": PORT}]},
        }
        server = deployment(name, pod(arguments, node, {}, readinessProbe=probe), replicas)
        self.cluster.apply([service, server], self.namespace)
        self.cluster.wait_for_rollout(f"deployment/{name}", self.namespace)
        address = f"/dev/tcp/{self.cluster.service_ip(name, self.namespace)}/{PORT}"
        dial = ("timeout", "5", "bash", "-c", f": <{address} && echo reached")
        for one in self.cluster.nodes:  # their kube-proxies know of it
            wait_for(lambda n=one: self.cluster.in_node(n, *dial, check=False), f"{one} reaches {name}")

    def load(self, name: str = "client", server: str = "server", node: str | None = "n1", rate: int = 50) -> None:
        """Start an endless client of a server, with `rate` RPCs per second, as a Deployment."""
        arguments = [
            "load",
            "--address",
            f"{server}:{PORT}",
            "--rate",
            str(rate),
            "--threads",
            "2",
            "--max-size",
            "8192",
        ]
        self.cluster.apply(deployment(name, pod(arguments, node, {})), self.namespace)
        self.cluster.wait_for_rollout(f"deployment/{name}", self.namespace)

    def call(
        self, total: int, *more: str, name: str = "client", server: str = "server", node: str = "n1"
    ) -> dict[str, Any]:
        """Run one client pod for `total` RPCs; its own count of them at the end (truth.c: print_client)."""
        arguments = ["client", "--address", f"{server}:{PORT}", "--total", str(total), *more]
        template = pod(arguments, node, {"app": name})
        template["metadata"]["name"] = name
        template["spec"]["restartPolicy"] = "Never"
        self.cluster.apply({"apiVersion": "v1", "kind": "Pod", **template}, self.namespace)
        wait_for(lambda: self._phase(name) in {"Succeeded", "Failed"}, f"client {name} ends")
        log = self.cluster.logs(name, self.namespace)
        assert self._phase(name) == "Succeeded", f"client {name} failed: {log}"
        count: dict[str, Any] = json.loads(log.splitlines()[-1])
        return count

    def call_from(self, caller: str, total: int, *more: str, server: str = "server") -> None:
        """Make `total` RPCs from a pod of a Deployment that runs, and is measured, already; all are answered."""
        command = ("truth", "client", "--address", f"{server}:{PORT}", "--total", str(total), *more)
        answer = self.cluster.exec(f"deployment/{caller}", *command, namespace=self.namespace)
        sent = json.loads(answer.splitlines()[-1])
        assert (sent["answered"], sent["errors"]) == (total, 0), sent

    def delay(self, milliseconds: int, server: str = "server") -> None:
        """From now on every server pod sleeps so long before each response; 0 ends it."""
        for one in self.cluster.pods(self.namespace, f"app={server}"):
            control = f"127.0.0.1:{CONTROL_PORT}"
            self.cluster.exec(
                one["metadata"]["name"], "truth", "delay", control, str(milliseconds), namespace=self.namespace
            )

    def _phase(self, name: str) -> str:
        found = self.cluster.get("pod", name, self.namespace) or {"status": {}}
        return str(found["status"].get("phase"))
