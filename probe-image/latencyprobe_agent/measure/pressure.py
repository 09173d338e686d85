"""How long containers were throttled by their CPU quota and waited for CPU, memory and I/O: differences of readings.

Receives what `identity/pressure.py` read, returns for each container what one interval brought. Pure.
"""

from collections.abc import Mapping
from typing import NamedTuple

from latencyprobe.pressure import THROTTLED
from latencyprobe_agent.identity.pressure import Quota, Reading


class Stall(NamedTuple):
    """One container, since the reading before.

    `container`: the path of its cgroup. `elapsed_us`: the interval; `us`: by kind (latencyprobe/pressure.py), how much
    of it; a kind that is absent is not known. Throttled is an upper bound: the kernel adds up the time of each CPU, so
    what counts is at most the periods in which it throttled, at most the interval; of a container's quota and those
    above it, the one that held up longest. `total`: all since the first reading, as the kernel tells it.
    """

    container: str
    elapsed_us: int
    us: Mapping[str, int]
    total: Reading


def gained(container: str, first: Reading, before: Reading, now: Reading) -> Stall:
    """Return what the interval between two readings brought. `first`: the container's first reading."""
    elapsed_us = now.at_us - before.at_us
    us = {name: _within(now.some_us[name] - total, elapsed_us) for name, total in before.some_us.items()
          if name in now.some_us}  # fmt: skip
    if now.quotas and len(now.quotas) == len(before.quotas):
        us[THROTTLED] = max(
            _within(_throttled_us(quota, then), elapsed_us)
            for quota, then in zip(now.quotas, before.quotas, strict=True)
        )
    return Stall(container, elapsed_us, us, _less(now, first))


def _throttled_us(now: Quota, before: Quota) -> int:
    """Return for how long one level throttled, at most."""
    us = now.throttled_us - before.throttled_us
    periods = now.throttled_periods - before.throttled_periods
    return min(us, periods * now.period_us) if now.period_us else us


def _within(us: int, elapsed_us: int) -> int:
    return max(0, min(us, elapsed_us))


def _less(now: Reading, first: Reading) -> Reading:
    def since(some: Mapping[str, int], then: Mapping[str, int]) -> dict[str, int]:
        return {name: total - then[name] for name, total in some.items() if name in then}

    quotas = tuple(
        Quota(
            quota.periods - then.periods,
            quota.throttled_periods - then.throttled_periods,
            quota.throttled_us - then.throttled_us,
            quota.period_us,
        )
        for quota, then in zip(now.quotas, first.quotas, strict=False)
    )
    some_us, full_us = since(now.some_us, first.some_us), since(now.full_us, first.full_us)
    return Reading(now.at_us - first.at_us, quotas, some_us, full_us)
