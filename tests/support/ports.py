"""TCP ports for servers of tests."""

import os
import random
import socket
from contextlib import suppress

# Below those that the kernel gives to clients. In any order: two test runs do not meet, nor two workers of one.
_worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
_workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
_mine = range(10_000 + _worker, 30_000, _workers)
_candidates = iter(random.sample(_mine, k=len(_mine)))


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
