"""`latencyprobe top` as a process, on a pipe and on a terminal."""

import errno
import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from latencyprobe import group
from latencyprobe.errors import OutputError
from latencyprobe_agent.kernel.programs import FakePrograms, Programs
from latencyprobe_agent.tools.top import command
from tests.latencyprobe_agent.processes import DEADLINE_S, Echo, started
from tests.support.fake_kubectl import FakeKubectl
from tests.support.ports import free_port


@pytest.mark.parametrize("args", [[], ["--port", "80", "-f", "x.yaml"]])
def test_it_says_what_it_lacks(args: list[str], capfd: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        assert group.run(["top", *args]) == 2
        port = server.getsockname()[1]
    said, _, ports = capfd.readouterr().err.partition("; on this host listen: ")
    assert said.endswith("give -f FILE or --port PORT, or of a cluster -n NAMESPACE or -A: what to measure")
    assert str(port) in re.findall(r"\d+", ports)


def test_rows_of_a_host_have_no_state_to_sort_by(capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["top", "--port", "80", "--sort", "state"]) == 2
    assert "--sort state goes with -n or -A" in capfd.readouterr().err


def test_rows_of_a_host_are_of_no_objective(capfd: pytest.CaptureFixture[str]) -> None:
    assert group.run(["top", "--port", "80", "--by", "objective"]) == 2
    assert "--by objective goes with -n or -A" in capfd.readouterr().err


def test_it_ends_where_nobody_can_read_its_rows_any_more(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """As in `top -o json | head -1`, or on a disk that has become full."""
    monkeypatch.setattr(Programs, "open", lambda *_, **__: FakePrograms())
    given = ["top", "--port", "80", "--interval", "1ms", "-o", "json", "--duration", f"{DEADLINE_S}s"]

    def full(*_: object) -> None:
        raise OutputError("standard output: No space left on device")

    def closed(*_: object) -> None:
        raise BrokenPipeError(errno.EPIPE, "Broken pipe")

    monkeypatch.setattr(command, "_print_json", full)
    began = time.monotonic()
    assert group.run(given) == 1
    assert capfd.readouterr().err == "latencyprobe: standard output: No space left on device\n"
    monkeypatch.setattr(command, "_print_json", closed)
    with pytest.raises(SystemExit, match="1"):
        group.run(given)
    assert capfd.readouterr().err == ""
    assert time.monotonic() - began < DEADLINE_S / 2


@pytest.fixture
def echo() -> Any:
    server = Echo(free_port())
    yield server
    server.close()


@pytest.mark.root
def test_what_a_client_does_is_seen_at_both_ends_within_the_interval(echo: Echo) -> None:
    process = started("top", "--port", str(echo.port), "--interval", "1s", "-o", "json", "--duration", "6s")
    over = threading.Event()

    def ask() -> None:
        while not over.is_set():
            echo.ask(1000)

    with ThreadPoolExecutor(1) as pool:  # beside: a pipe that nobody reads would hold it up
        asking = pool.submit(ask)
        out, err = process.communicate(timeout=DEADLINE_S)
        over.set()
        asking.result(DEADLINE_S)
    assert process.returncode == 0, err
    found = [json.loads(line) for line in out.splitlines()]
    assert {one["side"] for one in found} == {"server", "client"}
    servers = [one for one in found if one["side"] == "server"]
    assert {one["process"] for one in servers} == {f"{sys.executable.rpartition('/')[2][:15]} {echo.process.pid}"}
    assert sum(one["rate"] for one in servers) >= 100
    assert all(0 < one["p50_ns"] <= one["p99_ns"] for one in found)


@pytest.mark.root
def test_a_terminal_is_drawn_on_and_left_as_it_was(echo: Echo) -> None:
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from latencyprobe.cli import main; main()"]
    environ = {**os.environ, "TERM": "xterm", "COLUMNS": "120", "LINES": "24"}
    command += ["top", "--port", str(echo.port), "--interval", "500ms"]
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ)
    os.close(theirs)
    text = ""

    def read_until(pattern: str) -> None:
        nonlocal text
        while not re.search(pattern, text):
            text += os.read(ours, 4096).decode(errors="replace")

    signal.alarm(DEADLINE_S)
    read_until("no RPC in this interval")
    echo.ask(100)
    read_until(rf"port-{echo.port}.*server")
    os.write(ours, b"ss")
    read_until("sorted by rate")
    os.write(ours, b"q")
    read_until(re.escape("\x1b[?1049l"))  # the screen that was there before
    signal.alarm(0)
    assert process.wait(DEADLINE_S) == 0
    os.close(ours)


def test_a_terminal_that_cannot_replace_what_is_there_gets_tables(fake_kubectl: FakeKubectl) -> None:
    fake_kubectl("""echo '{"items": []}'""")
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", "from latencyprobe.cli import main; main()", "top", "-n", "shop"]
    given = {"env": {**os.environ, "TERM": "dumb"}, "stdin": theirs, "stdout": theirs}
    assert 0 == subprocess.run([*command, "--duration", "1ms"], **given, timeout=DEADLINE_S, check=False).returncode
    os.close(theirs)  # else reading waits where nothing was printed
    printed = os.read(ours, 4096).decode()
    os.close(ours)
    assert "0 RPC/s" in printed
    assert "\x1b" not in printed


def test_ctrl_c_during_the_first_look_is_no_failure_of_kubectl(
    fake_kubectl: FakeKubectl, capfd: pytest.CaptureFixture[str]
) -> None:
    fake_kubectl("kill -INT $PPID $$")
    assert not group.run(["top", "-n", "shop"])
    assert ("", "") == capfd.readouterr()
