"""The reports of all namespaces, written after each evaluation, which does not wait for it."""

from collections.abc import Callable, Mapping

from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.reports.documents import Document
from latencyprobe_operator.reports.mirror import Mirror
from latencyprobe_operator.reports.writer import ReportWriter


class Reports:
    """A loop. `reports`: those of the last evaluation, by namespace; `evaluated` makes a turn due."""

    name = "reports"

    def __init__(
        self, writer: ReportWriter | Mirror, reports: Callable[[], Mapping[str, Document]], evaluated: Trigger
    ) -> None:
        self._writer = writer
        self._reports = reports
        self._evaluated = evaluated

    async def due(self, *, failed: bool) -> None:
        """Wait for an evaluation."""
        await self._evaluated.wait()

    async def turn(self) -> None:
        """Write the reports that changed."""
        await self._writer.write(self._reports())
