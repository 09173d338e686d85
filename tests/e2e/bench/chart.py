"""The project's chart in the cluster, installed as a user would: Helm, with the images built from this tree."""

import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.bench.cluster import PATIENCE_S, STATE, Cluster, RefusedError

CHART = Path(__file__).parents[3] / "charts/latencyprobe"
REGISTRY = "latencyprobe.local"


@dataclass(frozen=True)
class Chart:
    """One release; its agents run in the namespace `latencyprobe-agents`."""

    cluster: Cluster
    tag: str
    otlp: str
    release: str = "latencyprobe"
    namespace: str = "latencyprobe"
    agents: str = "latencyprobe-agents"

    def values(self) -> dict[str, Any]:
        """What the bench needs: images that no registry has, Jaeger, and no volume, because nothing provisions one."""
        image = {"registry": REGISTRY, "tag": self.tag, "pullPolicy": "Never"}
        return {
            "otlp": {"endpoint": self.otlp},
            "persistence": {"enabled": False},
            # two cores carry two nodes: a share that keeps the Lease's 10 s on a busy machine
            "operator": {"image": image, "resources": {"requests": {"cpu": "500m"}}},
            "agent": {"image": image, "resources": {"requests": {"cpu": "250m"}}},
        }

    def install(self, values: Mapping[str, Any] | None = None, *more: str, timeout_s: int = PATIENCE_S) -> None:
        """`helm upgrade --install` and wait until it is ready; `values` win over the bench's own, key by key.

        Helm does not wait for the last node's agent (`agent.maxUnavailable`), which would be replaced under the test.
        """
        merged = json.dumps(merge(self.values(), values or {}))
        self.helm(
            *("upgrade", "--install", self.release, str(CHART), "--create-namespace", "--values", "-"),
            *("--wait", f"--timeout={timeout_s}s", *more),
            stdin=merged,
            timeout_s=timeout_s + 30,
        )
        self.cluster.wait_for_rollout("daemonset/latencyprobe-agent", self.agents, timeout_s)

    def uninstall(self, timeout_s: int = 200) -> None:
        """`helm uninstall` if it is installed, and wait until everything is gone."""
        self.helm(
            *("uninstall", self.release, "--ignore-not-found", "--wait", f"--timeout={timeout_s}s"),
            timeout_s=timeout_s + 30,
        )
        self.cluster.delete("namespace", self.namespace)

    def clear(self) -> None:
        """Remove a release that a broken build or an interrupted session left, without running its hooks."""
        self.helm(
            *("uninstall", self.release, "--ignore-not-found", "--no-hooks", "--wait", f"--timeout={PATIENCE_S}s")
        )
        self.cluster.delete("namespace", self.namespace)

    def helm(self, *words: str, stdin: str | None = None, timeout_s: float = 300) -> str:
        """What helm prints; RefusedError with its complaint when it fails."""
        command = self.command(*words)
        done = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=timeout_s, check=False)
        if done.returncode:
            raise RefusedError(f"helm {' '.join(words)}: {done.stderr.strip()}")
        return done.stdout

    def command(self, *words: str) -> list[str]:
        """The command line of helm on this cluster, for who wants to interrupt it."""
        return [str(STATE / "bin/helm"), "--kubeconfig", str(self.cluster.kubeconfig), "-n", self.namespace, *words]


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Helm's own rule for values: maps are merged, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        old = merged.get(key)
        merged[key] = merge(old, value) if isinstance(old, Mapping) and isinstance(value, Mapping) else value
    return merged
