"""Writes LatencyReports, and beside each the same as a Report of openreports.io, where the administrator wants it."""

from collections.abc import Mapping

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.owners import owner
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes, alive
from latencyprobe_operator.reports.documents import Document
from latencyprobe_operator.reports.open_reports import NAME, open_report
from latencyprobe_operator.reports.writer import ReportWriter


class Mirror:
    """In the place of `writer`, which has the LatencyReports. Nothing is remembered as written that was not, and a
    Report of the same name that is not ours stays as it is."""

    def __init__(self, writer: ReportWriter, cluster: Cluster, writes: Writes, state: ClusterState) -> None:
        self._writer = writer
        self._cluster = cluster
        self._writes = writes
        self._state = state
        self._written: dict[str, Document] = {}
        self._unknown = False  # there is no kind Report

    async def write(self, reports: Mapping[str, Document]) -> None:
        """Write both where they differ, never into a namespace that is going away. Without the kind Report one write
        is tried each time, however many namespaces there are."""
        await self._writer.write(reports)
        self._written = {namespace: old for namespace, old in self._written.items() if namespace in reports}
        self._unknown = False
        differing = [
            namespace
            for namespace, report in reports.items()
            if alive(self._state, namespace) and open_report(report) != self._written.get(namespace)
        ]

        async def one(namespace: str) -> None:
            mirrored = open_report(reports[namespace])
            if await self._writes.attempt("open_report", self._apply(namespace, mirrored)):
                self._written[namespace] = mirrored

        for first in differing[:1]:
            await one(first)
        if not self._unknown:
            await self._writes.each(differing[1:], one)

    async def _apply(self, namespace: str, mirrored: Document) -> None:
        if namespace not in self._written:
            there = await self._cluster.open_report(namespace, NAME)
            if there is not None and owner(there) is None:
                raise ClusterError(f"Report {namespace}/{NAME} is not the operator's and stays as it is: delete it")
        try:
            await self._cluster.write_open_report(namespace, NAME, mirrored)
        except ApiError as error:
            self._unknown = error.status == 404
            if not self._unknown:
                raise
            remedy = "install its CRD, or set slo.openReports.enabled=false in the chart"
            raise ClusterError(f"there is no kind Report (openreports.io/v1alpha1): {remedy}") from error
