"""Real software in pods: a Redis with a replica, a MariaDB, a websocket service, and a pod whose clients use them."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bench.cluster import PATIENCE_S, Cluster, wait_for

IMAGE = "bench.local/servers:1"
PORTS = {"redis": 6379, "mariadb": 3306, "websocket": 8765}  # by the label `app`
PROGRAMS = Path(__file__).with_name("software")
FOLDER = "/software"
REDIS = f"redis-server --port {PORTS['redis']} --bind 0.0.0.0 --protected-mode no --save '' --dir /tmp"
COMMANDS = {
    "redis-primary": f"{REDIS} --enable-debug-command yes --repl-diskless-sync-delay 0 --repl-ping-replica-period 1",
    "redis-replica": f"{REDIS} --replicaof redis-primary {PORTS['redis']}",
    "mariadb": (
        f"mariadbd --no-defaults --user=root --datadir=/data --socket=/tmp/socket --port={PORTS['mariadb']} "
        "--skip-grant-tables --skip-networking=0 --skip-log-bin --innodb-use-native-aio=0"
    ),
    "websocket": f"python3 {FOLDER}/websocket_server.py {PORTS['websocket']}",
}


def running(name: str, node: str, labels: Mapping[str, str], command: list[str], **more: Any) -> dict[str, Any]:
    """A pod that runs a command in the image `servers`, with the programs below FOLDER. `more`: of its container."""
    container = {
        "name": labels["app"],
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "volumeMounts": [{"name": "software", "mountPath": FOLDER}],
        **more,
    }
    spec = {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 2,
        "enableServiceLinks": False,
        "containers": [container],
        "volumes": [{"name": "software", "configMap": {"name": "software"}}],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": dict(labels)}, "spec": spec}


def pod(name: str, app: str, node: str) -> dict[str, Any]:
    """A pod labelled `app: APP` and `pod: NAME` that runs its command of COMMANDS."""
    more: dict[str, Any] = {}
    if app == "mariadb":  # it would greet who only connects
        more["readinessProbe"] = {"exec": {"command": ["test", "-S", "/tmp/socket"]}, "periodSeconds": 1}
    elif app in PORTS:
        more["readinessProbe"] = {"tcpSocket": {"port": PORTS[app]}, "periodSeconds": 1}
    command = ["sh", "-c", f"exec {COMMANDS.get(name, 'sleep infinity')}"]
    return running(name, node, {"app": app, "pod": name}, command, **more)


def service(name: str, app: str) -> dict[str, Any]:
    """A Service of that pod's name."""
    spec = {"selector": {"pod": name}, "ports": [{"port": PORTS[app]}]}
    return {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}


def programs() -> dict[str, Any]:
    """The ConfigMap `software`: what pods run from FOLDER."""
    files = {path.name: path.read_text() for path in PROGRAMS.glob("*.py")}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "software"}, "data": files}


@dataclass(frozen=True)
class Software:
    """The servers and their clients in one namespace."""

    cluster: Cluster
    namespace: str

    def start(self) -> None:
        """Start all servers and a pod `caller` for the clients, and wait until they listen and the replica follows."""
        pods = [
            pod("redis-primary", "redis", "n2"),
            pod("redis-replica", "redis", "n1"),
            pod("mariadb", "mariadb", "n2"),
            pod("websocket", "websocket", "n2"),
            pod("caller", "caller", "n1"),
        ]
        labels = [one["metadata"]["labels"] for one in pods]
        services = [service(one["pod"], one["app"]) for one in labels if one["app"] in PORTS]
        self.cluster.apply([programs(), *services, *pods], self.namespace)
        ready = ("wait", "-n", self.namespace, "--for=condition=Ready", f"--timeout={PATIENCE_S}s", "pod", "--all")
        self.cluster.kubectl(*ready)
        wait_for(self._replicates, "the replica follows its primary")

    def use(self, client: str, *words: object) -> dict[str, Any]:
        """Run a client in the pod `caller`; its own log at the end (software/calls.py)."""
        command = ["python3", f"{FOLDER}/{client}.py", *map(str, words)]
        printed = self.cluster.exec("caller", *command, namespace=self.namespace)
        log: dict[str, Any] = json.loads(printed.splitlines()[-1])
        return log

    def _replicates(self) -> bool:
        told = self.cluster.exec("redis-replica", "redis-cli", "INFO", "replication", namespace=self.namespace)
        return "master_link_status:up" in told
