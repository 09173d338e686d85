"""The state machine of TCP-RT: the operations of one connection in, its records out. docs/design/evidence.md, "TCP-RT".

A task is one request and its response. `Local`: of a connection that this host serves; `Peer`: of one that it opened.
Pure. bpf/tcprt_machine.h is the same machine, and the tests compare the two.

Every record has two accounts of what the original gets wrong: the fields `v6_*` repeat it, the others are corrected.
Sequence numbers are u32 and wrap; times are ns of the operations' clock, `*_us` those that the original keeps in µs.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass

from latencyprobe_agent.tools.tcprt.operations import NO_RTT, U32, Endpoint, Operation, Side
from latencyprobe_agent.tools.tcprt.state import Received, Sent, Stage, Task, Times, apart


@dataclass(frozen=True)
class Connection:
    """Whose record it is. `side`: local, this host serves it; peer, this host opened it."""

    side: Side
    local: Endpoint
    peer: Endpoint
    partial: bool = False


@dataclass(frozen=True)
class Record:
    """One task (R, P, W, N) or connection (E). `unix_ns`: of R and P the end of the task, else of its emission.

    `sent_bytes`, `received_bytes`: payload of the task, or of the connection in E. `end_ns`: R: the ACK of the last
    response byte; P: the last response byte; else the emission. `seq`, `end_seq`: range of the message that this end
    sent, equal if there is none. `retransmits`: of the task; in E of the connection, its handshake apart.
    """

    kind: str
    connection: Connection
    unix_ns: int
    start_ns: int
    end_ns: int
    v6_end_ns: int
    task_no: int
    server_us: int
    recv_us: int
    sent_bytes: int
    received_bytes: int
    unacked_bytes: int
    v6_sent_bytes: int
    v6_received_bytes: int
    v6_unacked_bytes: int
    seq: int
    end_seq: int
    retransmits: int
    handshake_retransmits: int
    min_rtt_us: int
    mss: int
    reorder: bool


class _Machine(ABC):
    """What both sides share: the open task, and what the connection sent and received."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        self._connection = connection
        self._handshake_retrans = op.total_retrans
        self._task = Task(op.total_retrans)
        self._times = Times.of(op)
        self._sent = Sent.of(op)
        self._received = Received.of(op)

    def apply(self, op: Operation) -> list[Record]:
        """Take one operation; return what it ends, in order. After `release` the machine is done."""
        if op.op == "send_data":
            self._sent.add(op)
            return self._send_data(op)
        if op.op == "recv_data":
            ended = self._recv_data(op)
            self._received.add(op)
            return ended
        if op.op == "release":
            return [*(self._release(op) if self._task.task_no else ()), self._close(op)]
        self._pkts_acked(op)
        return []

    @abstractmethod
    def _send_data(self, op: Operation) -> list[Record]: ...

    @abstractmethod
    def _recv_data(self, op: Operation) -> list[Record]: ...

    @abstractmethod
    def _pkts_acked(self, op: Operation) -> None: ...

    @abstractmethod
    def _release(self, op: Operation) -> list[Record]: ...

    def _begin(self, op: Operation) -> None:
        self._times.begin(op)
        self._task.begin(op)

    def _record(self, kind: str, op: Operation, sent: tuple[int, int], received: tuple[int, int]) -> Record:
        """Make a record of the current task; `sent`, `received`: (corrected, as the original has it)."""
        task, times, ended = self._task, self._times, kind in ("R", "P")
        has_range = kind in ("R", "W", "P") and sent[0] > 0
        return Record(
            kind=kind,
            connection=self._connection,
            unix_ns=times.end_ns if ended else op.unix_ns,
            start_ns=times.start_ns,
            end_ns=times.end_ns if ended else op.unix_ns,
            v6_end_ns=times.v6_end_ns if ended else op.unix_ns,
            task_no=task.task_no,
            server_us=times.server_us,
            recv_us=times.recv_us,
            sent_bytes=sent[0],
            received_bytes=received[0],
            unacked_bytes=max(apart(self._sent.sent_seq, op.snd_una), 0),
            v6_sent_bytes=sent[1] & U32,
            v6_received_bytes=received[1] & U32,
            v6_unacked_bytes=(op.snd_nxt - op.snd_una) & U32,
            seq=(self._range_end() - sent[0]) & U32 if has_range else 0,
            end_seq=self._range_end() if has_range else 0,
            retransmits=(op.total_retrans - (self._handshake_retrans if kind == "E" else task.last_retrans)) & U32,
            handshake_retransmits=self._handshake_retrans,
            min_rtt_us=NO_RTT if op.min_rtt_us is None else op.min_rtt_us,
            mss=op.mss,
            reorder=task.reorder,
        )

    @abstractmethod
    def _range_end(self) -> int: ...

    def _close(self, op: Operation) -> Record:
        return self._record("E", op, self._sent.total(op), self._received.total(op))


