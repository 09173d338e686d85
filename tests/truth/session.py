"""Measuring sessions over the real kernel programs, without agent, identity or telemetry around them.

What their ring holds is drained by a thread of the test, or by a process (drainer.py) that can be stopped.
"""

import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import DEFAULT_PAUSE_NS, NodePlan, Role, SpanPolicy, Target, WaitPolicy
from latencyprobe.protocol import Protocol
from latencyprobe_agent.kernel.hooks import KERNEL_BTF, Hooks
from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.loader import Demands, event_of, load
from latencyprobe_agent.kernel.programs import Programs
from latencyprobe_agent.measure.halves import Halves, halves
from latencyprobe_agent.measure.pairing import LocalJoin, Pairs
from latencyprobe_agent.measure.rules import NO_RULES, NO_WAITS, compile_rules
from latencyprobe_agent.signals.table import EXCHANGES
from latencyprobe_agent.vocabulary.records import EXCHANGE, ExchangeFlags
from tests.support.waiting import wait_until
from tests.truth.taking_away import take_away

OBJECT = Path(__file__).parents[2] / "build" / "bpf" / "exchange.bpf.o"
MS = 1_000_000


class Session:
    """Programs that are attached, a thread that drains their ring as the agent does, and all records so far.

    `take`: where the thread gets them from, instead of the ring.
    """

    def __init__(self, programs: Programs, drain_s: float, take: Callable[[], NDArray[np.void]] | None = None) -> None:
        self.programs = programs
        self._drain_s = drain_s
        self._take = take or programs.drain
        self.rules = NO_RULES
        self.whole = True  # until something is skipped
        self._batches = [np.empty(0, EXCHANGE)]
        self._drains = 0  # that are over
        self._ended = threading.Event()
        self._drainer = threading.Thread(target=self._drain)
        self._drainer.start()

    @property
    def kernel_cookies(self) -> bool:
        """Tell whether sockets have the kernel's own cookies, as they have with socket storage."""
        return "flush" in self.programs.variants

    def measure(
        self,
        *ports: int,
        thresholds_ns: tuple[int, ...] = (25 * MS,),
        setup_turns: int = 0,
        pause_ns: int = DEFAULT_PAUSE_NS,
        idle_timeout_ns: int = 2000 * MS,
        owner_by_process: bool = False,
        records_per_second: int = 0,
        own_tgid: int = 0,
        evidence: tuple[str, ...] = (),
        waits: WaitPolicy = NO_WAITS,
        cgroup_id: int | None = None,
        protocol: Protocol = Protocol.TURNS,
        tls: bool = False,
    ) -> None:
        """Measure both ends of connections to `ports`, of the whole machine's sockets or of a cgroup's.

        No ports: nothing. `evidence`: signals.
        """
        target = Target(
            id="default/truth/server",
            namespace="default",
            probe="truth",
            probe_uid="",
            name="server",
            role=Role.SERVER,
            thresholds_ns=thresholds_ns,
            setup_turns=setup_turns,
            spans=SpanPolicy(slower_than_ns=25 * MS, ratio=0.01, max_per_second=1000),
            ports=ports,
            clients=True,
            evidence=evidence,
            waits=waits,
            pause_ns=pause_ns,
            protocol=protocol,
            tls=tls,
        )
        targets = (target,) if ports else ()
        plan = NodePlan(node="", generation=1, digest="", targets=targets, objectives=(), host=True)
        self.rules = compile_rules(plan, {}, self.rules)
        if cgroup_id is not None:
            self.rules = replace(self.rules, scopes={cgroup_id: self.rules.host}, host=(0, 0))
        self.programs.apply(
            self.rules,
            idle_timeout_ns=idle_timeout_ns,
            own_tgid=own_tgid,
            owner_by_process=owner_by_process,
            records_per_second=records_per_second,
            http2=protocol is Protocol.HTTP2,
        )

    def records(self, at_least: int = 0, timeout_s: float = 60) -> np.ndarray:
        """All records so far, once there are `at_least` so many."""
        wait_until(
            lambda: self._count() >= at_least,
            f"{at_least} records",
            timeout_s,
            seen=lambda: f"{self._count()}, lost: {self.programs.lost()}",
        )
        return np.concatenate(list(self._batches))

    def drained(self) -> np.ndarray:
        """All records so far, those that are in the ring now included."""
        before = self._drains
        wait_until(lambda: self._drains >= before + 2, "a drain that begins after now has ended")
        return self.records()

    def fresh_records(self, at_least: int, timeout_s: float = 5) -> np.ndarray:
        """Records that no such call has handed out yet, once there are `at_least` so many, or after the deadline."""
        with suppress(AssertionError):
            wait_until(lambda: self._count() >= at_least, "records", timeout_s)
        taken, self._batches = self._batches, [np.empty(0, EXCHANGE)]
        return np.concatenate(taken)

    def records_of_closed(self, sockets: int) -> np.ndarray:
        """All records so far, once the last of `sockets` sockets has come."""

        def closed() -> int:
            records = self.records()
            return len(set(records["sock_cookie"][records["flags"] & ExchangeFlags.CLOSED != 0]))

        wait_until(lambda: closed() == sockets, f"the end of {sockets} sockets", seen=closed)
        return self.records()

    def records_of_ended(self) -> np.ndarray:
        """All records so far, once those have come of all exchanges that the kernel has counted and not sampled out."""

        def ended() -> int:
            counts = self.programs.counts()[1]
            return int(counts["classes"].sum() - counts["sampled_out_records"].sum())

        wait_until(lambda: self._count() >= ended(), "a record of each", seen=lambda: f"{self._count()} of {ended()}")
        return self.records()

    def skipped(self) -> Counter[str]:
        """Event → how often the kernel skipped its programs, because they would have run inside themselves."""
        found: Counter[str] = Counter()
        for program in self.programs._loaded.programs:
            found[event_of(program)[0]] += program.recursion_misses()
        return found

    def skip(self, *events: str) -> None:
        """Run the programs of these events no more."""
        self.whole = False
        take_away(self.programs, *events)

    def connections_in_hash(self) -> dict[bytes, bytes]:
        """Address of each measured socket → its connection, where they are kept in a hash.

        Those that no target has any more are left out.
        """
        found, connections = {}, self.programs.map("connections")
        value = np.zeros(connections.value_size // 4, np.uint32)  # begins with the lock and the set of targets
        for key in connections.keys():  # noqa: SIM118 - not a dict
            if connections.lookup(key, memoryview(value.view(np.uint8))) and value[1]:
                found[key] = value.tobytes()
        return found

    def pairs(self, records: np.ndarray) -> tuple[Halves, Pairs]:
        """The halves of `records`, row by row, and what joins among them."""
        measured = halves(records.copy())
        return measured, LocalJoin(limit=len(records) + 1).join(measured)

    def end(self) -> Programs | None:
        """Drain no more; return the programs, as they are, unless that has been done before."""
        if self._ended.is_set():
            return None
        self._ended.set()
        self._drainer.join()
        return self.programs

    def close(self) -> None:
        """Detach everything; again: nothing."""
        if programs := self.end():
            programs.close()

    def _count(self) -> int:
        return sum(map(len, self._batches))

    def _drain(self) -> None:
        while not self._ended.wait(self._drain_s):
            while len(batch := self._take()):
                self._batches.append(batch)
            self._drains += 1


def open_programs(entries: Mapping[str, int], path: Path = OBJECT) -> Programs:
    """Programs with smaller maps than compiled. `entries`: map → its size."""

    def adjust(opened: Object) -> None:
        for name, size in entries.items():
            opened.map(name).max_entries = size

    with Hooks(KERNEL_BTF) as hooks:
        return Programs(load(path, None, hooks, Demands(adjust)), EXCHANGES)


class Drainer:
    """A process that drains the ring of `programs`; what it has taken is in a file. Stop it, go on, terminate it."""

    def __init__(self, programs: Programs, folder: Path) -> None:
        ring = programs.map(EXCHANGES.ring)
        self._file, self._taken = folder / "records", 0
        words = [Path(__file__).with_name("drainer.py"), str(ring.fd), str(ring.max_entries), self._file]
        self.process = subprocess.Popen([sys.executable, *words], pass_fds=[ring.fd])
        wait_until(self._file.exists, "the drainer drains")

    def stop(self) -> None:
        """Stand still (SIGSTOP), as an agent does that gets no CPU time."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Drain again."""
        self.process.send_signal(signal.SIGCONT)

    def take(self) -> NDArray[np.void]:
        """The next records that it has written."""
        count = self._file.stat().st_size // EXCHANGE.itemsize - self._taken
        records = np.fromfile(self._file, EXCHANGE, count, offset=self._taken * EXCHANGE.itemsize)
        self._taken += count
        return records

    def close(self) -> None:
        """Let it take what is in the ring, and end."""
        self.go_on()
        self.process.terminate()
        self.process.wait()
