"""Records of the kernel as those of the state machine, for the live tool: one object per record, at human rates."""

from collections.abc import Iterator
from ipaddress import IPv6Address

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.tools.tcprt.machine import Connection, Record
from latencyprobe_agent.tools.tcprt.operations import Endpoint
from latencyprobe_agent.vocabulary.records import TcprtFlags, TcprtKind, TcprtSide

_ALIKE = (
    *("task_no", "server_us", "recv_us", "sent_bytes", "received_bytes", "unacked_bytes"),
    *("v6_sent_bytes", "v6_received_bytes", "v6_unacked_bytes", "seq", "end_seq"),
    *("retransmits", "handshake_retransmits", "min_rtt_us", "mss"),
)


def decoded(batch: NDArray[np.void], unix_offset_ns: int) -> Iterator[Record]:
    """Yield a batch of TCPRT records; `unix_offset_ns` turns their boot time into Unix time."""
    for row in batch:
        flow, flags = row["flow"], int(row["flags"])
        connection = Connection(
            "local" if row["side"] == TcprtSide.LOCAL else "peer",
            _endpoint(flow["local_addr"], flow["local_port"]),
            _endpoint(flow["peer_addr"], flow["peer_port"]),
            bool(flags & TcprtFlags.PARTIAL),
        )
        stamps = {name: int(row[name]) + unix_offset_ns for name in ("start_ns", "end_ns", "v6_end_ns")}
        yield Record(
            kind=TcprtKind(int(row["kind"])).name,
            connection=connection,
            unix_ns=stamps["end_ns"],
            reorder=bool(flags & TcprtFlags.REORDER),
            **stamps,
            **{name: int(row[name]) for name in _ALIKE},
        )


def _endpoint(packed: NDArray[np.uint8], port: np.uint16) -> Endpoint:
    address = IPv6Address(packed.tobytes())
    return Endpoint(address.ipv4_mapped or address, int(port))
