"""Record a signal of evidence: attach any row of the table, alone or beside a session, and look at what comes.

with alone(RETRANSMITS, Filter(port=port)) as recorder:
    ...
    record = recorder.one(client, kind=RetransmitKind.SEGMENT)
"""

import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.evidence import EvidencePrograms, Filter
from latencyprobe_agent.signals.evidence import Evidence
from latencyprobe_agent.signals.table import EvidenceSignal
from latencyprobe_agent.vocabulary.records import EVIDENCE_COUNTS
from tests.support.waiting import wait_until
from tests.truth.netns import Namespace

OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
EVERYTHING = Filter()
_DRAIN_S = 0.02


class Recorder(AbstractContextManager["Recorder"]):
    """Records of attached programs, all of the dtype of `signal`, drained as long as the block runs.

    `port`: only of connections to or from it. `background=False`: nobody reads the ring but who asks for records.
    """

    def __init__(self, signal: EvidenceSignal, *programs: Attached, port: int = 0, background: bool = True) -> None:
        self.programs = programs
        self._signal = signal
        self._port = port
        self._batches = [np.empty(0, signal.record)]
        self._draining = threading.Lock()
        self._ended = threading.Event()
        self._drainer = threading.Thread(target=self._drain_in_background)
        if background:
            self._drainer.start()

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        if self._drainer.is_alive():
            self._drainer.join()

    def __len__(self) -> int:
        """How many records came so far."""
        self._drain()
        return sum(map(len, self._batches))

    def records(self, of: Namespace | socket.socket | None = None, **fields: int) -> NDArray[np.void]:
        """All records so far, in their order. `of`: of sockets in this namespace, or of this socket; `fields`: those
        with these values, in themselves or in their header."""
        self._drain()
        with self._draining:
            self._batches = [np.concatenate(self._batches)]
            (records,) = self._batches
        if isinstance(of, Namespace):
            fields["netns_ino"] = of.inode
        elif of is not None:
            fields["sock_cookie"] = cookie(of)
        for name, value in fields.items():
            column = records[name] if name in records.dtype.names else records["flow"][name]
            records = records[column == value]
        return records

    def one(self, of: Namespace | socket.socket | None = None, **fields: int) -> np.void:
        """The only such record, as soon as it comes."""
        evidence = self.until(len, f"a record of {fields}", of, **fields)
        (record,) = evidence.rec
        return record

    def until(
        self,
        condition: Callable[[Evidence], object],
        what: str,
        of: Namespace | socket.socket | None = None,
        **fields: int,
    ) -> Evidence:
        """Such records as the signal decodes them, once `condition` holds of them; fail after a while with `what`."""
        found: list[Evidence] = []

        def holds() -> object:
            found[:] = [self._signal.columns(self.records(of, **fields))]
            return condition(found[0])

        try:
            wait_until(holds, what)
        except AssertionError as e:
            raise AssertionError(f"{e}; {len(found[0])} came, lost: {dict(self.lost())}") from None
        return found[0]

    def lost(self) -> Counter[str]:
        """Records that never arrived, by reason."""
        found: Counter[str] = Counter()
        for programs in self.programs:
            found.update({reason: n for reason, n in programs.lost().items() if n})
        return found

    def counted(self, role: int | None = None) -> np.void:
        """What the kernel has counted, all owners added up, of connections with this role; not filtered by port."""
        total = np.zeros((), EVIDENCE_COUNTS)
        for programs in self.programs:
            keys, counts = programs.evidence_counts()
            of_role = counts[keys["role"] == role] if role is not None else counts
            for name in EVIDENCE_COUNTS.names:
                total[name] += of_role[name].sum(axis=0)
        return total[()]

    def flush(self) -> None:
        """Let the programs look at what has been idle."""
        for programs in self.programs:
            programs.flush()

    def _drain(self) -> None:
        with self._draining:
            for programs in self.programs:
                while len(batch := programs.drain()):
                    flow = batch["flow"]
                    wanted = (flow["local_port"] == self._port) | (flow["peer_port"] == self._port)
                    self._batches.append(batch[wanted] if self._port else batch)

    def _drain_in_background(self) -> None:
        while not self._ended.wait(_DRAIN_S):
            self._drain()


@contextmanager
def alone(
    signal: EvidenceSignal, wanted: Filter = EVERYTHING, *, background: bool = True, **options: object
) -> Iterator[Recorder]:
    """Attach as a tool does, and record. `options`: of `EvidencePrograms.alone()`."""
    with (
        EvidencePrograms.alone(OBJECTS, signal, wanted, **options) as programs,
        Recorder(signal, programs, background=background) as recorder,
    ):
        yield recorder


@contextmanager
def beside(
    session: Attached, signal: EvidenceSignal, *, ring_bytes: int | None = None, background: bool = True
) -> Iterator[Recorder]:
    """Attach as an agent does, beside measuring programs, and record."""
    with (
        EvidencePrograms.beside(session, OBJECTS, signal, ring_bytes=ring_bytes) as programs,
        Recorder(signal, programs, background=background) as recorder,
    ):
        yield recorder


def cookie(end: socket.socket) -> int:
    """What records know the socket by."""
    return int.from_bytes(end.getsockopt(socket.SOL_SOCKET, 57, 8), "little")  # SO_COOKIE
