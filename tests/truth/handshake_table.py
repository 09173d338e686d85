"""The programs of handshakes from packets without an interface: what they make of frames that a test hands them."""

import errno
from dataclasses import replace

import numpy as np

from latencyprobe_agent.kernel.libbpf import Object
from latencyprobe_agent.kernel.maps import possible_cpus
from latencyprobe_agent.kernel.ring import Ring
from latencyprobe_agent.vocabulary.records import CONFIG, HANDSHAKE, ConnectOutcome, Role
from tests.truth.frames import Segment
from tests.truth.recorder import OBJECTS

NEXT = -1  # TCX_NEXT, TC_ACT_UNSPEC

V4 = Segment("10.99.0.1", 40000, "10.99.0.2", 7000, seq=1000, timestamps=(500, 0))
V6 = replace(V4, src="fd99::1", dst="fd99::2")


class Table:
    """The programs, attached nowhere: frames are given to them one by one."""

    def __init__(self) -> None:
        self.object = Object(OBJECTS / "handshake_tc.bpf.o")
        self.programs = {program.name: program for program in self.object.programs()}
        self.object.load()
        ring = self.object.map("handshakes")
        self._ring = Ring.open(ring.fd, ring.max_entries, HANDSHAKE)
        self._sweeper = self.programs["flush"].attach(self.object.map("pending"))

    def clear(self, timeout_ns: int) -> None:
        """Know nothing, and have counted nothing."""
        config = np.zeros((), CONFIG)
        config["answer_timeout_ns"], config["wakeup_bytes"] = timeout_ns, 1 << 20
        self.object.map("config").update(bytes(4), config.tobytes())
        for name in ("pending", "ended"):
            for key in list(self.object.map(name).keys()):
                self.object.map(name).delete(key)
        for name in ("awaited", "tally", "lost"):
            counters = self.object.map(name)
            for i in range(counters.max_entries):
                counters.update(np.uint32(i).tobytes(), bytes(counters.value_size))
        self.records()

    def leave(self, *segments: Segment) -> None:
        """Let segments go out."""
        for segment in segments:
            self.run("outgoing__ethernet", segment.frame())

    def come(self, *segments: Segment) -> None:
        """Let segments come in."""
        for segment in segments:
            self.run("incoming__ethernet", segment.frame())

    def run(self, name: str, frame: bytes) -> None:
        """Run a program; whatever the frame is, it passes unchanged. The kernel may refuse a frame with half an IP
        header; those go over a wire."""
        try:
            passed = self.programs[name].run(frame)
        except OSError as e:
            if e.errno != errno.EINVAL or len(frame) >= 14 + 40:
                raise
            return
        assert (NEXT, frame) == passed

    def records(self) -> np.ndarray:
        """What was reported since the last call."""
        return self._ring.drain()

    def one(self) -> np.void:
        """The one handshake that was reported since the last call."""
        records = self.records()
        assert 1 == len(records)
        return records[0]

    def sweep(self) -> None:
        """Look for what nobody answers."""
        self._sweeper.read()

    def size(self) -> int:
        """How many handshakes go on."""
        size = len(list(self.object.map("pending").keys()))
        assert (size > 0) == (self.awaited()[0] > 0)
        return size

    def awaited(self) -> list[int]:
        """How many of them a packet may end; how many a plain ACK may."""
        found = np.zeros(2, np.uint64)
        self.object.map("awaited").lookup(bytes(4), found.view(np.uint8).data)
        return found.tolist()

    def counted(self, map_name: str, reason: int) -> int:
        """A counter of `tally` or `lost`."""
        per_cpu = np.zeros(possible_cpus(), np.uint64)
        self.object.map(map_name).lookup(np.uint32(reason).tobytes(), per_cpu.view(np.uint8).data)
        return int(per_cpu.sum())

    def close(self) -> None:
        """Free everything."""
        self._sweeper.close()
        self._ring.close()
        self.object.close()


def outcome(record: np.void) -> tuple[str, str]:
    return Role(record["flow"]["role"]).name.lower(), ConnectOutcome(record["outcome"]).name.lower()
