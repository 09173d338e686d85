"""A report is written where it changed, never into a namespace that is going away."""

import asyncio
from typing import Any

from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports.writer import ReportWriter


def test_report_goes_to_living_namespaces_when_it_changed(make: Any, cluster: Any) -> None:
    writer = ReportWriter(cluster, Writes(), make.state(Namespace("leaving", terminating=True)))
    reports: dict[str, Any] = {ns: {"summary": {}, "results": []} for ns in ("shop", "leaving", "unknown")}
    for _ in range(2):
        asyncio.run(writer.write(reports))
    assert [call[1] for call in cluster.calls] == ["shop"]
    asyncio.run(writer.write({}))
    asyncio.run(writer.write(reports))
    assert [call[1] for call in cluster.calls] == ["shop", "shop"]
