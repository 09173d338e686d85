"""The reports of all namespaces, written after each evaluation, which does not wait for it."""

from collections.abc import Callable, Mapping

from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.reports.documents import Document, without_results
from latencyprobe_operator.reports.mirror import Mirror
from latencyprobe_operator.reports.writer import ReportWriter


class Reports:
    """A loop. `reports`: those of the last evaluation, by namespace; `refused`: LatencyProbes that are not evaluated
    (key: uid); `evaluated` makes a turn due."""

    name = "reports"

    def __init__(
        self,
        writer: ReportWriter | Mirror,
        reports: Callable[[], Mapping[str, Document]],
        refused: Callable[[], Mapping[Key, str]],
        evaluated: Trigger,
    ) -> None:
        self._writer = writer
        self._reports = reports
        self._refused = refused
        self._evaluated = evaluated

    async def due(self, *, failed: bool) -> None:
        """Wait for an evaluation."""
        await self._evaluated.wait()

    async def turn(self) -> None:
        """Write the reports that changed."""
        await self._writer.write({**without_results(self._refused()), **self._reports()})
