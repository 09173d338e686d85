"""What a confined process cannot do any more."""

import subprocess
import sys

import pytest

CONFINED = """
import ctypes, mmap, os, resource, socket, sys
from latencyprobe_agent.kernel.confinement import Capability, confine
confine([Capability.SYSLOG], answers=1, memory_bytes=8 << 20, descriptors=8)
try:
    {attempt}
except (OSError, MemoryError) as error:
    os.write(1, type(error).__name__.encode())
else:
    os.write(1, b"done")
"""
REFUSED = {
    "socket": "socket.socket()",
    "fork": "os.fork()",
    "exec": "os.execv('/bin/true', ['true'])",
    "kill": "os.kill(os.getppid(), 0)",
    "write elsewhere": "os.write(2, b'x')",
    "create": "os.open('/tmp/latencyprobe-never', os.O_WRONLY | os.O_CREAT)",
    "open for writing": "os.open('/dev/null', os.O_RDWR)",
    "delete": "os.unlink('/tmp/latencyprobe-never')",
    "shared memory": "mmap.mmap(-1, 4096, mmap.MAP_SHARED)",
    "descriptors": "[os.open('/dev/null', os.O_RDONLY) for _ in range(9)]",
    "memory": "bytearray(64 << 20)",
}


def attempt(code: str) -> str:
    command = [sys.executable, "-c", CONFINED.format(attempt=code)]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_a_confined_process_cannot(code: str) -> None:
    assert attempt(code).endswith("Error")


def test_it_still_reads_files_and_answers() -> None:
    assert "done" == attempt("assert os.read(os.open('/proc/self/maps', os.O_RDONLY), 10)")


def test_limits_of_another_process_are_not_its_to_set() -> None:
    assert "PermissionError" == attempt("resource.prlimit(os.getppid(), resource.RLIMIT_NOFILE)")


@pytest.mark.root
def test_of_its_capabilities_it_keeps_those_that_it_named() -> None:
    kept = f"{1 << 34:016x}"  # CAP_SYSLOG
    told = f"status = open('/proc/self/status').read(); os.write(1, str(status.count('{kept}')).encode())"
    assert "3done" == attempt(told)  # permitted, effective, bounding
