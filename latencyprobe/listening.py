"""Which TCP ports somebody listens on now, from /proc/net/tcp and tcp6 of this network namespace."""

from pathlib import Path

_LISTEN = "0A"  # TCP_LISTEN, include/net/tcp_states.h


def listening_ports() -> frozenset[int]:
    """Return the ports. A family that this kernel lacks has none."""
    ports = set()
    for table in ("tcp", "tcp6"):
        try:
            lines = Path("/proc/net", table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            _, local, _, state, *_ = line.split()
            if state == _LISTEN:
                ports.add(int(local.rpartition(":")[2], 16))
    return frozenset(ports)


def told() -> str:
    """Return the same in words, for who has to choose one."""
    return f"on this host listen: {', '.join(map(str, sorted(listening_ports()))) or 'nothing'}"
