"""What the kernel tells of processes and of the whole machine, and the one setting that a bench must have off."""

import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

LOAD_CPU, SERVER_CPU = 0, (os.cpu_count() or 1) - 1
# A cgroup's share of a busy processor, by version, as kubelet makes it of the request of the chart's agents (50m).
_SHARES = {Path("/sys/fs/cgroup/cpu"): ("cpu.shares", 51), Path("/sys/fs/cgroup"): ("cpu.weight", 2)}
_BPF_STATS = Path("/proc/sys/kernel/bpf_stats_enabled")
_KTHREADD = "2"


def cpu_ns(pid: int) -> int:
    """CPU time of all threads of a process, from schedstat."""
    return sum(_schedstat_ns(path) for path in Path(f"/proc/{pid}/task").glob("*/schedstat"))


def user_and_system_s(pid: int) -> tuple[float, float]:
    """CPU time of a process in its own code and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[11]) / os.sysconf("SC_CLK_TCK"), int(fields[12]) / os.sysconf("SC_CLK_TCK")


def kernel_threads_ns() -> int:
    """CPU time of the kernel's own threads so far."""
    return sum(_schedstat_ns(Path(f"/proc/{pid}/schedstat")) for pid in _kernel_threads())


def rss_mb(pid: int) -> float:
    """Resident memory of a process, in 10^6 bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def busy_s() -> float:
    """CPU time that the machine has spent on anything, from /proc/stat."""
    user, nice, system, _idle, _iowait, irq, softirq, steal, *_ = (
        int(word) for word in Path("/proc/stat").read_text().splitlines()[0].split()[1:]
    )
    return (user + nice + system + irq + softirq + steal) / os.sysconf("SC_CLK_TCK")


def switches() -> int:
    """How often processors have gone from one task to another so far."""
    with open("/proc/stat") as stat:  # noqa: PTH123 - one line of many
        return next(int(line.split()[1]) for line in stat if line.startswith("ctxt"))


@contextmanager
def bpf_statistics_off() -> Iterator[None]:
    """Counting program runs would add to what is measured; afterwards the setting is what it was."""
    before = _BPF_STATS.read_text()
    if before.strip() == "0":
        yield
        return
    _BPF_STATS.write_text("0")
    try:
        yield
    finally:
        _BPF_STATS.write_text(before)


def described() -> dict[str, str]:
    """The day, the kernel and the machine, as they stand above every table."""
    models = [line for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")]
    model = models[0].partition(":")[2].strip() if models else platform.machine()
    return {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "kernel": f"Linux {platform.release().partition('-')[0]}",
        "machine": f"{os.cpu_count()} CPUs ({model}, {platform.machine()})",
    }


def _kernel_threads() -> Iterator[str]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # ended meanwhile
            if path.read_text().rpartition(")")[2].split()[1] == _KTHREADD:
                yield path.parent.name


def _schedstat_ns(path: Path) -> int:
    try:
        return int(path.read_text().split()[0])
    except (OSError, IndexError):  # ended meanwhile
        return 0


@contextmanager
def agents_share() -> Iterator[Path | None]:
    """A cgroup whose processes get of a busy processor what an agent's pod gets; None where none can be made."""
    for folder, (file, share) in _SHARES.items():
        made = folder / f"latencyprobe-bench-{os.getpid()}"
        with suppress(OSError):
            made.mkdir()
        try:
            if (made / file).exists():
                (made / file).write_text(str(share))
                yield made
                return
        finally:
            with suppress(OSError):
                made.rmdir()
    yield None
