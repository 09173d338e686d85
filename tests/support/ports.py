"""TCP ports for servers of tests."""

import random
import socket
from contextlib import suppress

# Below those that the kernel gives to clients. In any order: two test runs do not meet.
_candidates = iter(random.sample(range(10_000, 30_000), k=20_000))


def free_port() -> int:
    """Return a port that nobody uses, each time another one."""
    for port in _candidates:
        with socket.socket(socket.AF_INET6) as trial, suppress(OSError):
            trial.bind(("::", port))
            return port
    raise AssertionError("no port is free")


def loopback_addresses() -> list[str]:
    """Return the hosts of URLs by which this machine is its own: of IPv4, and of IPv6 where it has that."""
    with socket.socket(socket.AF_INET6) as trial, suppress(OSError):
        trial.bind(("::1", 0))
        return ["127.0.0.1", "[::1]"]
    return ["127.0.0.1"]
