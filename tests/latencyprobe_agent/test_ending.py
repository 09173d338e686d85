"""Commands that attach end at once while they load, with their result once attached, and by a second signal at once."""

import fcntl
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

# It says so when it has come to its N-th message of libbpf, and goes on when it is told.
HELD = """
import os, sys
from latencyprobe.cli import main
from latencyprobe_agent.kernel import libbpf_abi

messages = 0

def hold(*message):
    global messages
    messages += 1
    if messages == int(sys.argv[1]):
        os.write(2, b"loading\\n")
        os.read(0, 1)
    return libbpf_abi._print(*message)

libbpf_abi._print_callback = libbpf_abi._PRINT(hold)
main(sys.argv[2:])
"""
PROBE = """
apiVersion: latencyprobe.dev/v1alpha1
kind: LatencyProbe
metadata: {name: nobody}
spec:
  targets: [{name: nobody, ports: [9]}]
  objectives: [{name: fast, target: nobody, threshold: 10s, goal: "99"}]
"""
RUN = ["run", "-f", "probe.yaml", "--store", "sli.db"]
TOOLS = [["retransmits"], ["tcprt"], ["handshakes"]]
AT_PACKETS = ["handshakes", "--method", "tc", "--interface", "lo"]
NODE = {
    "LATENCYPROBE_DIRECTORY": "https://localhost:9",
    "LATENCYPROBE_HEALTH_PORT": "0",
    "LATENCYPROBE_STATE_DIR": ".",
}
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])

Start = Callable[..., subprocess.Popen[bytes]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Return a function that starts a command, held at the N-th message of libbpf."""
    (tmp_path / "probe.yaml").write_text(PROBE)
    started = []

    def start_(words: list[str], held_at: int = 0, stdout: int = subprocess.PIPE) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-c", HELD, str(held_at), *words]
        pipe = subprocess.PIPE
        environ = {**os.environ, **NODE}
        started.append(subprocess.Popen(command, stdin=pipe, stdout=stdout, stderr=pipe, cwd=tmp_path, env=environ))
        return started[-1]

    yield start_
    for process in started:
        process.kill()
        process.communicate()


def read_until(word: bytes, process: subprocess.Popen[bytes]) -> None:
    """Read what it says on stderr, up to the line with a word."""
    assert process.stderr
    for line in process.stderr:
        if word in line:
            return
    raise AssertionError(f"{word!r} never came")


def held(pid: int, folder: str) -> str:
    """Return what is behind the names in a folder of /proc/PID, a line each."""
    found = []
    with suppress(OSError):
        for path in Path(f"/proc/{pid}/{folder}").iterdir():
            with suppress(OSError):
                found.append(str(path.readlink()))
    return "\n".join(found)


@SIGNALS
@pytest.mark.parametrize("held_at", [1, 100])
@pytest.mark.parametrize("words", [RUN, ["doctor"], *TOOLS], ids=lambda words: words[0])
def test_a_signal_while_loading_ends_it_without_a_word(
    start: Start, words: list[str], held_at: int, number: signal.Signals
) -> None:
    process = start(words, held_at)
    read_until(b"loading", process)
    process.send_signal(number)
    _, err = process.communicate(timeout=120)
    assert (-number, b"") == (process.returncode, err)


@pytest.mark.parametrize(
    ("folder", "holds"),
    [("map_files", "_multiarray_umath"), ("map_files", "libbpf"), ("fd", "bpf-map"), ("fd", "link")],
)
def test_no_moment_of_loading_brings_a_traceback(folder: str, holds: str) -> None:
    """The command as it is, as far as it has come when it holds something. Nobody has sockets of port 9."""
    command = [sys.executable, str(Path(sys.executable).with_name("latencyprobe")), "retransmits", "--port", "9"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        try:
            wait_until(lambda: holds in held(process.pid, folder) or process.poll(), f"{holds} is there")
            process.send_signal(signal.SIGINT)
            _, err = process.communicate(timeout=120)
        finally:
            process.kill()
    if process.returncode == 0:  # it had attached, and maybe seen some traffic
        assert re.fullmatch(rb"attached; Ctrl-C ends\n(sent again: .*\n)?lost: none\n", err), err
    else:
        assert (process.returncode, err) == (-signal.SIGINT, b"")


@SIGNALS
@pytest.mark.parametrize("words", [AT_PACKETS, ["agent"]], ids=lambda words: words[0])
def test_what_leaves_things_behind_ends_in_order(start: Start, words: list[str], number: signal.Signals) -> None:
    """Programs on an interface may outlive their process; an agent has the counts of before."""
    process = start(words, 100)
    read_until(b"loading", process)
    process.send_signal(number)
    _, err = process.communicate(b".", timeout=120)
    assert process.returncode == 0, err
    assert b"Traceback" not in err


@SIGNALS
@pytest.mark.parametrize("words", [RUN, *TOOLS, AT_PACKETS], ids=" ".join)
def test_a_signal_after_attaching_ends_it_with_its_result(
    start: Start, words: list[str], number: signal.Signals
) -> None:
    process = start(words)
    read_until(b"Ctrl-C ends", process)
    process.send_signal(number)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (b"nobody/fast" in out) if words is RUN else (b"lost: none\n" in err)


@pytest.mark.parametrize("second", [signal.SIGINT, signal.SIGTERM])
def test_a_second_signal_ends_it_at_once(start: Start, second: signal.Signals) -> None:
    """Here its report waits for a reader."""
    reader, writer = os.pipe()
    try:
        size = fcntl.fcntl(writer, fcntl.F_GETPIPE_SZ)
        os.write(writer, bytes(size))
        process = start(RUN, stdout=writer)
        read_until(b"Ctrl-C ends", process)
        process.send_signal(signal.SIGINT)
        read_until(b"RPCs in", process)
        process.send_signal(second)
        assert -second == process.wait(120)
    finally:
        os.close(reader)
        os.close(writer)


@pytest.mark.parametrize("words", [[*RUN, "--duration", "100ms"], ["doctor"], *TOOLS, AT_PACKETS], ids=" ".join)
def test_a_full_device_ends_it_with_a_line_of_complaint(start: Start, words: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        process = start(words, stdout=full.fileno())
        _, err = process.communicate(timeout=120)
    assert process.returncode == 1
    assert err.endswith(b"latencyprobe: standard output: No space left on device\n")
    assert b"Traceback" not in err
