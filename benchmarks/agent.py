"""What a record costs the agent in user space, without a kernel: a ring in plain memory, and the agent's own turns.

`cost_of_agent()` compares reading the ring alone with whole turns, interleaved, in CPU time of this process.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import NodePlan, PlannedObjective, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import FakePeers
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.kernel.clock import Clock
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.kernel.ring import Reader
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.counting import Counting
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.loop.http2 import Http2
from latencyprobe_agent.loop.pressure import PressureReader
from latencyprobe_agent.loop.remote_join import RemoteJoiner
from latencyprobe_agent.loop.turn import Parts, Turns
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.sampling import Sampler
from latencyprobe_agent.measure.turn import InForce, Listener
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.records import EXCHANGE, EvidenceFlags, ExchangeClass, Role

_HEADER = 8
_SLOT = _HEADER + EXCHANGE.itemsize
_REQUEST, _RESPONSE = 36, 5  # bytes of a GET of redis-benchmark and of its answer
_THRESHOLD_NS = 1_000_000
_SPANS = SpanPolicy(slower_than_ns=10_000_000, ratio=0.01, max_per_second=100)
_EVIDENCE = EvidenceFlags.RETRANSMITS
_TARGET = Target(
    "bench/redis/get", "bench", "redis", "uid", "get", Perspective.SERVER, (_THRESHOLD_NS,), 0, _SPANS,
    ports=(6379,), clients=True, evidence=("retransmits",),
)  # fmt: skip
_OBJECTIVES = tuple(
    PlannedObjective(
        f"bench/redis/{role}",
        _TARGET.id,
        role,
        role,
        0,
        errors_count_as_bad=True,
        hash=role,
        goal="99",
        window="1d",
        min_events=1,
    )
    for role in Perspective
)


class Load:
    """Halves of RPCs over `connections` as a kernel leaves them in a ring of 8 MiB, both ends on this host.

    Of one in a thousand the other half ends only after the ring has been read.
    """

    def __init__(self, records: int, connections: int) -> None:
        self._dice = np.random.default_rng(7)
        self.size = 8 << 20
        self.records = records
        assert records % 2 == 0
        assert records * _SLOT <= self.size
        self._memory = np.zeros(self.size, np.uint8)
        self._positions = np.zeros((2, 1), np.uint64)
        self.reader = Reader(self._positions[0], self._positions[1], self._memory, EXCHANGE)
        self._first = self._dice.integers(0, 1 << 32, (2, connections))  # sequence number of each end's first byte
        self._turns = np.zeros(connections, np.int64)
        self._late = np.zeros(0, EXCHANGE)

    def fill(self) -> None:
        """Write `records` to the ring, which must be empty."""
        rows = self._halves(self.records // 2)
        apart = self._dice.random(len(rows)) < 0.001
        rows, self._late = np.concatenate([self._late, rows[~apart]]), rows[apart]
        rows, over = rows[: self.records], rows[self.records :]
        self._late = np.concatenate([over, self._late])
        slots = np.zeros((len(rows), _SLOT), np.uint8)
        slots[:, :4] = np.frombuffer(np.uint32(EXCHANGE.itemsize).tobytes(), np.uint8)
        slots[:, _HEADER:] = rows.view(np.uint8).reshape(len(rows), -1)
        at = int(self._positions[1, 0]) % self.size
        content = slots.reshape(-1)
        before_end = min(content.size, self.size - at)
        self._memory[at : at + before_end] = content[:before_end]
        self._memory[: content.size - before_end] = content[before_end:]
        self._positions[1, 0] += np.uint64(content.size)

    def _halves(self, turns: int) -> NDArray[np.void]:
        """Return the next turns' client and server halves: a server's half leaves soon after its client's."""
        dice, connections = self._dice, len(self._turns)
        connection = np.resize(dice.permutation(connections), turns)
        number = self._turns[connection] + np.arange(turns) // connections
        self._turns += np.bincount(connection, minlength=connections)
        start = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + np.arange(turns) * 20_000
        there, process, back = (np.round(dice.lognormal(np.log(ns), 0.8, turns)) for ns in (8_000, 20_000, 9_000))
        process[dice.random(turns) < 0.0005] += 20_000_000
        client, server = self._half(Role.CLIENT, connection, number), self._half(Role.SERVER, connection, number)
        at = start.astype(np.float64)
        for half, names, steps in (
            (client, ("send_start_ns", "send_end_ns"), (0.0, 4_000.0)),
            (server, ("ready_first_ns", "ready_last_ns", "read_first_ns", "read_last_ns"), (there, 0.0, 3_000.0, 0.0)),
            (server, ("send_start_ns", "send_end_ns"), (process, 4_000.0)),
            (client, ("ready_first_ns", "ready_last_ns", "read_first_ns", "read_last_ns"), (back, 0.0, 3_000.0, 0.0)),
        ):
            for name, step in zip(names, steps, strict=True):
                at = at + step
                half[name] = at
        both = np.concatenate([client, server])
        leaves = np.concatenate([np.arange(turns), np.arange(turns) + dice.integers(1, 40, turns)])
        return both.take(np.argsort(leaves, kind="stable"))

    def _half(self, role: Role, connection: NDArray[np.intp], number: NDArray[np.int64]) -> NDArray[np.void]:
        rows = np.zeros(len(connection), EXCHANGE)
        client = role is Role.CLIENT
        rows["sock_cookie"] = connection * 2 + client
        rows["cgroup_id"] = 7 + client
        rows["request_offset"], rows["response_offset"] = number * _REQUEST, number * _RESPONSE
        rows["request_bytes"], rows["response_bytes"] = _REQUEST, _RESPONSE
        rows["request_seq"], rows["response_seq"] = (
            (first[connection] + number * step) % (1 << 32)
            for first, step in zip(self._first, (_REQUEST, _RESPONSE), strict=True)
        )
        mapped = np.frombuffer(bytes(10) + b"\xff\xff\x0a\x00\x00", np.uint8)
        for name, host in (("local_addr", 1 + client), ("peer_addr", 2 - client)):
            rows[name][:, :15], rows[name][:, 15] = mapped, host
        rows["netns_ino"], rows["target_set"], rows["role"] = 4_026_531_840, 1, role
        rows["srtt_us"], rows["rtt_min_us"], rows["conn_class"] = 30, 20, ExchangeClass.PINGPONG
        rows["reader_tgid"] = rows["reader_tid"] = rows["writer_tgid"] = rows["writer_tid"] = 1000 + client
        rows["send_calls"] = rows["recv_calls"] = 1
        rows["local_port"], rows["peer_port"] = (40_000 + connection, 6379) if client else (6379, 40_000 + connection)
        return rows


