"""V6 lines, the text format of Alibaba's TCP-RT: `line()` writes one, `parse()` reads every generation of it.

Byte for byte as in docs/design/evidence.md, "TCP-RT lines": decimal, unsigned, unpadded numbers, each followed by one
blank.
"""

from typing import NamedTuple

from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.operations import U32, Endpoint, endpoint

_TASK = ("sent_bytes", "total_us", "min_rtt_us", "retransmits", "task_no", "server_us", "recv_us")
_FIELDS = {
    "R": (*_TASK, "recv_bytes", "reorder", "mss"),
    "P": (*_TASK, "response_bytes", "reorder", "mss"),
    "W": ("sent_bytes", "elapsed_us", *_TASK[2:], "unacked_bytes", "reorder", "mss"),
    "N": ("task_no", "elapsed_us", "recv_bytes", "reorder", "mss"),
    "E": ("task_no", "sent_bytes", "unacked_bytes", "recv_bytes", "retransmits", "min_rtt_us"),
}
# Older writers differ in P alone: the generation shows in its number of fields.
_OLDER_P = {
    7: ("sent_bytes", "total_us", "retransmits", "task_no", "min_rtt_us", "reorder", "mss"),
    5: ("sent_bytes", "retransmits", "task_no", "min_rtt_us", "mss"),
}
_FIRST_P, _FIRST_P_RTT_SHIFT = 5, 10  # the first generation wrote min_rtt >> 10


class Line(NamedTuple):
    """A V6 line. `fields`: by the names of docs/design/evidence.md, "TCP-RT lines", in their order.

    `generation`: 3 is today's; in the first `min_rtt_us` is in steps of 1024 µs.
    """

    flag: str
    sec: int
    usec: int
    peer: Endpoint
    local: Endpoint
    fields: dict[str, int]
    generation: int = 3


def line(record: Record) -> str:
    """Return the line of a record, with its newline; empty without a task: V6 has no line for such a connection."""
    if record.task_no == 0:
        return ""
    values = _values(record)
    start_us = record.start_ns // 1000
    return (
        f"V6 {record.kind} {start_us // 1_000_000} {start_us % 1_000_000} "
        f"{record.connection.peer} {record.connection.local} "
        + "".join(f"{values[name]} " for name in _FIELDS[record.kind])
        + "\n"
    )


def _values(record: Record) -> dict[str, int]:
    total_us = (record.v6_end_ns - record.start_ns) // 1000
    whole = record.kind == "E"  # its retransmits are the connection's, those of the handshake too
    return {
        "sent_bytes": record.v6_sent_bytes,
        "total_us": total_us,
        "elapsed_us": total_us,
        "min_rtt_us": record.min_rtt_us,
        "retransmits": record.retransmits + (record.handshake_retransmits if whole else 0) & U32,
        "task_no": record.task_no,
        "server_us": record.server_us,
        "recv_us": record.recv_us,
        "recv_bytes": record.v6_received_bytes,
        "response_bytes": record.v6_received_bytes,
        "unacked_bytes": record.v6_unacked_bytes,
        "reorder": int(record.reorder),
        "mss": record.mss,
    }


def parse(text: str) -> Line:
    """Read a line, of any generation. Raises ValueError naming what is wrong with it."""
    words = text.removesuffix("\n").removesuffix(" ").split(" ")
    if len(words) < 6 or words[0] != "V6" or words[1] not in _FIELDS:
        raise ValueError(f"{text!r} is no V6 line: V6, one of R P W N E, seconds, µs, peer, local, numbers")
    flag, (sec, usec), numbers = words[1], map(_number, words[2:4]), [_number(word) for word in words[6:]]
    names: tuple[str, ...] = _FIELDS[flag]
    generation = 3
    if flag == "P" and len(numbers) in _OLDER_P:
        names = _OLDER_P[len(numbers)]
        generation = 1 if len(numbers) == _FIRST_P else 2
    if len(names) != len(numbers):
        raise ValueError(f"{text!r} has {len(numbers)} numbers, a record {flag} has {len(names)}")
    fields = dict(zip(names, numbers, strict=True))
    if generation == 1:
        fields["min_rtt_us"] <<= _FIRST_P_RTT_SHIFT
    return Line(flag, sec, usec, endpoint(words[4]), endpoint(words[5]), fields, generation)


def render(parsed: Line) -> str:
    """Write a parsed line of today's generation again, with its newline. Raises ValueError for an older one."""
    if tuple(parsed.fields) != _FIELDS[parsed.flag]:
        raise ValueError(f"a record {parsed.flag} has the fields {', '.join(_FIELDS[parsed.flag])}")
    numbers = "".join(f"{value} " for value in parsed.fields.values())
    return f"V6 {parsed.flag} {parsed.sec} {parsed.usec} {parsed.peer} {parsed.local} {numbers}\n"


def _number(word: str) -> int:
    if not (word.isascii() and word.isdigit()):
        raise ValueError(f"{word!r} is no unsigned decimal number")
    return int(word)
