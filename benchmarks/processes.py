"""Processes that the bench starts: each on its processor, ended with the bench, and what CPU time they took."""

import os
import resource
import signal
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from textwrap import shorten

from benchmarks.machine import cpu_ns
from latencyprobe_agent.identity.cgroups import find_root
from tests.support.waiting import wait_until

_END_TIMEOUT_S = 10.0
_SAID = 160  # characters
_live: set[int] = set()
_cgroups: set[Path] = set()


class DoesNotRun(Exception):  # noqa: N818 - said of a peer, no fault of ours
    """A program ended at once, or said that it cannot do its work here; the message is what it said."""


@contextmanager
def started(
    *words: object,
    cpu: int,
    log: Path,
    ready: Callable[[int], bool] = lambda _: True,
    env: Mapping[str, str] | None = None,
    ended_by: signal.Signals = signal.SIGTERM,
    timeout_s: float = 20,
) -> Iterator[int]:
    """A process on one processor, once it is `ready` (asked with its id); what it prints goes to `log`.

    Raises DoesNotRun if it ends before. The kernel ends it with the bench, should that be killed.
    """
    command, environment = on(cpu, *words), {**os.environ, **(env or {})}
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=subprocess.STDOUT, env=environment)
    _live.add(process.pid)
    try:

        def is_ready() -> bool:
            if process.poll() is not None:
                said = "; ".join(log.read_text(errors="replace").splitlines())
                raise DoesNotRun(shorten(said, _SAID) or f"exit code {process.returncode}")
            return ready(process.pid)

        wait_until(is_ready, f"{words[0]} is ready", timeout_s, seen=lambda: log.read_text(errors="replace")[-500:])
        yield process.pid
    finally:
        _live.discard(process.pid)
        process.send_signal(ended_by)
        try:
            process.wait(_END_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


@contextmanager
def own_cgroup() -> Iterator[Path]:
    """A cgroup for a server of several processes, some of which end before it; yields its folder."""
    folder = find_root() / f"latencyprobe-bench-{os.getpid()}"
    folder.mkdir()
    _cgroups.add(folder)
    try:
        yield folder
    finally:
        _cgroups.discard(folder)
        folder.rmdir()


def cgroup_ns(folder: Path) -> int:
    """CPU time of all that ran in a cgroup, to a microsecond."""
    usage = next(line for line in (folder / "cpu.stat").read_text().splitlines() if line.startswith("usage_usec"))
    return int(usage.split()[1]) * 1000


def finished(*words: object, cpu: int) -> str:
    """Run a process on one processor to its end and return what it printed."""
    return subprocess.run(on(cpu, *words), check=True, capture_output=True, text=True).stdout


def on(cpu: int, *words: object) -> list[str]:
    """The command line of a process on one processor, which dies with the thread that starts it."""
    return ["setpriv", "--pdeathsig", "KILL", "taskset", "-c", str(cpu), *map(str, words)]


def own_s() -> float:
    """CPU time of this process and of all that it has started."""
    usages = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    running_ns = sum(map(cpu_ns, _live)) + sum(map(cgroup_ns, _cgroups))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages) + running_ns / 1e9


def ended_children_ns() -> float:
    """CPU time of the processes that have run to their end."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (usage.ru_utime + usage.ru_stime) * 1e9


def running_ns() -> int:
    """CPU time so far of the processes that still run."""
    return sum(map(cpu_ns, _live))
