"""LatencyReports of a cluster, through the user's own `kubectl`: their context, their rights, their proxies."""

import subprocess

import msgspec

from latencyprobe.errors import ClusterError
from latencyprobe.report.model import LatencyReport


class _List(msgspec.Struct, frozen=True):
    items: tuple[LatencyReport, ...]


def reports(namespace: str | None) -> tuple[LatencyReport, ...]:
    """Return the LatencyReport of a namespace, or with `None` of all, by namespace.

    Raises ClusterError with what kubectl said: not installed, no such resource, not allowed, away.
    """
    where = ["--all-namespaces"] if namespace is None else ["--namespace", namespace]
    command = ["kubectl", "get", "latencyreports.latencyprobe.dev", *where, "--output", "json"]
    try:
        output = subprocess.run(command, capture_output=True, check=True).stdout
    except FileNotFoundError as error:
        raise ClusterError("kubectl is not installed: install it, or read a local store with --store FILE") from error
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip() or f"exit code {error.returncode}"
        raise ClusterError(f"kubectl: {said}: try `{' '.join(command)}`") from error
    try:
        found = msgspec.json.decode(output, type=_List).items
    except msgspec.DecodeError as error:
        raise ClusterError(
            f"kubectl printed a LatencyReport of another version: {error}: upgrade both sides"
        ) from error
    return tuple(sorted(found, key=lambda report: report.metadata.namespace))
