"""How close what is measured is to the truth: stamps to the generator's log, round trips of handshakes to a capture.

The oracle is that of the tests (tests/truth, which has to be on the path). A slice gives f8[2, kinds]: median and 99th
percentile of the size of what each kind is off by, in ns; or, with nothing attached, the yardstick that this machine
gives at this moment.
"""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np

from benchmarks.compare import F64
from benchmarks.subjects import LOAD_CPU, SERVER_CPU
from benchmarks.variants import OBJECTS, Batches, Variant, measuring
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.table import HANDSHAKES
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.frames import client_rtts, server_rtts, wire
from tests.truth.handshaking import CLIENT, KERNEL, SERVER, TC, Watch, a_socket, at_packets, listen
from tests.truth.join import NAMES, Truth, match, stamp_errors
from tests.truth.netns import Namespace, joined

SERVER_ADDRESS = "10.99.0.2"


def off(errors_ns: list[F64]) -> F64:
    """Median and p99 of the sizes: f8[2, kinds]."""
    return np.array([np.percentile(np.abs(errors), (50, 99)) for errors in errors_ns]).T


class Rpcs(TemporaryDirectory[str]):
    """64-byte RPCs over loopback, one at a time, each end on a processor of its own."""

    title = "Stamps of RPCs, less the log's nearest reading of the clock"
    yardstick = "a send call"
    kinds = tuple(f"{name} {stamp}" for name in NAMES.values() for stamp in ("send_start", "send_end", "ready", "read"))

    def __init__(self, port: int, count: int) -> None:
        super().__init__()
        self._port, self._count = port, count
        self._kept: Batches | None = None

    def variants(self) -> dict[str, Variant]:
        """With the programs twice, for the A/A control, and without."""
        return {"none": nullcontext, "measured": self._measured, "again": self._measured}

    def slice_ns(self) -> F64:
        """What stamps are off by; without programs, what a send call takes."""
        truth = self._run()
        if self._kept is None:
            calls = [side["send_end_ns"] - side["send_start_ns"] for side in (truth.client, truth.server)]
            return np.full((2, len(self.kinds)), np.median(calls))
        kept = self._kept
        wait_until(lambda: sum(map(len, kept)) == 2 * len(truth), "all records")
        records = np.concatenate(kept)
        errors = stamp_errors(truth, records, match(truth, records))
        stamps = {"ready": "ready_last", "read": "read_last"}  # one segment, one call: the first is the same
        return off([errors[f"{name} {stamps.get(stamp, stamp)}_ns"] for name, stamp in map(str.split, self.kinds)])

    def _run(self) -> Truth:
        server, client = (["taskset", "-c", str(cpu)] for cpu in (SERVER_CPU, LOAD_CPU))
        options = {"total": self._count, "threads": 1, "one_piece": True, "size": 64}
        return workload.run_apart(Path(self.name) / "log", server, client, f"127.0.0.1:{self._port}", **options)

    @contextmanager
    def _measured(self) -> Iterator[None]:
        self._kept = []
        try:
            with measuring(self._port, targeted=True, kept=self._kept):
                yield
        finally:
            self._kept = None


class Handshakes(ExitStack):
    """Connections between two network namespaces, captured at both ends."""

    title = "Round trips of handshakes, less those of a capture"
    yardstick = "a round trip"
    _what = tuple((role, method) for role in (CLIENT, SERVER) for method in (TC, KERNEL))
    kinds = tuple(f"{role.name.lower()} {method.name.lower()}" for role, method in _what)

    def __init__(self, port: int, count: int) -> None:
        super().__init__()
        self._port, self._count = port, count
        self._ends: tuple[Namespace, Namespace] = self.enter_context(joined())
        self._watch: Watch | None = None

    def variants(self) -> dict[str, Variant]:
        """With the programs twice, for the A/A control, and without."""
        return {"none": nullcontext, "measured": self._watched, "again": self._watched}

    def slice_ns(self) -> F64:
        """What round trips are off by; without programs, what one takes."""
        client, server = self._ends
        with workload.receive_stamps(), wire(client) as near, wire(server) as far, listen(server, self._port) as at:
            for _ in range(self._count):
                with a_socket(client, SERVER_ADDRESS) as made:
                    made.connect((SERVER_ADDRESS, self._port))
                    at.accept()[0].close()
            seen = {CLIENT: client_rtts(near.seen(), self._port), SERVER: server_rtts(far.seen(), self._port)}
        if not (watch := self._watch):
            return np.full((2, len(self.kinds)), np.median(list(seen[CLIENT].values())))
        wait_until(lambda: len(watch.records()) == len(self.kinds) * self._count, "all handshakes")
        errors = []
        for role, method in self._what:
            records = watch.records(role, method)
            ports = records["flow"]["local_port" if role == CLIENT else "peer_port"].tolist()
            errors.append(records["rtt_ns"].astype(np.int64) - [seen[role][number] for number in ports])
        return off(errors)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with ExitStack() as stack:
            tc = [stack.enter_context(at_packets(end, self._port)) for end in self._ends]
            kernel = stack.enter_context(EvidencePrograms.alone(OBJECTS, HANDSHAKES, Filter(port=self._port)))
            self._watch = Watch(self._port, kernel, tc)
            yield
            self._watch = None
