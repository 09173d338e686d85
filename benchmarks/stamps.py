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

from benchmarks import rounds
from benchmarks.builds import OBJECTS
from benchmarks.compare import F64, paired
from benchmarks.machine import LOAD_CPU, SERVER_CPU
from benchmarks.report import Report
from benchmarks.rounds import Slices, Variant
from benchmarks.variants import Batches, measuring
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.table import HANDSHAKES
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.frames import client_rtts, server_rtts, wire
from tests.truth.handshaking import CLIENT, KERNEL, SERVER, TC, a_socket, at_packets, listen
from tests.truth.join import NAMES, Truth, match, stamp_errors
from tests.truth.netns import Namespace, joined
from tests.truth.recorder import Recorder

SERVER_ADDRESS = "10.99.0.2"
_PORT = 7878


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

    def slice_ns(self, _: object = None) -> F64:
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
            with measuring((self._port,), targeted=True, every_record=True, kept=self._kept):
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
        self._watch: Recorder | None = None

    def variants(self) -> dict[str, Variant]:
        """With the programs twice, for the A/A control, and without."""
        return {"none": nullcontext, "measured": self._watched, "again": self._watched}

    def slice_ns(self, _: object = None) -> F64:
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
        wait_until(lambda: len(watch) == len(self.kinds) * self._count, "all handshakes")
        errors: list[F64] = []
        for role, method in self._what:
            records = watch.records(role=role, method=method)
            ports = records["flow"]["local_port" if role == CLIENT else "peer_port"].tolist()
            errors.append(records["rtt_ns"].astype(np.float64) - [seen[role][number] for number in ports])
        return off(errors)

    @contextmanager
    def _watched(self) -> Iterator[None]:
        with ExitStack() as stack:
            tc = [stack.enter_context(at_packets(end, self._port)) for end in self._ends]
            kernel = stack.enter_context(EvidencePrograms.alone(OBJECTS, HANDSHAKES, Filter(port=self._port)))
            self._watch = stack.enter_context(Recorder(HANDSHAKES, kernel, *tc, port=self._port))
            yield
            self._watch = None


def closeness_of_stamps(report: Report, count: int, turns: int) -> None:
    """Tell how far stamps are off by the truth generator's log, and round trips by a capture."""
    for subject in (Rpcs(_PORT, turns // 10), Handshakes(_PORT, turns // 500)):
        with subject:
            slices, note = rounds.run(subject.title, subject.slice_ns, subject.variants(), count)
        _tell(report, subject, slices, note)


def _tell(report: Report, subject: Rpcs | Handshakes, slices: Slices, note: str) -> None:
    """One subject's table; "again" ÷ the same is the A/A control."""
    yardstick = slices["none"][:, 0, 0]
    rows = []
    for i, kind in enumerate(subject.kinds):
        p50, p99, again = slices["measured"][:, 0, i], slices["measured"][:, 1, i], slices["again"][:, 0, i]
        ratios = [paired(values, beside) for values, beside in ((p50, yardstick), (p99, yardstick), (again, p50))]
        medians = (f"{np.median(values):,.0f}" for values in (p50, p99))
        rows.append((kind, *medians, *(ratio.text(".3f") for ratio in ratios)))
    beside = f"÷ {subject.yardstick} [95 %]"
    columns = ("off", "median ns", "p99 ns", f"median {beside}", "p99 ÷ the same", "A/A of the medians")
    report.table(f"{subject.title} ({note}); {subject.yardstick}: {np.median(yardstick):,.0f} ns", columns, rows)
