"""`latencyprobe handshakes`: each connection that opens or fails to, with its RTT, what the application waited, why."""

import json
from collections.abc import Iterator

import click
import numpy as np

from latencyprobe.report import units
from latencyprobe_agent.kernel.records import ConnectOutcome, HandshakeFlags, HandshakeMethod, Role
from latencyprobe_agent.signals.table import HANDSHAKES, Signal
from latencyprobe_agent.tools.options import Options, tool_options
from latencyprobe_agent.tools.tail import as_object, batches, endpoint, timestamp

_ROW = "%-15s %-6s %-22s %-22s %-15s %8s %4s %-12s %-6s %s"
_HEADER = _ROW % ("TIME", "ROLE", "CLIENT", "SERVER", "RTT", "CONNECT", "SYNS", "OUTCOME", "METHOD", "IF")


@click.command(
    epilog="""\b
Examples:
  latencyprobe handshakes --port 443
  latencyprobe handshakes --duration 1m -o json
\b
Times are UTC; an RTT such as 1ms..2s? is known to lie between the two.
Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@tool_options
def handshakes(*, options: Options) -> None:
    """Show how long connections take to open, and why some do not."""
    if options.output == "table":
        click.echo(_HEADER)
    for record, unix_ns in _records(HANDSHAKES, options):
        click.echo(row(record, unix_ns) if options.output == "table" else line(record, unix_ns))


def _records(signal: Signal, options: Options) -> Iterator[tuple[np.void, int]]:
    for batch, clock in batches(signal, options):
        for record in batch:
            yield record, clock.to_unix(int(record["flow"]["boot_ns"]))


def row(record: np.void, unix_ns: int, interface: str = "-") -> str:
    """Return one line of the table."""
    client, server = _ends(record)
    text: str = _ROW % (
        timestamp(unix_ns)[11:26],
        Role(record["flow"]["role"]).name.lower(),
        client,
        server,
        _rtt(record),
        _time(record["connect_ns"]),
        record["n_syn"] or "-",
        ConnectOutcome(record["outcome"]).name.lower(),
        HandshakeMethod(record["method"]).name.lower(),
        interface,
    )
    return text


def line(record: np.void, unix_ns: int, interface: str | None = None) -> str:
    """Return one line of JSON; what is not known is null."""
    flags = HandshakeFlags(int(record["flags"]))
    more = {
        "role": Role(record["flow"]["role"]).name.lower(),
        "method": HandshakeMethod(record["method"]).name.lower(),
        "outcome": ConnectOutcome(record["outcome"]).name.lower(),
        **{name: int(record[name]) or None for name in ("rtt_ns", "rtt_min_ns", "rtt_max_ns", "connect_ns", "n_syn")},
        "synack_retransmits": int(record["synack_retransmits"]),
        "ambiguous": HandshakeFlags.AMBIGUOUS in flags,
        "timestamps_used": HandshakeFlags.TIMESTAMPS in flags,
        "partial": HandshakeFlags.PARTIAL in flags,
        "client_isn": int(record["client_isn"]),
        "server_isn": int(record["server_isn"]) or None,
        "ifindex": int(record["ifindex"]) or None,
        "interface": interface,
    }
    return json.dumps(as_object(record, unix_ns, more))


def _ends(record: np.void) -> tuple[str, str]:
    flow = record["flow"]
    local = endpoint(bytes(flow["local_addr"]), int(flow["local_port"]))
    peer = endpoint(bytes(flow["peer_addr"]), int(flow["peer_port"]))
    return (local, peer) if flow["role"] == Role.CLIENT else (peer, local)


def _rtt(record: np.void) -> str:
    if not record["flags"] & HandshakeFlags.AMBIGUOUS:
        return _time(record["rtt_ns"])
    low, high = (units.duration(int(record[name])) if record[name] else "" for name in ("rtt_min_ns", "rtt_max_ns"))
    return f"{low}..{high}?"


def _time(ns: np.uint64) -> str:
    return units.duration(int(ns)) if ns else "-"
