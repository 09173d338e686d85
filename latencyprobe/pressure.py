"""What a container can be held up by inside its host, as its cgroup tells: one table for agent, store and report.

A kind's `code` stands for it in the store and is never changed nor used again. docs/slo.md says the same for users.
"""

from typing import NamedTuple

THROTTLED = "throttled"


class Kind(NamedTuple):
    """`told`: of containers, in the report; `remedy`: what to do where it makes requests slow."""

    name: str
    code: int
    told: str
    remedy: str


ALL = (
    Kind(THROTTLED, 0, "throttled by their CPU quota", "raise limits.cpu"),
    Kind("memory", 1, "waiting for memory", "raise limits.memory"),
    Kind("io", 2, "waiting for I/O", "give them a faster volume, or more memory for its cache"),
    Kind("cpu", 3, "waiting for a CPU", "raise requests.cpu, or move neighbours away"),
)
"""The order is that of advice: waiting for a CPU has being throttled in it."""

BY_NAME = {kind.name: kind for kind in ALL}
