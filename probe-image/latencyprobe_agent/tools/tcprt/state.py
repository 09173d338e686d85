"""What the state machine of TCP-RT keeps of a connection: its sequence numbers in either direction, and the open task.

Names are those of `struct tcprt_machine` in bpf/tcprt_machine.h. Pairs of byte counts are (corrected, as the original
has it): the original takes sequence numbers as they are; the corrected account ends at the payload seen so far, which
no FIN moves, and sums it in 64 bits.
"""

from dataclasses import dataclass
from enum import IntEnum
from typing import Self

from latencyprobe_agent.tools.tcprt.operations import U32, Operation


class Stage(IntEnum):
    """Where a connection is in its current task."""

    NONE = 0
    REQUEST = 1
    RESPONSE = 2


def apart(a: int, b: int) -> int:
    """Return a − b of two sequence numbers, as signed 32 bits."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


@dataclass
class Sent:
    """What this end sent: where connection (`con_seq`) and message (`start_seq`) began, where it ends (`sent_seq`)."""

    con_seq: int
    start_seq: int
    sent_seq: int
    sent_bytes: int = 0

    @classmethod
    def of(cls, op: Operation) -> Self:
        """Return the state of a connection that opens with `op`."""
        return cls(op.snd_nxt, op.snd_nxt, op.snd_nxt)

    def add(self, op: Operation) -> None:
        """Count what was sent since."""
        self.sent_bytes += max(apart(op.snd_nxt, self.sent_seq), 0)
        self.sent_seq = op.snd_nxt

    def message(self, op: Operation) -> tuple[int, int]:
        """Return the bytes of the current message."""
        return max(apart(self.sent_seq, self.start_seq), 0), op.snd_nxt - self.start_seq

    def total(self, op: Operation) -> tuple[int, int]:
        """Return the bytes of the connection."""
        return self.sent_bytes, op.snd_nxt - self.con_seq


@dataclass
class Received:
    """What this end received: `con_rcv`, `start_rcv`, `received_seq` as in `Sent`; `request_rcv` is the corrected
    `start_rcv`."""

    con_rcv: int
    start_rcv: int
    received_seq: int
    request_rcv: int
    received_bytes: int = 0

    @classmethod
    def of(cls, op: Operation) -> Self:
        """Return the state of a connection that opens with `op`."""
        return cls(op.rcv_nxt, op.rcv_nxt, op.rcv_nxt, op.rcv_nxt)

    def begin(self, op: Operation) -> None:
        """Let the next message begin."""
        self.start_rcv, self.request_rcv = op.rcv_nxt, self.received_seq

    def add(self, op: Operation) -> None:
        """Count what was received since."""
        self.received_bytes += max(apart(op.rcv_nxt, self.received_seq), 0)
        self.received_seq = op.rcv_nxt

    def message(self, op: Operation) -> tuple[int, int]:
        """Return the bytes of the current message."""
        return max(apart(self.received_seq, self.request_rcv), 0), op.rcv_nxt - self.start_rcv

    def total(self, op: Operation) -> tuple[int, int]:
        """Return the bytes of the connection."""
        return self.received_bytes, op.rcv_nxt - self.con_rcv


@dataclass
class Times:
    """Times of the current task. `first_us`, `last_us`: of the message that comes in; until it does, `last_us` is the
    last send's."""

    start_ns: int
    end_ns: int
    v6_end_ns: int
    first_us: int = 0
    last_us: int = 0
    server_us: int = 0
    recv_us: int = 0

    @classmethod
    def of(cls, op: Operation) -> Self:
        """Return the times of a connection that opens with `op`."""
        return cls(op.unix_ns, op.unix_ns, op.unix_ns)

    def begin(self, op: Operation) -> None:
        """Let the next task begin."""
        self.start_ns = self.end_ns = self.v6_end_ns = op.unix_ns
        self.server_us = self.recv_us = 0


@dataclass
class Task:
    """The current task. `last_retrans`: the connection's retransmits when it began."""

    last_retrans: int
    task_no: int = 0
    stage: Stage = Stage.NONE
    reorder: bool = False

    def begin(self, op: Operation) -> None:
        """Let the next task begin."""
        self.last_retrans = op.total_retrans
        self.task_no += 1
        self.stage = Stage.REQUEST
