"""LatencyReports of a cluster, through the user's own `kubectl`."""

from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

from latencyprobe import kubectl
from latencyprobe.errors import ClusterError
from latencyprobe.report import build, units
from latencyprobe.report.model import LatencyReport
from latencyprobe.slo.evaluate import State
from latencyprobe.text import printable

_REMEDY = "where the operator did not write it, delete it; where it did, it is of another version: upgrade both sides"


class _List(msgspec.Struct, frozen=True):
    items: tuple[msgspec.Raw, ...]


class Read(NamedTuple):
    """The reports that were read, by namespace; `unread`: why one of them could not be, in words, of each."""

    reports: tuple[LatencyReport, ...]
    unread: tuple[str, ...] = ()


def reports(namespace: str | None) -> Read:
    """Return the LatencyReport of a namespace ("": that of kubectl's context), or with `None` of all.

    One that the operator did not write hides no other namespace's. Raises ClusterError with what kubectl said, and
    where none can be read.
    """
    where = ["--all-namespaces"] if namespace is None else ["--namespace", namespace] if namespace else []
    output = kubectl.get(("latencyreports.latencyprobe.dev", *where), "read a local store with --store FILE")
    try:
        items = msgspec.json.decode(output, type=_List).items
    except msgspec.DecodeError as error:
        raise ClusterError(f"kubectl printed no list: {error}: upgrade both sides") from error
    found, unread = [], []
    for item in items:
        document = _printable(msgspec.json.decode(item))
        try:
            found.append(_report(document))
        except ValueError as error:
            unread.append(f"{_named(document)} cannot be read: {error}: {_REMEDY}")
    if unread and not found:
        raise ClusterError(unread[0])
    return Read(tuple(sorted(found, key=lambda report: report.metadata.namespace)), tuple(unread))


def _report(document: Any) -> LatencyReport:
    """Return a report whose numbers are numbers and whose times are times. Raises ValueError with the field's path."""
    report = msgspec.convert(document, LatencyReport)
    if report.metadata.name != build.NAME:
        raise ValueError(f"the operator writes none but `{build.NAME}`, nobody renews this one - at `$.metadata.name`")
    for state in State:
        if state.column not in report.summary:
            raise ValueError(f"no number of {state.words} objectives - at `$.summary`")
    for path, moment in _moments(report):
        try:
            units.unix_ns(moment)
        except (ValueError, OverflowError) as error:
            raise ValueError(f"{moment!r} is no time - at `$.{path}`") from error
    return report


def _moments(report: LatencyReport) -> Iterator[tuple[str, str]]:
    for i, result in enumerate(report.results):
        yield f"results[{i}].updated", result.updated
        if result.since is not None:
            yield f"results[{i}].since", result.since
        if result.burn_down is not None:
            yield f"results[{i}].burnDown.since", result.burn_down.since
        for k, slow in enumerate(result.slowest):
            yield f"results[{i}].slowest[{k}].time", slow.time


def _named(document: Any) -> str:
    """Return how a person finds it, whatever else it says: the API server has seen to its metadata."""
    match document:
        case {"metadata": {"namespace": namespace, "name": name}}:
            return f"LatencyReport {namespace}/{name}"
    return "a LatencyReport"


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
