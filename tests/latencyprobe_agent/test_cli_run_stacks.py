"""A lock under `latencyprobe run`: the span has where the program waited and who let go of it, the report its name."""

import json
import platform
import signal
import subprocess
from pathlib import Path

import pytest

from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, spans, values
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.waiting_client import waiting_server

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its program is in assembly of x86-64"),
]

PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: shop}}
spec:
  targets: [{{name: cart, ports: [{port}]}}]
  objectives: [{{name: fast, target: cart, threshold: 20ms, goal: "99", minEvents: 1}}]
  spans: {{ratio: "0", slowerThan: 20ms}}
  evidence: {{syscalls: {{slowerThan: 10ms, stacks: User}}}}
"""


def waits(sink: OtlpSink) -> list[dict[str, object]]:
    """Attributes of the events of waits for a futex."""
    events = [event for _, span in spans(sink.bodies("traces")) for event in span.events if event.name == "wait"]
    return [
        found for found in (values(event.attributes) for event in events) if found["latencyprobe.syscall"] == "futex"
    ]


def is_told(wait: dict[str, object]) -> bool:
    """Whether a wait for the lock has the stack of its waker: that for the end of the thread may be a long one too."""
    return "wait_for_lock" in str(wait.get("latencyprobe.stack.user")) and "latencyprobe.stack.waker" in wait


def test_a_lock_is_named_on_the_span_and_in_the_report(otlp_sink: OtlpSink, tmp_path: Path) -> None:
    port, program = free_port(), tmp_path / "waiter"
    source = Path(workload.__file__).with_name("waiter.c")
    flags = ["-O1", "-pthread", "-fno-omit-frame-pointer", "-fno-optimize-sibling-calls"]
    subprocess.run(["cc", *flags, "-o", program, source], check=True)
    (tmp_path / "probe.yaml").write_text(PROBE.format(port=port))
    with waiting_server(port, program=program) as server:
        files = ("-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"))
        agent = started("run", *files, "--otlp", otlp_sink.url, "-o", "json")
        assert agent.stderr
        assert "measuring cart" in agent.stderr.readline()
        asked = server.connect()

        def seen() -> bool:
            asked.ask("lock 50")  # signals are attached once measuring has begun
            return any(map(is_told, waits(otlp_sink)))

        wait_until(seen, "a wait with its stacks", 120, seen=lambda: waits(otlp_sink), poll_s=0.5)
        asked.ask("lock 1000")  # the slowest: of those before signals were attached nothing is known
        agent.send_signal(signal.SIGINT)
        out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err
    told = next(one for one in waits(otlp_sink) if is_told(one))
    assert "entry;serve;wait_for_lock" in str(told["latencyprobe.stack.user"])
    assert told["latencyprobe.stack.user.complete"] is True
    assert str(told["latencyprobe.stack.waker"]).endswith("garbage_collector;collect;let_go")
    assert ("thread", "gc") == (told["latencyprobe.wait.waker"], told["latencyprobe.wait.waker.name"])
    (result,) = json.loads(out)["results"]
    what = {evidence["what"] for slow in result["slowest"] for evidence in slow.get("evidence", ())}
    assert what & {'futex (woken by thread "gc")', 'futex (longest woken by thread "gc")'}, what
