"""A peer inside the application: what a span of the OpenTelemetry SDK per call adds to its client's CPU time."""

import sys
from contextlib import nullcontext
from functools import partial

from benchmarks import rounds
from benchmarks.loads import redis
from benchmarks.machine import LOAD_CPU
from benchmarks.processes import finished
from benchmarks.report import Report
from benchmarks.sink import sink
from benchmarks.variants import with_control

_PORT, _CALLS = 7876, 5_000


def cost_of_sdk(report: Report, count: int, _turns: int) -> None:
    """CPU of a Python client per call; `none` makes the same calls without a span."""
    with redis(_PORT), sink() as collector:

        def one(url: str | None) -> float:
            words = (sys.executable, "-m", "benchmarks.sdk_client", _PORT, _CALLS, url or "")
            return float(finished(*words, cpu=LOAD_CPU))

        under = with_control({"a span per call": partial(nullcontext, collector.url)})
        slices, note = rounds.run("SDK", one, under, count)
    report.compared(f"CPU of a Python client per call, OpenTelemetry SDK in it ({note})", slices, "ns per call")
