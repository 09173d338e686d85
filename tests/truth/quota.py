"""A cgroup of our own with a limit, whichever version of cgroups has the controller."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")
_V2 = (_ROOT, _ROOT / "unified")


@contextmanager
def limited(controller: str, v2: dict[str, str], v1: dict[str, str]) -> Iterator[Path]:
    """Make a cgroup with these files written, for the block. Raises OSError where there is none."""
    for root in _V2:
        available = root / "cgroup.controllers"
        if available.exists() and controller in available.read_text().split():
            (root / "cgroup.subtree_control").write_text(f"+{controller}")
            folder, files = root / f"latencyprobe-{os.getpid()}", v2
            break
    else:
        folder, files = _ROOT / controller / f"latencyprobe-{os.getpid()}", v1
    folder.mkdir()
    try:
        for name, value in files.items():
            (folder / name).write_text(value)
        yield folder
    finally:
        deadline = time.monotonic() + 10
        while True:  # until the last of its processes has gone
            try:
                folder.rmdir()
                break
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.02)


def throttled_ns(folder: Path) -> int:
    """How long the quota has kept tasks of a cgroup off CPUs, as the kernel tells it."""
    told = dict(line.split() for line in (folder / "cpu.stat").read_text().splitlines())
    return int(told["throttled_time"]) if "throttled_time" in told else 1000 * int(told["throttled_usec"])
