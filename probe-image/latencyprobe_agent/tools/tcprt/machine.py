"""The state machine of TCP-RT: the operations of one connection in, its records out. tcp-evidence.md B.3, B.4, B.6.

A task is one request and its response. `Local` judges a connection that this host serves, `Peer` one that it opened.
Pure; `replay` feeds it. The program in bpf/tcprt.bpf.c is the same machine, and the tests compare the two.

Every record has two accounts of what the original gets wrong: the fields `v6_*` repeat it, the others are corrected.
Sequence numbers are u32 and wrap; times are ns of the operations' clock, `*_us` those that the original keeps in µs.
"""

from dataclasses import dataclass
from enum import IntEnum

from latencyprobe_agent.tools.tcprt.operations import NO_RTT, U32, Endpoint, Operation, Side


class Stage(IntEnum):
    """Where a connection is in its current task."""

    NONE = 0
    REQUEST = 1
    RESPONSE = 2


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


def apart(a: int, b: int) -> int:
    """Return a − b of two sequence numbers, as signed 32 bits."""
    return ((a - b + 0x80000000) & U32) - 0x80000000


class _Machine:
    """What both sides share: the open task, and the totals of the connection."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        self._connection = connection
        self._stage = Stage.NONE
        self._task_no = 0
        self._con_seq = self._start_seq = op.snd_nxt
        self._con_rcv = self._start_rcv = op.rcv_nxt
        self._start_ns = self._end_ns = self._v6_end_ns = op.unix_ns
        self._first_us = self._last_us = 0
        self._server_us = self._recv_us = 0
        self._last_retrans = self._handshake_retrans = op.total_retrans
        self._reorder = False
        # The corrected account: ends of the payload seen so far, which no FIN moves, and 64-bit sums of it.
        self._sent_seq, self._received_seq = op.snd_nxt, op.rcv_nxt
        self._request_rcv = op.rcv_nxt
        self._sent_bytes = self._received_bytes = 0

    def apply(self, op: Operation) -> list[Record]:
        """Take one operation; return what it ends, in order. After `release` the machine is done."""
        if op.op == "send_data":
            self._sent_bytes += max(apart(op.snd_nxt, self._sent_seq), 0)
            self._sent_seq = op.snd_nxt
            return self._send_data(op)
        if op.op == "recv_data":
            ended = self._recv_data(op)
            self._received_bytes += max(apart(op.rcv_nxt, self._received_seq), 0)
            self._received_seq = op.rcv_nxt
            return ended
        if op.op == "release":
            return [*(self._release(op) if self._task_no else ()), self._close(op)]
        self._pkts_acked(op)
        return []

    def _send_data(self, op: Operation) -> list[Record]:
        raise NotImplementedError

    def _recv_data(self, op: Operation) -> list[Record]:
        raise NotImplementedError

    def _pkts_acked(self, op: Operation) -> None:
        raise NotImplementedError

    def _release(self, op: Operation) -> list[Record]:
        raise NotImplementedError

    def _begin(self, op: Operation) -> None:
        self._start_ns = self._end_ns = self._v6_end_ns = op.unix_ns
        self._last_retrans = op.total_retrans
        self._server_us = self._recv_us = 0
        self._task_no += 1
        self._stage = Stage.REQUEST

    def _record(self, kind: str, op: Operation, sent: tuple[int, int], received: tuple[int, int]) -> Record:
        """Make a record of the current task; `sent`, `received`: (corrected, as the original has it)."""
        ended = kind in ("R", "P")
        has_range = kind in ("R", "W", "P") and sent[0] > 0
        return Record(
            kind=kind,
            connection=self._connection,
            unix_ns=self._end_ns if ended else op.unix_ns,
            start_ns=self._start_ns,
            end_ns=self._end_ns if ended else op.unix_ns,
            v6_end_ns=self._v6_end_ns if ended else op.unix_ns,
            task_no=self._task_no,
            server_us=self._server_us,
            recv_us=self._recv_us,
            sent_bytes=sent[0],
            received_bytes=received[0],
            unacked_bytes=max(apart(self._sent_seq, op.snd_una), 0),
            v6_sent_bytes=sent[1] & U32,
            v6_received_bytes=received[1] & U32,
            v6_unacked_bytes=(op.snd_nxt - op.snd_una) & U32,
            seq=self._range_end(sent[0]) if has_range else 0,
            end_seq=self._range_end() if has_range else 0,
            retransmits=(op.total_retrans - (self._handshake_retrans if kind == "E" else self._last_retrans)) & U32,
            handshake_retransmits=self._handshake_retrans,
            min_rtt_us=NO_RTT if op.min_rtt_us is None else op.min_rtt_us,
            mss=op.mss,
            reorder=self._reorder,
        )

    def _range_end(self, before: int = 0) -> int:
        return (self._sent_seq - before) & U32

    def _close(self, op: Operation) -> Record:
        sent = (self._sent_bytes, op.snd_nxt - self._con_seq)
        return self._record("E", op, sent, (self._received_bytes, op.rcv_nxt - self._con_rcv))


class Local(_Machine):
    """The local side, B.3: a task is a request received and the response sent, until its last ACK."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        super().__init__(connection, op)
        self._last_una = op.snd_una
        self._acked_seq = op.snd_nxt
        self._task_received = (0, 0)

    def _recv_data(self, op: Operation) -> list[Record]:
        if self._stage is Stage.REQUEST:
            self._last_us = op.unix_ns // 1000
            self._reorder |= bool(op.ofo)
            return []
        ended = []
        if self._stage is Stage.RESPONSE:
            if apart(op.snd_nxt, op.snd_una) > 1:
                self._v6_end_ns = op.unix_ns
            # a request that comes before the ACK says the same as the ACK
            if not self._acked(op) and apart(self._sent_seq, op.snd_una) > 0:
                self._end_ns = op.unix_ns
            ended.append(self._response("R", op, op.snd_nxt - self._start_seq))
        self._begin(op)
        self._first_us = self._last_us = op.unix_ns // 1000
        self._start_seq = self._acked_seq = op.snd_nxt
        self._last_una = op.snd_una
        self._reorder = bool(op.ofo)
        return ended

    def _send_data(self, op: Operation) -> list[Record]:
        if self._stage is Stage.REQUEST:
            self._server_us = op.unix_ns // 1000 - self._last_us
            self._recv_us = self._last_us - self._first_us
            self._task_received = self._request_bytes(op)
            self._start_rcv, self._request_rcv = op.rcv_nxt, self._received_seq
            self._stage = Stage.RESPONSE
        return []

    def _pkts_acked(self, op: Operation) -> None:
        self._v6_acked(op)
        self._acked(op)

    def _release(self, op: Operation) -> list[Record]:
        if self._stage is Stage.REQUEST:
            return [self._record("N", op, (0, 0), self._request_bytes(op))]
        if apart(op.snd_nxt, self._start_seq) <= 1:
            return []
        if apart(op.snd_nxt, op.snd_una) > 1:
            return [self._response("W", op, op.snd_nxt - self._start_seq)]
        self._v6_acked(op)
        self._acked(op)
        return [self._response("R", op, op.snd_nxt - self._start_seq - 1)]  # the original takes off a FIN, sent or not

    def _v6_acked(self, op: Operation) -> None:
        if apart(op.snd_una, self._last_una) > 1:
            self._v6_end_ns = op.unix_ns
            self._last_una = op.snd_una

    def _acked(self, op: Operation) -> bool:
        """Move the corrected end to this ACK, if it is one of response bytes that none has acknowledged before."""
        acked = self._sent_seq if apart(op.snd_una, self._sent_seq) > 0 else op.snd_una
        if apart(acked, self._acked_seq) <= 0:
            return False
        self._acked_seq = acked
        self._end_ns = op.unix_ns
        return True

    def _request_bytes(self, op: Operation) -> tuple[int, int]:
        return max(apart(self._received_seq, self._request_rcv), 0), op.rcv_nxt - self._start_rcv

    def _response(self, kind: str, op: Operation, v6_sent: int) -> Record:
        sent = max(apart(self._sent_seq, self._start_seq), 0)
        return self._record(kind, op, (sent, v6_sent), self._task_received)


