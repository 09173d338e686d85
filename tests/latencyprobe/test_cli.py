"""cli.py: how a process ends by a signal, and when nobody takes what it prints."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest
from msgspec.structs import replace

from latencyprobe.store import SqliteStore

COMMAND = [sys.executable, str(Path(sys.executable).with_name("latencyprobe"))]
PROBE = str(Path(__file__).parents[2] / "examples" / "redis.yaml")
PRINTING = [
    *(["--help"], ["version"], ["validate", PROBE], ["report"], ["slow"], ["plan", "-f", PROBE]),
    *(["report", "-o", "json"], ["slow", "-o", "json"], ["plan", "-f", PROBE, "-o", "json"]),
]
NO_SPACE = "latencyprobe: standard output: No space left on device\n"
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


def printed(words: list[str], store: Path, stdout: IO[str] | int, **environ: str) -> tuple[int, str]:
    """Run a command; return its exit code and what it said on stderr."""
    where = ["--store", str(store)] if words[0] in ("report", "slow") else []
    run = subprocess.run(
        [*COMMAND, *words, *where],
        stdout=stdout,
        stderr=subprocess.PIPE,
        env={**os.environ, **environ},
        text=True,
        check=False,
    )
    return run.returncode, run.stderr


@pytest.mark.long
@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_full_device_is_one_line_of_complaint(words: list[str], store_of_today: SqliteStore) -> None:
    with Path("/dev/full").open("w") as full:
        assert (1, NO_SPACE) == printed(words, store_of_today.path, full)


@pytest.mark.long
@pytest.mark.parametrize("words", PRINTING, ids=" ".join)
def test_a_reader_that_stops_early_causes_no_complaint(words: list[str], store_of_today: SqliteStore) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    try:
        assert (1, "") == printed(words, store_of_today.path, writer)
    finally:
        os.close(writer)


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_device_is_the_same_with_and_without_buffers(unbuffered: str, tmp_path: Path) -> None:
    """The images switch them off."""
    with Path("/dev/full").open("w") as full:
        assert (1, NO_SPACE) == printed(["version"], tmp_path, full, PYTHONUNBUFFERED=unbuffered)


@pytest.mark.parametrize(("words", "code"), [("version", 1), ("nonsense", 2)])
def test_the_exit_code_holds_when_nobody_hears_the_complaint(words: str, code: int) -> None:
    with Path("/dev/full").open("w") as full:
        buffered = {**os.environ, "PYTHONUNBUFFERED": ""}
        run = subprocess.run([*COMMAND, words], stdout=full, stderr=full, env=buffered, check=False)
    assert code == run.returncode


@pytest.mark.parametrize("words", ["version", "flame --from - -o pprof"])
def test_output_that_is_closed_is_no_error(words: str) -> None:
    command = ["sh", "-c", '"$@" >&- </dev/null', "sh", *COMMAND, *words.split()]
    run = subprocess.run(command, capture_output=True, check=False)
    assert 0 == run.returncode
    assert b"Traceback" not in run.stderr


@pytest.mark.parametrize("words", ["validate -", "rules -f -", "flame --from -", "tcprt --replay -"])
def test_input_that_is_closed_is_empty(words: str) -> None:
    closed, empty = (
        subprocess.run(["sh", "-c", f'"$@" <{file}', "sh", *COMMAND, *words.split()], capture_output=True, check=False)
        for file in ("&-", "/dev/null")
    )
    assert (empty.returncode, empty.stdout, empty.stderr) == (closed.returncode, closed.stdout, closed.stderr)
    assert b"Traceback" not in closed.stderr


def test_kubectl_finds_it_as_a_plugin() -> None:
    plugin = Path(sys.executable).with_name("kubectl-latencyprobe")
    done = subprocess.run([plugin, "--help"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Usage: kubectl latencyprobe ")


def in_latin_1(words: str, store: SqliteStore) -> bytes:
    """Return what a command prints of a target whose name has a letter that Latin-1 has, and one that it has not."""
    first, *others = store.objectives()
    store.define("shop", "checkout", [replace(first, target="cært→"), *others])
    environ = {**os.environ, "PYTHONIOENCODING": "latin-1", "FORCE_COLOR": "1", "TERM": "xterm-256color"}
    command = [*COMMAND, *words.split(), "--store", str(store.path)]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environ, bufsize=0) as process:
        assert process.stdout is not None
        first = process.stdout.readline()
        if "--watch" in words:
            process.send_signal(signal.SIGINT)
        others, errors = process.communicate()
    assert (0, b"") == (process.returncode, errors)
    return first + others


@pytest.mark.parametrize("words", ["report", "slow", "explain"])
def test_a_terminal_without_our_letters_gets_what_it_has(words: str, store_of_today: SqliteStore) -> None:
    printed = in_latin_1(words, store_of_today)
    assert "cært?" in printed.decode("latin-1")
    assert b"PPPP" in printed, "pieces of a bar are letters where there are no blocks"


@pytest.mark.parametrize(
    "words",
    ["report -o html", "report -o json", "report --watch -o json", "explain -o html", "slow -o json"],
)
def test_what_a_program_reads_is_utf_8_on_every_terminal(words: str, store_of_today: SqliteStore) -> None:
    assert "cært→" in in_latin_1(words, store_of_today).decode()
