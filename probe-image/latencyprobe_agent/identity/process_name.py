"""The name of a process of this host, which that process chose."""

from pathlib import Path

from latencyprobe.text import printable

_PROC = Path("/proc")


def process_name(pid: int, proc: Path = _PROC) -> str:
    """Return the name of a process, fit for a terminal; empty if it has ended."""
    try:
        raw = (proc / str(pid) / "comm").read_bytes()
    except OSError:
        return ""
    return printable(raw.removesuffix(b"\n").decode(errors="replace")).strip()