class Peer(_Machine):
    """The peer side, B.4: a task is a request sent and the response received, until its last byte."""

    def __init__(self, connection: Connection, op: Operation) -> None:
        super().__init__(connection, op)
        self._last_sent_us = 0
        self._task_sent = (0, 0)
        self._task_end_seq = op.snd_nxt

    def _send_data(self, op: Operation) -> list[Record]:
        now_us = op.unix_ns // 1000
        if self._stage is Stage.REQUEST:
            self._last_sent_us = now_us
            return []
        ended = [self._response(op)] if self._stage is Stage.RESPONSE else []
        self._begin(op)
        self._last_sent_us = now_us
        self._start_rcv, self._request_rcv = op.rcv_nxt, self._received_seq
        self._reorder = False
        return ended

    def _recv_data(self, op: Operation) -> list[Record]:
        now_us = op.unix_ns // 1000
        if self._stage is Stage.NONE:
            return []
        if self._stage is Stage.REQUEST:
            self._task_sent = max(apart(self._sent_seq, self._start_seq), 0), op.snd_nxt - self._start_seq
            self._task_end_seq = self._sent_seq
            self._start_seq = op.snd_nxt
            self._server_us = now_us - self._last_sent_us
            self._first_us = now_us
            self._stage = Stage.RESPONSE
        else:
            self._recv_us = now_us - self._first_us
        self._last_us = now_us
        self._end_ns = self._v6_end_ns = op.unix_ns
        self._reorder |= bool(op.ofo)
        return []

    def _pkts_acked(self, op: Operation) -> None:
        pass

    def _release(self, op: Operation) -> list[Record]:
        return [self._response(op)] if self._stage is Stage.RESPONSE else []

    def _response(self, op: Operation) -> Record:
        received = max(apart(self._received_seq, self._request_rcv), 0)
        return self._record("P", op, self._task_sent, (received, op.rcv_nxt - self._start_rcv))

    def _range_end(self, before: int = 0) -> int:
        return (self._task_end_seq - before) & U32


def open_machine(connection: Connection, op: Operation) -> Local | Peer:
    """Return the machine of a connection from its operation `init`."""
    return Local(connection, op) if connection.side == "local" else Peer(connection, op)
