"""cli.py: how a process ends by a signal."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

COMMAND = [sys.executable, str(Path(sys.executable).with_name("latencyprobe"))]
SIGNALS = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


class Importing:
    """A command that has come to import `module`, which does `what` for ever."""

    def __init__(self, command: list[str], module: str, what: str, folder: Path) -> None:
        (folder / f"{module}.py").write_text(f"import ctypes, os, time\nos.write(1, b'here')\n{what}\n")
        environ = {**os.environ, "PYTHONPATH": str(folder)}
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environ)
        assert self.process.stdout
        assert self.process.stdout.read(4) == b"here"

    def end(self) -> tuple[int, bytes, bytes]:
        """Wait for its end; return its exit code and what else it said."""
        try:
            out, err = self.process.communicate(timeout=20)
        finally:
            self.process.kill()
        return self.process.returncode, out, err


@SIGNALS
@pytest.mark.parametrize("module", ["click", "msgspec", "numpy"])
def test_a_signal_while_importing_ends_the_process_without_a_word(
    number: signal.Signals, module: str, tmp_path: Path
) -> None:
    importing = Importing([*COMMAND, "retransmits"], module, "time.sleep(60)", tmp_path)
    importing.process.send_signal(number)
    assert (-number, b"", b"") == importing.end(), "130 and 143 to a shell"


@SIGNALS
def test_a_signal_is_not_lost_in_a_callback_of_libbpf(number: signal.Signals, tmp_path: Path) -> None:
    """ctypes swallows what a callback raises."""
    callback = "ctypes.CFUNCTYPE(None)(lambda: time.sleep(60))()"
    importing = Importing([*COMMAND, "retransmits"], "numpy", callback, tmp_path)
    importing.process.send_signal(number)
    assert (-number, b"", b"") == importing.end()


@pytest.mark.root
@SIGNALS
def test_process_1_of_a_container_ends_by_a_signal_too(number: signal.Signals, tmp_path: Path) -> None:
    container = ["unshare", "--pid", "--fork", "--kill-child", *COMMAND, "retransmits"]
    importing = Importing(container, "click", "time.sleep(60)", tmp_path)
    pid = importing.process.pid
    os.kill(int(Path(f"/proc/{pid}/task/{pid}/children").read_text()), number)
    assert (128 + number, b"", b"") == importing.end()


def test_reader_that_stops_early_causes_no_complaint() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    run = subprocess.run([*COMMAND, "--help"], stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert b"" == run.stderr
