"""Nothing of what programs say to each other, nor of their arguments and environment, is in the agent or leaves it."""

import os
import re
import secrets
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.latencyprobe_agent.processes import DEADLINE_S, started
from tests.support.otlp import OtlpSink, of_rpcs
from tests.support.ports import free_port
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

RPCS = 1000
MARK = secrets.token_hex(8).encode()  # begins and ends each secret, and stands nowhere else
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: shop}}
spec:
  targets: [{{name: cart, ports: [{0}]}}]
  objectives: [{{name: fast, target: cart, threshold: 1ms, goal: "99", minEvents: 1}}]
  evidence: {{retransmits: true, handshakes: true, tcprt: true, syscalls: {{slowerThan: 1ms, stacks: User}},
    offcpu: {{slowerThan: 1ms}}}}
  spans: {{ratio: "1", maxPerSecond: 5000}}
"""
SERVER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
connection, _ = listener.accept()
for number in range(10**6):
    if not (said := connection.recv(4096)):
        break
    time.sleep(0.002 if number % 50 == 0 else 0)
    connection.sendall(said[::-1])
"""


def canary() -> bytes:
    return MARK + secrets.token_hex(8).encode() + MARK


def readable_memory(pid: int) -> bytes:
    """What a process has in its memory, the rings that it shares with the kernel too."""
    found = []
    with Path(f"/proc/{pid}/maps").open() as maps, Path(f"/proc/{pid}/mem").open("rb", buffering=0) as memory:
        for line in maps:
            first, last, rights = re.match(r"([0-9a-f]+)-([0-9a-f]+) (\S+)", line).groups()  # type: ignore[union-attr]
            if rights[0] != "r" or "[v" in line:
                continue
            memory.seek(int(first, 16))
            try:
                found.append(memory.read(int(last, 16) - int(first, 16)))
            except OSError:  # guard pages, and what devices have mapped
                continue
    return b"".join(found)


def test_no_payload_argument_or_variable_is_in_memory_store_spans_metrics_or_logs(
    otlp_sink: OtlpSink, tmp_path: Path
) -> None:
    port = free_port()
    (tmp_path / "probe.yaml").write_text(PROBE.format(port))
    in_argv, in_environ, said = canary(), canary(), [canary() for _ in range(RPCS)]
    words = ("run", "-f", str(tmp_path / "probe.yaml"), "--store", str(tmp_path / "sli.db"), "--otlp", otlp_sink.url)
    agent = started(*words, "--every", "-o", "json")
    assert agent.stderr
    first = agent.stderr.readline()
    assert "measuring cart" in first
    command = [sys.executable, "-c", SERVER, str(port), in_argv.decode()]
    environ = {**os.environ, "SECRET": in_environ.decode()}
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE) as server:
        assert server.stdout
        assert server.stdout.readline() == b"ready\n"
        with socket.create_connection(("127.0.0.1", port)) as client:
            for one in said:
                client.sendall(one)
                assert client.recv(len(one), socket.MSG_WAITALL) == one[::-1]
            wait_until(lambda: len(of_rpcs(otlp_sink.bodies("traces"))) >= RPCS, "a span of each RPC", DEADLINE_S)
            memory = readable_memory(agent.pid)
    agent.send_signal(signal.SIGINT)
    out, err = agent.communicate(timeout=DEADLINE_S)
    assert agent.returncode == 0, err

    assert b"latencyprobe" in memory, "it was read"
    places = {
        "memory": memory,
        "store": b"".join(file.read_bytes() for file in tmp_path.glob("sli.db*")),
        "traces": b"".join(otlp_sink.bodies("traces")),
        "metrics": b"".join(otlp_sink.bodies("metrics")),
        "output": (first + out + err).encode(),
    }
    for place, content in places.items():
        assert MARK not in content, place
        assert MARK[::-1] not in content, f"{place}, of an answer"
