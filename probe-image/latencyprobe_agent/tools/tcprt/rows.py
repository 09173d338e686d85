"""Records of TCP-RT in the corrected account, as `latencyprobe tcprt` prints them: JSON objects and table rows.

docs/design/evidence.md, "TCP-RT deviations" and "TCP-RT outputs". Fields have the names of the V6 fields where they
mean the same.
"""

from latencyprobe_agent.tools.tail import timestamp
from latencyprobe_agent.tools.tcprt.machine import Record
from latencyprobe_agent.tools.tcprt.operations import NO_RTT

_ROW = "%-15s %-3s %-22s %-22s %6s %10s %10s %10s %10s %10s %11s %8s %s"
HEADER = _ROW % (
    *("TIME", "REC", "LOCAL", "PEER", "TASK", "TOTAL-MS", "SERVER-MS", "RECV-MS"),
    *("SENT-BYTES", "RECV-BYTES", "RETRANSMITS", "RTT-MS", "REORDER"),
)


def flow(record: Record) -> dict[str, object]:
    """Return when and where: what a replay knows of the header that live records have."""
    (local_addr, local_port), (peer_addr, peer_port) = record.connection.local, record.connection.peer
    return {
        "time": timestamp(record.unix_ns),
        "local_addr": str(local_addr),
        "local_port": local_port,
        "peer_addr": str(peer_addr),
        "peer_port": peer_port,
    }


def fields(record: Record) -> dict[str, object]:
    """Return the record's own fields: `None` is what is not known."""
    found: dict[str, object] = {
        "record": record.kind,
        "side": record.connection.side,
        "partial": record.connection.partial,
    }
    rtt = {"min_rtt_us": _rtt_us(record)}
    if record.kind == "E":
        volumes = {"tasks": record.task_no, "sent_bytes": record.sent_bytes, "unacked_bytes": record.unacked_bytes}
        retransmits = {"retransmits": record.retransmits, "handshake_retransmits": record.handshake_retransmits}
        return found | volumes | {"recv_bytes": record.received_bytes} | retransmits | rtt
    duration_us = (record.end_ns - record.start_ns) // 1000
    found |= {"task_no": record.task_no, "start": timestamp(record.start_ns)}
    packets = {"reorder": record.reorder, "mss": record.mss}
    if record.kind == "N":
        return found | {"elapsed_us": duration_us, "request_bytes": record.received_bytes} | packets
    found["elapsed_us" if record.kind == "W" else "total_us"] = duration_us
    found |= {"server_us": record.server_us, "recv_us": record.recv_us, "sent_bytes": record.sent_bytes}
    found["response_bytes" if record.kind == "P" else "recv_bytes"] = record.received_bytes
    if record.kind == "W":
        found["unacked_bytes"] = record.unacked_bytes
    return found | {"retransmits": record.retransmits} | rtt | packets


def row(record: Record) -> str:
    """Return the row of a record; times in ms, `-` where a record of its kind has no such value."""
    task, answered = record.kind != "E", record.kind in "RPW"
    rtt_us = _rtt_us(record)
    return _ROW % (
        timestamp(record.unix_ns)[11:26],
        record.kind,
        record.connection.local,
        record.connection.peer,
        record.task_no,
        _ms((record.end_ns - record.start_ns) // 1000) if task else "-",
        *((_ms(record.server_us), _ms(record.recv_us)) if answered else ("-", "-")),
        record.sent_bytes if record.kind != "N" else "-",
        record.received_bytes,
        record.retransmits,
        "-" if rtt_us is None else _ms(rtt_us),
        int(record.reorder) if task else "-",
    )


def _rtt_us(record: Record) -> int | None:
    return None if record.min_rtt_us == NO_RTT else record.min_rtt_us


def _ms(us: int) -> str:
    return f"{us / 1000:.3f}"
