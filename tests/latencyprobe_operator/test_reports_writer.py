"""A report is written where it changed, never into a namespace that is going away."""

import asyncio
from typing import Any

from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports.documents import RENEW_NS
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


def test_report_without_results_is_written_again_after_a_while_as_somebody_may_have_deleted_it(
    make: Any, cluster: Any
) -> None:
    now_ns = 0
    writer = ReportWriter(cluster, Writes(), make.state(), clock_ns=lambda: now_ns)
    for now_ns in (0, RENEW_NS - 1, RENEW_NS, RENEW_NS + 1, 2 * RENEW_NS):  # noqa: B007 - the writer reads it
        asyncio.run(writer.write({"shop": {"summary": {}, "results": []}}))
    assert 3 == len(cluster.calls)
