"""Records and stacks of trackers, made by hand."""

from collections.abc import Sequence

import numpy as np

from latencyprobe_agent.vocabulary.records import TRACKED, TRACKED_STACK


def record(**fields: object) -> np.void:
    """One TRACKED: thread 78 of process 77, from 1 s on, for 50 ms."""
    found = np.zeros((), TRACKED)
    usual = {"start_ns": 10**9, "duration_ns": 50_000_000, "tgid": 77, "tid": 78, "comm": b"worker", "cgroup_id": 5}
    for name, value in {**usual, **fields}.items():
        if isinstance(value, bytes):
            found[name][: len(value)] = np.frombuffer(value, np.uint8)
        else:
            found[name] = value
    one: np.void = found[()]
    return one


def stacks(*of: tuple[int, int, int, Sequence[int]], tid: int = 78, start_ns: int = 10**9) -> np.ndarray:
    """TRACKED_STACKs of one thread's call, each as (kind, flags, elapsed_ns, addresses)."""
    found = np.zeros(len(of), TRACKED_STACK)
    for stack, (kind, flags, elapsed_ns, addresses) in zip(found, of, strict=True):
        stack["tid"], stack["start_ns"], stack["kind"], stack["flags"] = tid, start_ns, kind, flags
        stack["elapsed_ns"], stack["frames"] = elapsed_ns, len(addresses)
        stack["address"][: len(addresses)] = addresses
    return found
