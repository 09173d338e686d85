"""The loop that writes reports, beside the evaluation."""

import asyncio
from typing import Any

from latencyprobe_operator.cluster.calls import FakeCluster
from latencyprobe_operator.cluster.loops import Loops, Trigger
from latencyprobe_operator.cluster.writes import Writes
from latencyprobe_operator.reports.reports import Reports
from latencyprobe_operator.reports.writer import ReportWriter


def report(met: int) -> dict[str, Any]:
    return {"summary": {"met": met}, "results": []}


def test_what_is_evaluated_while_an_api_server_is_slow_is_written_next_and_nothing_in_between(make: Any) -> None:
    async def play() -> list[int]:
        answer, cluster, evaluated, latest = asyncio.Event(), FakeCluster(), Trigger(), {"shop": report(0)}
        keep = cluster.write_report

        async def slow(namespace: str, written: Any) -> None:
            await keep(namespace, written)
            await answer.wait()

        cluster.write_report = slow  # type: ignore[method-assign]
        reports = Reports(ReportWriter(cluster, Writes(), make.state()), lambda: latest, dict, evaluated)
        task = asyncio.create_task(Loops().run(reports))
        for met in (1, 2, 3):
            latest = {"shop": report(met)}
            evaluated.set()
            await make.until(lambda: cluster.calls)
        answer.set()
        await make.until(lambda: len(cluster.calls) == 2)
        task.cancel()
        return [call[2]["summary"]["met"] for call in cluster.calls]

    assert asyncio.run(play()) == [1, 3]
