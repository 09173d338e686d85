"""The live commands of the pages, run as they stand: they attach, and end by Ctrl-C without a failure."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.docs import ROOT, Command, commands
from tests.support.waiting import wait_until

pytestmark = pytest.mark.root

LIVE = {"run", "top", "retransmits", "handshakes", "tcprt", "syscalls", "offcpu", "track", "flame", "record", "streams"}
NEED_A_FILE = {"--from", "--replay", "show", "trigger"}  # of before: their own tests make one
NEED_WORDS = {"syscalls", "offcpu", "track", "flame", "record"}  # of which processes
STARTED_S = 60


def live() -> Iterator[Command]:
    for command in {one.words: one for one in commands("latencyprobe")}.values():
        called, *words = command.words[1:]
        only_its_name = called in NEED_WORDS and not words
        incomplete = called == "run" and not {"-f", "--port"} & {*words}
        of_cluster = {"-n", "-A"} & {*words}  # through kubectl
        if called in LIVE and not of_cluster and not only_its_name and not incomplete and not NEED_A_FILE & {*words}:
            yield command


def attached(process: subprocess.Popen[str]) -> bool:
    """Whether it has a link in the kernel, or has ended."""
    if process.poll() is not None:
        return True
    try:
        return any("link_id" in file.read_text() for file in Path(f"/proc/{process.pid}/fdinfo").iterdir())
    except OSError:
        return False


@pytest.mark.parametrize("command", [*live()], ids=lambda one: f"{one.page}: {' '.join(one.words)}")
def test_live_commands_of_the_pages_attach_and_end(command: Command, tmp_path: Path) -> None:
    for name in ("examples", "docs"):
        (tmp_path / name).symlink_to(ROOT / name)
    there = {"1234": str(os.getpid()), "eth0": "lo", "veth12ab34cd": "lo"}
    folders = {"/var/tmp": str(tmp_path), "/var/log/tcprt": str(tmp_path / "log")}
    (tmp_path / "log").mkdir()
    words = [there.get(word, folders.get(word, word)) for word in command.words[1:]]
    program = Path(sys.executable).with_name("latencyprobe")
    environ = os.environ | {"HOME": str(tmp_path), "COLUMNS": "120"}
    with (tmp_path / "out").open("w") as out, (tmp_path / "err").open("w") as err:
        process = subprocess.Popen(
            [program, *words], cwd=tmp_path, env=environ, stdin=subprocess.DEVNULL, stdout=out, stderr=err, text=True
        )
        try:
            wait_until(lambda: attached(process), f"{words} is attached", STARTED_S)
            process.send_signal(signal.SIGINT)
            process.wait(STARTED_S)
        finally:
            process.kill()
            process.wait()
    said = (tmp_path / "err").read_text()
    assert process.returncode in (0, -signal.SIGINT), said  # the latter before it shows anything
    assert not re.search("Traceback|Error|Operation not permitted", said), said
