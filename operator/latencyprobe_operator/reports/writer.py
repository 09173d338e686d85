"""Writes LatencyReports that changed beyond rounding, or were not written for long. Nothing is remembered as written
that was not."""

import time
from collections.abc import Callable, Mapping

from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes, alive
from latencyprobe_operator.reports.documents import RENEW_NS, Document, differs


class ReportWriter:
    """The LatencyReports of all namespaces. `clock_ns`: steady."""

    def __init__(
        self,
        cluster: Cluster,
        writes: Writes,
        state: ClusterState,
        clock_ns: Callable[[], int] = time.monotonic_ns,
    ) -> None:
        self._cluster = cluster
        self._writes = writes
        self._state = state
        self._clock_ns = clock_ns
        self._written: dict[str, tuple[Document, int]] = {}  # and when

    async def write(self, reports: Mapping[str, Document]) -> None:
        """Write `reports` (by namespace) where they differ, never into a namespace that is going away."""
        self._written = {namespace: old for namespace, old in self._written.items() if namespace in reports}

        async def one(namespace: str) -> None:
            report, now_ns = reports[namespace], self._clock_ns()
            if not alive(self._state, namespace) or not self._is_due(namespace, report, now_ns):
                return
            if await self._writes.attempt("report", self._cluster.write_report(namespace, report)):
                self._written[namespace] = report, now_ns

        await self._writes.each(reports, one)

    def _is_due(self, namespace: str, report: Document, now_ns: int) -> bool:
        """Return whether a report differs from what was written, or has no results whose times would make it differ,
        and may be away since: deleted, or replaced by a backup's."""
        old, written_ns = self._written.get(namespace, (None, 0))
        return differs(report, old) or (not report["results"] and now_ns - written_ns >= RENEW_NS)