class Local(_Machine):
    """The local side: a task is a request received and the response sent, until its last ACK."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        super().__init__(connection, op)
        self._last_una = op.snd_una
        self._acked_seq = op.snd_nxt
        self._task_received = (0, 0)

    def _recv_data(self, op: Operation) -> list[Record]:
        task, times = self._task, self._times
        if task.stage is Stage.REQUEST:
            times.last_us = op.unix_ns // 1000
            task.reorder |= bool(op.ofo)
            return []
        ended = []
        if task.stage is Stage.RESPONSE:
            if apart(op.snd_nxt, op.snd_una) > 1:
                times.v6_end_ns = op.unix_ns
            # a request that comes before the ACK proves the same as the ACK
            if not self._acked(op) and apart(self._sent.sent_seq, op.snd_una) > 0:
                times.end_ns = op.unix_ns
            ended.append(self._response("R", op))
        self._begin(op)
        times.first_us = times.last_us = op.unix_ns // 1000
        self._sent.start_seq = self._acked_seq = op.snd_nxt
        self._last_una = op.snd_una
        task.reorder = bool(op.ofo)
        return ended

    def _send_data(self, op: Operation) -> list[Record]:
        if self._task.stage is Stage.REQUEST:
            self._times.server_us = op.unix_ns // 1000 - self._times.last_us
            self._times.recv_us = self._times.last_us - self._times.first_us
            self._task_received = self._received.message(op)
            self._received.begin(op)
            self._task.stage = Stage.RESPONSE
        return []

    def _pkts_acked(self, op: Operation) -> None:
        self._v6_acked(op)
        self._acked(op)

    def _release(self, op: Operation) -> list[Record]:
        if self._task.stage is Stage.REQUEST:
            return [self._record("N", op, (0, 0), self._received.message(op))]
        if apart(op.snd_nxt, self._sent.start_seq) <= 1:
            return []
        if apart(op.snd_nxt, op.snd_una) > 1:
            return [self._response("W", op)]
        self._v6_acked(op)
        self._acked(op)
        return [self._response("R", op, fin=1)]  # the original takes off a FIN, sent or not

    def _v6_acked(self, op: Operation) -> None:
        if apart(op.snd_una, self._last_una) > 1:
            self._times.v6_end_ns = op.unix_ns
            self._last_una = op.snd_una

    def _acked(self, op: Operation) -> bool:
        """Move the corrected end to this ACK, if it is one of response bytes that none has acknowledged before."""
        sent_seq = self._sent.sent_seq
        acked = sent_seq if apart(op.snd_una, sent_seq) > 0 else op.snd_una
        if apart(acked, self._acked_seq) <= 0:
            return False
        self._acked_seq = acked
        self._times.end_ns = op.unix_ns
        return True

    def _response(self, kind: str, op: Operation, fin: int = 0) -> Record:
        sent, v6_sent = self._sent.message(op)
        return self._record(kind, op, (sent, v6_sent - fin), self._task_received)

    def _range_end(self) -> int:
        return self._sent.sent_seq


class Peer(_Machine):
    """The peer side: a task is a request sent and the response received, until its last byte."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        super().__init__(connection, op)
        self._task_sent = (0, 0)
        self._task_end = op.snd_nxt

    def _send_data(self, op: Operation) -> list[Record]:
        ended = [self._response(op)] if self._task.stage is Stage.RESPONSE else []
        if self._task.stage is not Stage.REQUEST:
            self._begin(op)
            self._received.begin(op)
            self._task.reorder = False
        self._times.last_us = op.unix_ns // 1000
        return ended

    def _recv_data(self, op: Operation) -> list[Record]:
        task, times, now_us = self._task, self._times, op.unix_ns // 1000
        if task.stage is Stage.NONE:
            return []
        if task.stage is Stage.REQUEST:
            self._task_sent, self._task_end = self._sent.message(op), self._sent.sent_seq
            self._sent.start_seq = op.snd_nxt
            times.server_us = now_us - times.last_us
            times.first_us = now_us
            task.stage = Stage.RESPONSE
        else:
            times.recv_us = now_us - times.first_us
        times.end_ns = times.v6_end_ns = op.unix_ns
        task.reorder |= bool(op.ofo)
        return []

    def _pkts_acked(self, op: Operation) -> None:
        pass

    def _release(self, op: Operation) -> list[Record]:
        return [self._response(op)] if self._task.stage is Stage.RESPONSE else []

    def _response(self, op: Operation) -> Record:
        return self._record("P", op, self._task_sent, self._received.message(op))

    def _range_end(self) -> int:
        return self._task_end


def open_machine(connection: Connection, op: Operation) -> Local | Peer:
    """Return the machine of a connection from its operation `init`."""
    return Local(connection, op) if connection.side == "local" else Peer(connection, op)
