"""What a failed end-to-end test leaves behind: the cluster's state and logs, each file bounded, in one folder."""

import shutil
from pathlib import Path

from tests.e2e.bench.cluster import STATE, Cluster, RefusedError

LINES = 400
DUMPS = {
    "pods.txt": ("get", "pods", "-A", "-o", "wide"),
    "nodes.txt": ("get", "nodes", "-o", "wide", "--show-labels"),
    "events.txt": ("get", "events", "-A", "--sort-by=.lastTimestamp"),
    "latencyprobes.yaml": ("get", "latencyprobes,latencyreports", "-A", "-o", "yaml"),
}


def collect(cluster: Cluster, folder: Path) -> None:
    """Fill the folder; what cannot be asked for is said in its file."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name, words in DUMPS.items():
        (folder / name).write_text(_ask(cluster, *words))
    for pod in cluster.items("pods"):
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        if namespace == "kube-system":
            continue
        log = _ask(cluster, "logs", "-n", namespace, name, "--all-containers", f"--tail={LINES}")
        before = _ask(cluster, "logs", "-n", namespace, name, "--all-containers", f"--tail={LINES}", "--previous")
        state = _ask(cluster, "describe", "pod", "-n", namespace, name)
        (folder / f"{namespace}.{name}.txt").write_text(
            f"{state}\n---- log\n{log}\n---- log before the last restart\n{before}"
        )
    for log_file in (STATE / "log").glob("*.log"):
        (folder / log_file.name).write_text(_last_lines(log_file.read_text(errors="replace")))


def _ask(cluster: Cluster, *words: str) -> str:
    try:
        return _last_lines(cluster.kubectl(*words))
    except RefusedError as refused:
        return f"{refused}\n"


def _last_lines(text: str) -> str:
    return "".join(text.splitlines(keepends=True)[-5 * LINES :])
