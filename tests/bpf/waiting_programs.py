"""Programs that wait for a word before they do what a recorder is to tell of."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

# Waits for a word, then sleeps each of so many ms, and logs when it asked and when it came back (ns of boot time).
SLEEPS = """
import json, sys, time
now = lambda: time.clock_gettime_ns(time.CLOCK_BOOTTIME)
sys.stdin.readline()
log = []
for ms in json.loads(sys.argv[1]):
    before = now()
    time.sleep(ms / 1000)
    log.append((before, now()))
print(json.dumps(log), flush=True)
"""


@contextmanager
def program(code: str, *words: object) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-c", code, *map(str, words)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as running:
        try:
            yield running
        finally:
            running.kill()


def go(running: subprocess.Popen[str]) -> None:
    assert running.stdin is not None
    running.stdin.write("\n")
    running.stdin.flush()


def said(running: subprocess.Popen[str]) -> str:
    assert running.stdout is not None
    return running.stdout.readline()
