"""Writes LatencyReports that changed beyond rounding, or were not written for long. Nothing is remembered as written
that was not."""

from collections.abc import Mapping

from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes, alive
from latencyprobe_operator.reports.documents import Document, differs


class ReportWriter:
    """The LatencyReports of all namespaces."""

    def __init__(self, cluster: Cluster, writes: Writes, state: ClusterState) -> None:
        self._cluster = cluster
        self._writes = writes
        self._state = state
        self._written: dict[str, Document] = {}

    async def write(self, reports: Mapping[str, Document]) -> None:
        """Write `reports` (by namespace) where they differ, never into a namespace that is going away."""
        self._written = {namespace: old for namespace, old in self._written.items() if namespace in reports}

        async def one(namespace: str) -> None:
            report = reports[namespace]
            if not alive(self._state, namespace) or not differs(report, self._written.get(namespace)):
                return
            if await self._writes.attempt("report", self._cluster.write_report(namespace, report)):
                self._written[namespace] = report

        await self._writes.each(reports, one)
