"""What a client knows of its own RPCs, and whether the measurement says the same: no event that was none, none lost."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.halves import halves
from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role

ROLES = (Role.CLIENT, Role.SERVER)
AMBIGUOUS = (
    *(Excluded.PIPELINED, Excluded.MULTIPLEXED, Excluded.OVERLAP),
    *(Excluded.PUSH, Excluded.STREAMING, Excluded.OUT_OF_STEP),
)
# A server's send call may return after its client has had the answer. Far below any pause of a test's traffic.
SEND_RETURNS_NS = 100_000_000


def boot_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


class Calls:
    """A client's log of its RPCs: boot-time stamps around each, and whether it failed. Any thread may write."""

    def __init__(self) -> None:
        self._log: list[tuple[int, int, bool]] = []

    @contextmanager
    def call(self) -> Iterator[None]:
        """One RPC; it has failed if it raises."""
        begun_ns, failed = boot_ns(), True
        try:
            yield
            failed = False
        finally:
            self._log.append((begun_ns, boot_ns(), failed))

    def took(self, duration_ns: int) -> None:
        """One RPC without failure, by a client's own clock."""
        self._log.append((0, duration_ns, False))

    def __len__(self) -> int:
        return len(self._log)

    @property
    def failed(self) -> int:
        return sum(failed for _, _, failed in self._log)

    @property
    def longest_ns(self) -> NDArray[np.int64]:
        """How long each took, the longest first."""
        took = [ended_ns - begun_ns for begun_ns, ended_ns, _ in self._log]
        return np.sort(np.array(took, np.int64))[::-1]


def events(records: NDArray[np.void], role: Role) -> NDArray[np.void]:
    """Those of a role that an objective counts."""
    return records[(records["role"] == role) & (records["excluded"] == Excluded.NONE)]


def failures(some: NDArray[np.void]) -> int:
    return int((some["outcome"] != Outcome.OK).sum())


def excluded(records: NDArray[np.void], role: Role) -> Counter[str]:
    """Why the others of a role are no events."""
    mine = records[(records["role"] == role) & (records["excluded"] != Excluded.NONE)]
    return Counter(Excluded(reason).name.lower() for reason in mine["excluded"].tolist())


def of_port(records: NDArray[np.void], port: int) -> NDArray[np.void]:
    """Those of connections to a server's port, both ends."""
    return records[np.where(records["role"] == Role.SERVER, records["local_port"], records["peer_port"]) == port]


def of_clients(records: NDArray[np.void], *ports: int) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Those of connections that were dialled from these ports, both ends, and all others."""
    dialled_from = np.where(records["role"] == Role.SERVER, records["peer_port"], records["local_port"])
    mine = np.isin(dialled_from, ports)
    return records[mine], records[~mine]


def durations_ns(records: NDArray[np.void]) -> NDArray[np.int64]:
    return halves(records.copy()).duration_ns


def coverage(records: NDArray[np.void], role: Role) -> float:
    """The share of what may be RPCs that was counted: docs/slo.md, without what was lost."""
    mine = records[records["role"] == role]
    ambiguous, counted = np.isin(mine["excluded"], AMBIGUOUS).sum(), (mine["excluded"] == Excluded.NONE).sum()
    return float(counted / max(counted + ambiguous, 1))


def tell(software: str, traffic: str, calls: Calls | int | str, records: NDArray[np.void]) -> None:
    """Print a row of docs/software.md: software, traffic, the client's count, then for both ends events, exclusions and
    coverage."""

    def reasons(role: Role) -> str:
        return ", ".join(f"{name} {count}" for name, count in sorted(excluded(records, role).items())) or "none"

    def bad(role: Role) -> str:
        failed = failures(events(records, role))
        return f" ({failed} failed)" if failed else ""

    count = len(calls) if isinstance(calls, Calls) else calls
    cells = [
        " / ".join(f"{len(events(records, role))}{bad(role)}" for role in ROLES),
        " / ".join(reasons(role) for role in ROLES),
        " / ".join(f"{100 * coverage(records, role):.4g} %" for role in ROLES),
    ]
    print(f"| {software} | {traffic} | {count} | {' | '.join(cells)} |")


def assert_events_are_calls(calls: Calls, records: NDArray[np.void], *, missing: int = 0) -> None:
    """At both ends: one event for each call, at most `missing` fewer; as many failed; and none that took longer than
    what the client saw: the longest event not longer than the longest call, the second than the second, and so on."""
    for role in ROLES:
        mine = events(records, role)
        assert len(calls) - missing <= len(mine) <= len(calls), f"{role.name}: {len(mine)} events of {len(calls)} calls"
        assert failures(mine) == calls.failed, f"{role.name}: {Counter(Outcome(o).name for o in mine['outcome'])}"
        longest_ns = np.sort(durations_ns(mine))[::-1]
        allowed_ns = calls.longest_ns[: len(mine)] + (SEND_RETURNS_NS if role is Role.SERVER else 0)
        assert (longest_ns <= allowed_ns).all(), f"{role.name}: events of {longest_ns[longest_ns > allowed_ns]} ns"


def assert_nothing_is_lost(records: NDArray[np.void]) -> None:
    """Ordinary traffic: each end counts at least 999 of 1,000 of what may be RPCs."""
    for role in ROLES:
        assert coverage(records, role) >= 0.999, f"{role.name}: {excluded(records, role)}"
