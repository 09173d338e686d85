"""Rows of an objective of each perspective, as agents send them."""

from typing import Any

from latencyprobe.plan import Role
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import Objective, ObjectiveKey

NOW = 1_790_000_000 // 60 * 60
OBJECTIVES = {
    role: Objective(
        ObjectiveKey("shop", "checkout", "u1", f"fast-{role}".lower(), "h1", role),
        *("cart", 25_000_000, "99.99999", "90d", 1, True),
    )
    for role in Role
}


def row(role: Role = Role.SERVER, **fields: Any) -> SliRow:
    return SliRow(*OBJECTIVES[role].key, minute=NOW, **fields)
