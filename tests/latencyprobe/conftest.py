"""A LatencyProbe, an empty store, and one filled by hand: an objective that a slow process violates, one met, one
without data."""

import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest

from latencyprobe import parsing, spec
from latencyprobe.plan import Role
from latencyprobe.report.model import LatencyReport
from latencyprobe.sli import Coverage, EvidenceSummary, SliRow, SlowExchange, WaitedFor
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore
from tests.latencyprobe.commands_run import InCluster
from tests.latencyprobe.store_rows import Clock
from tests.support.fake_kubectl import FakeKubectl

MakeProbe = Callable[..., spec.LatencyProbe]
NOW = 1_790_000_000 // 60 * 60


def objective(name: str, namespace: str = "shop", goal: str = "99.9", role: Role = Role.SERVER) -> Objective:
    key = ObjectiveKey(namespace, "checkout", "u1", name, "h1", role)
    return Objective(key, "cart", 25_000_000, goal, "28d", 100, errors_count_as_bad=True)


FAST, CALLS, IDLE = objective("fast"), objective("calls", goal="99", role=Role.CLIENT), objective("idle")


EVIDENCE = {
    59: (EvidenceSummary("handshakes", "ok", 2, 1_021_000_000), EvidenceSummary("retransmits", "rto", 1, 812_000_000)),
    57: (EvidenceSummary("retransmits", "server", 0, 3_000_000), EvidenceSummary("tcprt", "R reordered", 1, 0)),
}


WAITED_FOR = (
    WaitedFor("shop/redis:6379", 3, 34_000_000, "d" * 32),
    WaitedFor("shop/users:8080", 1, 4_000_000, "e" * 32),
)


def exchange(number: int, now: int) -> SlowExchange:
    stages = {"receive": 100_000, "read_delay": 4_000_000, "process": 40_000_000 + 1000 * number, "send": 50_000}
    start_unix_ns = (now - 600) * 10**9 + number
    return SlowExchange(
        f"{number:032x}",
        start_unix_ns,
        sum(stages.values()),
        stages,
        "shop/frontend",
        evidence=EVIDENCE.get(number, ()),
        waited_for=WAITED_FOR if number == 59 else (),
    )


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """Yield it as it was at NOW."""
    yield from filled(tmp_path / "sli.db", NOW)


@pytest.fixture
def store_of_today(tmp_path: Path) -> Iterator[SqliteStore]:
    """Yield it as commands see it, which have no clock to set."""
    yield from filled(tmp_path / "sli.db", int(time.time()) // 60 * 60)


def filled(path: Path, now: int) -> Iterator[SqliteStore]:
    with SqliteStore(path, clock=lambda: now) as opened:
        opened.define("shop", "checkout", [FAST, CALLS, IDLE])
        minutes = range(now - 3600, now, 60)
        opened.add(
            SliRow(
                *(*FAST.key, minute, 990, 10),
                histogram={-319: 990, -147: 10},  # 1 ms and 41.9 ms
                stage_ns={"process": 400_000_000, "read_delay": 40_000_000},
                dominant={"process": 9, "read_delay": 1},
                slowest=(exchange(i, now),),
                peers={"shop/frontend": 10},
                waited_ns={"shop/users:8080": 40_000_000, "shop/redis:6379": 340_000_000},
                cause_ns={"on CPU": 16_000_000, "recvfrom": 376_000_000, "throttled": 400_000},
                coverage=Coverage(seen=1005, excluded=5, measured_ms=60_000, expected_ms=60_000),
                exclusions={"setup": 3, "teardown": 2},
            )
            for i, minute in enumerate(minutes)
        )
        opened.add(
            SliRow(
                *(*CALLS.key, minute, 1000, 0),
                histogram={-319: 1000},
                coverage=Coverage(
                    seen=1010, ambiguous=10, joined=500, measured_ms=57_000, expected_ms=60_000, sampled_out=200
                ),
                exclusions={"push": 9, "overlap": 1},
            )
            for minute in minutes
        )
        yield opened


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def empty_store(tmp_path: Path, clock: Clock) -> Iterator[SqliteStore]:
    """Yield a store whose time is `clock`'s."""
    with SqliteStore(tmp_path / "sli.db", clock=clock, steady=clock) as opened:
        yield opened


@pytest.fixture(scope="session")
def probe() -> MakeProbe:
    """Return who makes a LatencyProbe, with changes to its spec."""

    def make(**changes: object) -> spec.LatencyProbe:
        fields = {
            "targets": [{"name": "cart"}, {"name": "db", "role": "Client", "ports": [5432]}],
            "objectives": [{"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99.9"}],
        }
        return parsing.parse(
            {
                "apiVersion": spec.API_VERSION,
                "kind": "LatencyProbe",
                "metadata": {"name": "checkout", "namespace": "shop", "uid": "u1", "generation": 3},
                "spec": fields | changes,
            }
        )

    return make


@pytest.fixture
def in_cluster(fake_kubectl: FakeKubectl, tmp_path: Path) -> InCluster:
    """Return who makes reports those of the cluster."""

    def make(*reports: LatencyReport) -> None:
        (tmp_path / "reports").write_bytes(msgspec.json.encode({"items": reports}))
        fake_kubectl(f"/bin/cat {tmp_path}/reports")

    return make