class _Programs(FakePrograms):
    """Drains a ring in memory."""

    def __init__(self, reader: Reader) -> None:
        super().__init__()
        self.drain = reader.drain  # type: ignore[method-assign]


class _Queue:
    """An outbox that sends nothing."""

    def put(self, body: bytes, count: int) -> None:
        pass


def _in_force() -> InForce:
    plan = NodePlan("bench", 1, "", (_TARGET,), _OBJECTIVES, pair_key=bytes(32), host=True)
    one = TargetSet((_TARGET.id,), (_THRESHOLD_NS,), 0, _SPANS, "bench/redis", _EVIDENCE)
    return InForce(plan, Rules(sets={1: one}, rules={(bytes(16), 0, 1, 0): 1}), FakeResources())  # type: ignore[arg-type, dict-item]


class Drains:
    """Turns of one agent over a ring. `cluster`: with sampler, remote join, evidence and metrics, as beside a
    directory; else with the rows of SLIs alone."""

    def __init__(self, reader: Reader, *, cluster: bool) -> None:
        config, clock, guard = Config(spans_per_second=2000), Clock(), Guard()
        start, programs = clock.now(), cast(Any, _Programs(reader))
        self._in_force, self._guard = _in_force(), guard
        evidence = EvidenceSignals(lambda signal: cast(Any, FakePrograms()), FakeBackground())
        self._listeners: list[Listener] = [SliRows(lambda rows: None, config.upload_interval_s, None)]
        if cluster:
            evidence.follow(self._in_force.rules, 0.0)
            own = SelfMetrics({}, None, config, standalone=False)
            self._listeners.append(
                Metrics(cast(Any, _Queue()), own, config, cast(Any, FakePeers()), start=start, delta=False)
            )
        parts = Parts(
            programs=programs,
            clock=clock,
            counting=Counting(programs, config.metric_interval_s, start),
            http2=Http2(lambda: cast(Any, None), FakeBackground()),
            evidence=evidence,
            sampler=Sampler(config.spans_per_second) if cluster else None,
            joiner=RemoteJoiner(RemoteJoinPost(cast(Any, None)), config) if cluster else None,
            pressure=PressureReader(),
        )
        self._turns = Turns(parts, guard)
        self.joined = 0

    def __call__(self) -> None:
        """Turn until the ring is empty, as `Loop.drain()` does."""
        emptied = False
        while not emptied:
            turn, emptied = self._turns.make(self._in_force)
            for listener in self._listeners:
                self._guard.run(listener.name, partial(listener.take, turn))
            self.joined += len(turn.pairs)
        assert not self._guard.failures, self._guard.problems


class Cost(NamedTuple):
    """CPU ns per record, medians. `turn`: by kind of agent; `ratio`: to reading the ring alone in the same round."""

    ring_ns: float
    turn_ns: dict[str, float]
    ratio: dict[str, float]


def measure(records: int, rounds: int, connections: int) -> Cost:
    """Compare reading the ring alone with turns, in `rounds` rounds of `records` each, in rotated order."""
    load = Load(records, connections)

    def alone() -> None:
        while len(load.reader.drain()):
            pass

    runs: dict[str, Callable[[], None]] = {
        "ring": alone,
        "alone": Drains(load.reader, cluster=False),
        "cluster": Drains(load.reader, cluster=True),
    }
    took: dict[str, list[float]] = {name: [] for name in runs}
    names = list(runs)
    for i in range(rounds + 2):
        for name in names[i % 3 :] + names[: i % 3]:
            load.fill()
            began = time.process_time_ns()
            runs[name]()
            took[name].append((time.process_time_ns() - began) / records)
    ns = {name: np.array(values[2:]) for name, values in took.items()}  # two to warm up
    turns = [name for name in names if name != "ring"]
    return Cost(
        ring_ns=float(np.median(ns["ring"])),
        turn_ns={name: float(np.median(ns[name])) for name in turns},
        ratio={name: float(np.median(ns[name] / ns["ring"])) for name in turns},
    )


def cost_of_agent(records: int, rounds: int) -> dict[str, float]:
    """Return what a record costs: `ring_ns`, `turn_ns` of a cluster's agent, both CPU ns, and their `ratio`.

    The worse one of few connections and many; `records` even, at most 41,942.
    """
    both: Sequence[Cost] = [measure(records, rounds, connections) for connections in (16, 1000)]
    worse = max(both, key=lambda cost: cost.ratio["cluster"])
    return {"ring_ns": worse.ring_ns, "turn_ns": worse.turn_ns["cluster"], "ratio": worse.ratio["cluster"]}
