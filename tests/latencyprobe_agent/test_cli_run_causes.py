"""What servers did while they processed slow RPCs, under `latencyprobe run`: shares against the server's stamps."""

import json
import signal
import time
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, spans, values
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.waiting_client import Asked, waiting_server

pytestmark = pytest.mark.root

SLEEP_S, BURN_S = 0.1, 0.06
ACTS = {f"sleep {SLEEP_S}": 3, f"burn {BURN_S}": 3, f"handed sleep {SLEEP_S}": 2, "nothing": 5}
SLOW, SPLIT = 8, 6
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


def test_the_report_says_what_process_went_to_and_what_is_not_known(otlp_sink: OtlpSink, tmp_path: Path) -> None:
    store, ports = str(tmp_path / "sli.db"), (free_port(), free_port())
    (tmp_path / "probe.yaml").write_text(PROBE.format(*ports))
    with waiting_server(ports[0]) as server, waiting_server(ports[1]) as first:
        arguments = ("-f", str(tmp_path / "probe.yaml"), "--store", store, "--otlp", otlp_sink.url)
        agent = started("run", *arguments, "-o", "json")
        assert agent.stderr
        assert "measuring front" in agent.stderr.readline()
        asked = first.connect()
        wait_until(lambda: asked.ask("sleep 0.06") and told_of(otlp_sink, "first"), "waits in the kernel", DEADLINE_S)
        asked = server.connect()
        sleep, burn, handed, _ = (acted(asked, act, times) for act, times in ACTS.items())

        wait_until(lambda: told_of(otlp_sink, "front") == SPLIT, "what explains each", DEADLINE_S)
        agent.send_signal(signal.SIGINT)
        out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    results = {result["objective"]: result for result in json.loads(out)["results"]}
    fast = results["fast"]
    assert (SLOW, sum(ACTS.values())) == (fast["bad"], fast["events"])
    assert "causes" not in results["callers"], "it is told of the server's side"

    share = {one["cause"]: float(one["share"]) / 100 for one in fast["causes"]}
    assert 0.98 < sum(share.values()) <= 1
    # `process` is at least what the server stamped, and at most what its client waited
    least_s, most_s = (sum(getattr(one, of) for one in (sleep, burn, handed)) for of in ("server_s", "client_s"))
    rounded = 0.01
    for cause, imposed_s, at_most_s in (
        ("clock_nanosleep", 3 * SLEEP_S, sleep.client_s),
        ("on CPU", 3 * BURN_S, burn.client_s + sleep.client_s - 3 * SLEEP_S),
        ("unknown", 2 * SLEEP_S, handed.client_s),  # another thread answered than had read
    ):
        assert imposed_s / most_s - rounded <= share[cause] <= at_most_s / least_s + rounded, cause

    told = started("report", "--store", store)
    out, _ = told.communicate(timeout=DEADLINE_S)
    line = " ".join(out.split()).partition("of process, ")[2].partition(" waits hit ")[0]
    for words in (" % clock_nanosleep", " % on CPU", " % unknown"):
        assert words in line
