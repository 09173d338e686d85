"""The signal `tcprt`: requests and responses as TCP-RT cuts them, docs/design/evidence.md, "TCP-RT".

Receives batches of TCPRT records. R, W and P explain the exchange whose message they are about; the tool `tcprt` prints
all of them.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals.evidence import Evidence, Explains, Sample
from latencyprobe_agent.signals.join_keys import SENT_BYTES
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import TCPRT, TcprtFlags, TcprtKind

KEY = SENT_BYTES

_NAMES = np.array([kind.name for kind in TcprtKind])
_TASKS = [TcprtKind.R, TcprtKind.P, TcprtKind.N, TcprtKind.W]
_WITH_RESPONSE = [TcprtKind.R, TcprtKind.P, TcprtKind.W]
_DONE = [TcprtKind.R, TcprtKind.P]


def columns(batch: NDArray[np.void]) -> Evidence:
    """Return a batch of TCPRT records as evidence: R, W and P join by the bytes that this end sent. Raises
    TypeError for records of another kind."""
    if batch.dtype != TCPRT:
        raise TypeError(f"expected records of TCPRT, got {batch.dtype}")
    joins = np.isin(batch["kind"], _WITH_RESPONSE) & (batch["seq"] != batch["end_seq"])
    return Evidence(batch, KEY.of(batch["flow"], seq=batch["seq"], end_seq=batch["end_seq"]), joins)


def fields(record: np.void) -> dict[Attribute, AttributeValue]:
    """Return the attributes of a record's span event; times in seconds."""
    return {
        names.TCPRT_RECORD: TcprtKind(int(record["kind"])).name,
        names.TCPRT_RECEIVE: int(record["recv_us"]) / 1e6,
        names.TCPRT_SERVER: int(record["server_us"]) / 1e6,
        names.TCPRT_TOTAL: (int(record["end_ns"]) - int(record["start_ns"])) / 1e9,
        names.TCPRT_REORDER: bool(record["flags"] & TcprtFlags.REORDER),
    }


def attributes(records: NDArray[np.void]) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of the span of an exchange, from its last record."""
    named = fields(records[-1])
    del named[names.TCPRT_RECORD]
    return named


def samples(evidence: Evidence) -> list[Sample]:
    """Return durations (s) of tasks that are done, and the number of tasks by record."""
    rec = evidence.rec
    done, tasks = (np.flatnonzero(np.isin(rec["kind"], kinds)) for kinds in (_DONE, _TASKS))
    total_ns = rec["end_ns"][done] - rec["start_ns"][done]
    endings = {names.TCPRT_RECORD: _NAMES[rec["kind"][tasks]]}
    return [
        Sample(names.TCPRT_DURATION, done, total_ns / 1e9),
        Sample(names.TCPRT_SERVER_DURATION, done, rec["server_us"][done] / 1e6),
        Sample(names.TCPRT_RECEIVE_DURATION, done, rec["recv_us"][done] / 1e6),
        Sample(names.TCPRT_TASKS, tasks, np.ones(len(tasks), np.int64), endings),
    ]


def describe(record: np.void, new_ns: int) -> list[tuple[str, int, int]]:
    """Return the record's letter, 1, and how long this end's own message was under way, for a list of slow exchanges.

    That is what receiving and serving leave of the total: the time until the last ACK. No stage of a server shows it.
    """
    total_us = (int(record["end_ns"]) - int(record["start_ns"])) // 1000
    own_us = total_us - int(record["recv_us"]) - int(record["server_us"])
    reordered = " reordered" if record["flags"] & TcprtFlags.REORDER else ""
    return [(TcprtKind(int(record["kind"])).name + reordered, 1, 1000 * max(0, own_us))]


EXPLAINS = Explains(names.TCPRT_EVENT, fields, samples, describe, attributes)
