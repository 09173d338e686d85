"""Hosts on which no program runs while their first process does (docs/design/kernel.md, "Threads without programs").

What a timer does that comes upon it nobody sees, nor a switch from one of its threads, so a test that rests on one such
firing fails once in hundreds.
"""

import functools
import subprocess
from pathlib import Path

from latencyprobe_agent.kernel.tracking import Knobs
from latencyprobe_agent.signals.trackers import SYSCALLS
from tests.support.waiting import wait_until
from tests.truth.tracking import tracking


@functools.cache
def first_process_runs_no_program() -> bool:
    """Return whether this is one: the first process reaps an orphan, and no program sees a system call of it."""
    with tracking(SYSCALLS, Knobs(1, tgid=1)) as seen:
        shell = ["sh", "-c", "sleep 0.1 >/dev/null & echo $!"]
        orphan = subprocess.run(shell, check=True, capture_output=True, text=True).stdout.strip()
        wait_until(lambda: not Path("/proc", orphan).exists(), "the first process reaps an orphan")
        return not seen.found()
