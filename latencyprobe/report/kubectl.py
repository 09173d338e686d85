"""LatencyReports of a cluster, through the user's own `kubectl`."""

from typing import Any

import msgspec

from latencyprobe import kubectl
from latencyprobe.errors import ClusterError
from latencyprobe.report.model import LatencyReport
from latencyprobe.text import printable


class _List(msgspec.Struct, frozen=True):
    items: tuple[LatencyReport, ...]


def reports(namespace: str | None) -> tuple[LatencyReport, ...]:
    """Return the LatencyReport of a namespace ("": that of kubectl's context), or with `None` of all, by namespace.

    Raises ClusterError with what kubectl said.
    """
    where = ["--all-namespaces"] if namespace is None else ["--namespace", namespace] if namespace else []
    output = kubectl.get(("latencyreports.latencyprobe.dev", *where), "read a local store with --store FILE")
    try:
        found = msgspec.convert(_printable(msgspec.json.decode(output)), _List).items
    except msgspec.DecodeError as error:
        raise ClusterError(
            f"kubectl printed a LatencyReport of another version: {error}: upgrade both sides"
        ) from error
    return tuple(sorted(found, key=lambda report: report.metadata.namespace))


def _printable(document: Any) -> Any:
    """Take out what would steer the terminal that shows it: who may write reports of one namespace may be somebody else
    than who reads those of all."""
    match document:
        case str():
            return printable(document)
        case list():
            return [_printable(one) for one in document]
        case dict():
            return {name: _printable(one) for name, one in document.items()}
    return document
