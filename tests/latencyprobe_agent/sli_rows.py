"""SLI rows as tests of the uplink hand them over."""

import time
from typing import Any

from latencyprobe.plan import Role
from latencyprobe.sli import SliRow

NOW = int(time.time()) // 60 * 60


def row(minute: int = NOW, good: int = 1, objective: str = "fast", namespace: str = "shop", **more: Any) -> SliRow:
    return SliRow(namespace, "p", "uid", objective, "hash", Role.SERVER, minute, good=good, **more)
