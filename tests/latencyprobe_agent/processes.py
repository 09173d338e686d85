"""The commands as processes, and an echo server for them to measure."""

import os
import subprocess
import sys
from pathlib import Path

DEADLINE_S = 120
SERVER = """
import socket, sys
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("ready", flush=True)
while True:
    connection, _ = listener.accept()
    with connection:
        while data := connection.recv(100):
            connection.sendall(data)
"""
CLIENT = """
import socket, sys
with socket.create_connection(("127.0.0.1", int(sys.argv[1]))) as connection:
    for _ in range(int(sys.argv[2])):
        connection.sendall(b"12345678")
        assert connection.recv(100) == b"12345678"
"""
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {{name: echo}}
spec:
  targets: [{{name: echo, ports: [{port}]}}]
  objectives: [{{name: fast, target: echo, threshold: 10s, goal: "99", minEvents: 1}}]
  spans: {{ratio: "1", maxPerSecond: 10000}}
"""


class Echo:
    """A server process in a cgroup of its own choice; `ask()` runs a client process to its end."""

    def __init__(self, port: int, cgroup: Path | None = None) -> None:
        self.port = port
        command = [sys.executable, "-c", SERVER, str(port)]
        if cgroup:
            command = ["sh", "-c", 'echo $$ > "$0/cgroup.procs" && exec "$@"', str(cgroup), *command]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE)
        assert self.process.stdout
        assert self.process.stdout.readline() == b"ready\n"

    def ask(self, times: int) -> None:
        subprocess.run([sys.executable, "-c", CLIENT, str(self.port), str(times)], check=True)

    def close(self) -> None:
        self.process.kill()
        self.process.communicate()


def started(*arguments: str, **environ: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", "from latencyprobe.cli import main; main()", *arguments]
    environment = {**os.environ, **environ, "NO_COLOR": "1"}
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment, bufsize=1
    )
