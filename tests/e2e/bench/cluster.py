"""The real cluster as a test sees it: kubectl, namespaces of one's own, and waiting for conditions.

`Cluster` is the only one that runs kubectl. Who brings the cluster up and down is the shell script `bench`.
"""

import json
import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml

from tests.support.waiting import wait_until

BENCH = Path(__file__).with_name("bench")
STATE = Path("/run/latencyprobe-bench")
HOST = "10.211.0.1"  # this machine, as the nodes and pods see it
POLL_S = 0.2
PATIENCE_S = 180  # with what normally takes seconds, on a machine of CI that does much else
T = TypeVar("T")


class RefusedError(Exception):
    """kubectl failed; the text is what it wrote to the user."""


def wait_for(
    condition: Callable[[], T],
    what: str,
    deadline_s: float = PATIENCE_S,
    *,
    seen: Callable[[], object] | None = None,
) -> T:
    """The first truthy value of `condition`, which kubectl may refuse at first; AssertionError after the deadline."""
    return wait_until(condition, what, deadline_s, seen=seen, unready=RefusedError, poll_s=POLL_S)


@dataclass(frozen=True)
class Cluster:
    """Two nodes, `n1` (with the control plane) and `n2`; pods and Services can be dialled from this machine."""

    kubeconfig: Path = STATE / "kubeconfig"
    nodes: tuple[str, ...] = ("n1", "n2")

    def kubectl(self, *words: str, stdin: str | None = None, timeout_s: float = 300) -> str:
        """What kubectl prints; RefusedError with its complaint when it fails."""
        command = [str(STATE / "bin/kubectl"), "--kubeconfig", str(self.kubeconfig), *words]
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise RefusedError(f"kubectl {' '.join(words)}: {done.stderr.strip()}{done.stdout.strip()[-2000:]}")
        return done.stdout

    def apply(self, manifest: str | dict[str, Any] | list[dict[str, Any]], namespace: str = "default") -> str:
        """`kubectl apply` of YAML text, one document or several; RefusedError when the API server says no."""
        documents = manifest if isinstance(manifest, list) else [manifest]
        text = manifest if isinstance(manifest, str) else yaml.safe_dump_all(documents)
        return self.kubectl("apply", "-n", namespace, "-f", "-", stdin=text)

    def get(self, kind: str, name: str, namespace: str = "default") -> dict[str, Any] | None:
        """The object, or None when it does not exist."""
        found = self.kubectl("get", kind, name, "-n", namespace, "-o", "json", "--ignore-not-found")
        return json.loads(found) if found else None

    def items(self, kind: str, namespace: str | None = None, selector: str = "") -> list[dict[str, Any]]:
        """All objects of a kind, of one namespace or of all."""
        scope = ["-n", namespace] if namespace else ["-A"]
        found: list[dict[str, Any]] = json.loads(self.kubectl("get", kind, *scope, "-l", selector, "-o", "json"))[
            "items"
        ]
        return found

    def delete(self, kind: str, name: str, namespace: str = "default", *, wait: bool = True) -> None:
        """Delete it if it is there; with `wait`, return when it is gone."""
        self.kubectl("delete", kind, name, "-n", namespace, "--ignore-not-found", f"--wait={str(wait).lower()}")

    def exec(self, pod: str, *command: str, namespace: str = "default", container: str = "") -> str:
        """What a command prints that runs inside a pod (`pod` may be `deployment/NAME`)."""
        choice = ["-c", container] if container else []
        return self.kubectl("exec", "-n", namespace, pod, *choice, "--", *command)

    def logs(self, pod: str, namespace: str = "default", *more: str) -> str:
        """The log of a pod, or of `deployment/NAME`."""
        return self.kubectl("logs", "-n", namespace, pod, *more)

    def wait_for_rollout(self, workload: str, namespace: str = "default", deadline_s: int = PATIENCE_S) -> None:
        """Until all pods of `deployment/NAME` or `daemonset/NAME` are ready."""
        self.kubectl(
            "rollout", "status", workload, "-n", namespace, f"--timeout={deadline_s}s", timeout_s=deadline_s + 10
        )

    def pods(self, namespace: str, selector: str = "") -> list[dict[str, Any]]:
        """The running pods that are not about to end."""
        return [
            pod
            for pod in self.items("pods", namespace, selector)
            if pod["status"].get("phase") == "Running" and "deletionTimestamp" not in pod["metadata"]
        ]

    def service_ip(self, name: str, namespace: str) -> str:
        """The ClusterIP of a Service; it can be dialled from this machine too."""
        service = self.get("service", name, namespace)
        assert service, f"no Service {namespace}/{name}"
        return str(service["spec"]["clusterIP"])

    def in_node(self, node: str, *command: str, check: bool = True) -> str:
        """What a command prints that runs in the node's namespaces, as root on that node would."""
        pid = (STATE / f"{node}.pid").read_text().strip()
        words = ["nsenter", "-t", pid, "-n", "-m", "-u", *command]
        return subprocess.run(words, check=check, capture_output=True, text=True).stdout

    @contextmanager
    def frozen(self, daemon: str, node: str = "n1") -> Iterator[None]:
        """For the block, one of the node's own programs stands still: it keeps its connections and answers nobody."""
        (pid,) = (pid for pid in _daemons(node) if _program(pid) == daemon)
        os.kill(pid, signal.SIGSTOP)
        try:
            yield
        finally:
            os.kill(pid, signal.SIGCONT)

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace whose deletion, with everything in it, begins at the end."""
        self.kubectl("create", "namespace", name)
        try:
            yield name
        finally:
            self.delete("namespace", name, wait=False)


def _daemons(node: str) -> set[int]:
    """The processes of a node's own programs, by the cgroup that `bench up` started them in."""
    files = Path("/sys/fs/cgroup").glob(f"**/latencyprobe-bench/daemons/{node}/cgroup.procs")
    return {int(pid) for file in files for pid in file.read_text().split()}


def _program(pid: int) -> str:
    """The name of a process; "" once it has ended, as what a node's own program starts now and then soon has."""
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip()
    except (FileNotFoundError, ProcessLookupError):
        return ""


def healthy() -> bool:
    """Whether a cluster is up and answers."""
    return subprocess.run([BENCH, "status"], capture_output=True, check=False).returncode == 0
