"""How much memory this process may have, and how much of it the cluster's objects."""

from pathlib import Path

CGROUP = Path("/sys/fs/cgroup")
_FILES = ("memory.max", "memory/memory.limit_in_bytes")  # of version 2 and 1
_NONE = 1 << 50  # bytes; version 1 says 2^63 without a limit
_UNLIMITED = 1 << 30


def limit(cgroup: Path = CGROUP) -> int | None:
    """Return the limit of the container in bytes, None without one."""
    for name in _FILES:
        try:
            said = (cgroup / name).read_text().strip()
        except OSError:
            continue
        if said.isdecimal() and int(said) < _NONE:
            return int(said)
    return None


def room(limit_bytes: int | None) -> int:
    """Return how many bytes the objects of all namespaces may take: a quarter, as plans take another."""
    return _UNLIMITED if limit_bytes is None else limit_bytes // 4
