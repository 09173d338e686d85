"""What servers did while they processed slow RPCs, under `latencyprobe run`: shares against the server's stamps."""

import json
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, spans, values
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.quota import limited, throttled_ns
from tests.truth.waiting_client import Asked, Server, waiting_server

pytestmark = pytest.mark.root

SLEEP_S, BURN_S = 0.1, 0.06
ACTS = {f"sleep {SLEEP_S}": 3, f"burn {BURN_S}": 3, f"handed sleep {SLEEP_S}": 2, "nothing": 5}
SLOW, SPLIT, ROUNDED = 8, 6, 0.01
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: shop}}
spec:
  targets: [{{name: front, ports: [{0}]}}, {{name: first, ports: [{1}]}}]
  objectives:
  - {{name: fast, target: front, threshold: 50ms, goal: "99", minEvents: 1}}
  - {{name: callers, target: front, threshold: 50ms, goal: "99", minEvents: 1, perspective: Client}}
  evidence: {{syscalls: {{slowerThan: 20ms}}, offcpu: {{slowerThan: 20ms}}}}
  spans: {{ratio: "0", slowerThan: 50ms}}
"""


class Took(NamedTuple):
    """Of all acts of one kind, added up: by the server's stamps, and as their client saw it."""

    server_s: float
    client_s: float


def acted(asked: Asked, act: str, times: int) -> Took:
    server_s, begin = 0.0, time.clock_gettime(time.CLOCK_BOOTTIME)
    for _ in range(times):
        told = asked.ask(act)
        server_s += (told.ended_ns - told.began_ns) / 1e9
    return Took(server_s, time.clock_gettime(time.CLOCK_BOOTTIME) - begin)


def told_of(sink: OtlpSink, target: str) -> int:
    """How many RPCs of a target have a span that says where the time went."""
    found = (span for _, span in spans(sink.bodies("traces")) if span.name == target)
    return sum("latencyprobe.process.on_cpu" in values(span.attributes) for span in found)


def measured(sink: OtlpSink, tmp_path: Path, ask: Callable[[Server], None], split: int) -> Any:
    """Ask a server, and return the results by objective, once so many RPCs have their account."""
    ports = free_port(), free_port()
    (tmp_path / "probe.yaml").write_text(PROBE.format(*ports))
    with waiting_server(ports[0]) as server, waiting_server(ports[1]) as first:
        store = str(tmp_path / "sli.db")
        agent = started("run", "-f", str(tmp_path / "probe.yaml"), "--store", store, "--otlp", sink.url, "-o", "json")
        assert agent.stderr
        assert "measuring front" in agent.stderr.readline()
        asked = first.connect()
        wait_until(lambda: asked.ask("sleep 0.06") and told_of(sink, "first"), "programs in the kernel", DEADLINE_S)
        ask(server)
        wait_until(lambda: told_of(sink, "front") >= split, "the account of each", DEADLINE_S)
        agent.send_signal(signal.SIGINT)
        out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    return {result["objective"]: result for result in json.loads(out)["results"]}


def shares(result: dict[str, Any]) -> dict[str, float]:
    found = {one["cause"]: float(one["share"]) / 100 for one in result["causes"]}
    assert 0.98 < sum(found.values()) <= 1
    return found


def test_the_report_says_what_process_went_to_and_what_is_not_known(otlp_sink: OtlpSink, tmp_path: Path) -> None:
    took: list[Took] = []

    def ask(server: Server) -> None:
        asked = server.connect()
        took.extend(acted(asked, act, times) for act, times in ACTS.items())

    results = measured(otlp_sink, tmp_path, ask, SPLIT)
    fast, (sleep, burn, handed, nothing) = results["fast"], took
    assert fast["events"] == sum(ACTS.values())
    assert fast["bad"] >= SLOW, "more where this machine held up those that did nothing"
    assert "causes" not in results["callers"], "it is told of the server's side"

    share = shares(fast)
    # `process` is at least what the server stamped, and at most what its client waited
    least_s = sum(one.server_s for one in (sleep, burn, handed))
    most_s = sum(one.client_s for one in took)
    print(share, took)
    for cause, imposed_s, at_most_s in (
        ("clock_nanosleep", 3 * SLEEP_S, sleep.client_s),
        ("on CPU", 3 * BURN_S, burn.client_s + nothing.client_s + sleep.client_s - 3 * SLEEP_S),
        ("unknown", 2 * SLEEP_S, handed.client_s),  # another thread answered than had read
    ):
        assert imposed_s / most_s - ROUNDED <= share[cause] <= at_most_s / least_s + ROUNDED, cause

    out, _ = started("report", "--store", str(tmp_path / "sli.db")).communicate(timeout=DEADLINE_S)
    line = " ".join(out.split()).partition("of process, ")[2].partition(" waits hit ")[0]
    for one in (fast["causes"][0], fast["causes"][-1]):
        assert f"{one['share']} % {one['cause']}" in line


def test_a_quota_that_burned_process_is_named_with_the_time_that_the_kernel_tells(
    otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    """A twentieth of a CPU; nobody else in the cgroup runs."""
    v1 = {"cpu.cfs_period_us": "100000", "cpu.cfs_quota_us": "5000"}
    took: list[Took] = []
    with limited("cpu", {"cpu.max": "5000 100000"}, v1) as folder:

        def ask(server: Server) -> None:
            (folder / "cgroup.procs").write_text(str(server.pid))
            took.append(acted(server.connect(), "burn 0.03", 2))

        results = measured(otlp_sink, tmp_path, ask, split=2)
        kept_s = throttled_ns(folder) / 1e9
    share, (burn,) = shares(results["fast"]), took
    assert share["throttled"] == max(share.values())
    print(share, f"the kernel's own account: {kept_s:.3f} of {burn.server_s:.3f} s")
    assert 0.5 < share["throttled"] <= kept_s / burn.server_s + ROUNDED
