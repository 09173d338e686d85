"""`latencyprobe handshakes`: each connection that opens or fails to, with its RTT, what the application waited, why."""

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import click
import numpy as np

from latencyprobe.options import Duration
from latencyprobe.report import units
from latencyprobe_agent import config as settings
from latencyprobe_agent.kernel.attached import Attached
from latencyprobe_agent.kernel.packets import PacketPrograms, Place
from latencyprobe_agent.signals.table import HANDSHAKES, HANDSHAKES_TC
from latencyprobe_agent.tools.options import Options, tool_options
from latencyprobe_agent.tools.tail import as_object, batches, follow, timestamp
from latencyprobe_agent.vocabulary.addresses import endpoint
from latencyprobe_agent.vocabulary.records import ConnectOutcome, HandshakeFlags, HandshakeMethod, Role

_ROW = "%-15s %-6s %-22s %-22s %-15s %8s %4s %-12s %-6s %s"
_HEADER = _ROW % ("TIME", "ROLE", "CLIENT", "SERVER", "RTT", "CONNECT", "SYNS", "OUTCOME", "METHOD", "IF")


@click.command(
    epilog="""\b
Examples:
  latencyprobe handshakes --port 443
  latencyprobe handshakes --duration 1m -o json
  latencyprobe handshakes --method tc --interface eth0
  latencyprobe handshakes --method tc --pod-interface veth12ab34cd
\b
Method kernel reads the kernel's own sample where a socket changes its state. Method tc takes the times of the
packets; they hold the interface's queue, not the interrupts of its hardware.
Times are UTC; an RTT such as 1ms..2s? lies between the two: which of several packets was answered is not known.
Needs root, or CAP_BPF and CAP_PERFMON; --method tc CAP_NET_ADMIN too.
"""
)
@click.option("--method", type=click.Choice(["kernel", "tc"]), default="kernel", show_default=True)
@click.option(
    "--interface",
    "interfaces",
    multiple=True,
    metavar="NAME",
    help="Take the times here, where this host's own packets pass; repeatable. Method tc.",
)
@click.option(
    "--pod-interface",
    "pod_interfaces",
    multiple=True,
    metavar="NAME",
    help="The same at this host's end of a pod's interface: what comes in leaves the pod. Bridge ports are such.",
)
@click.option(
    "--timeout",
    type=Duration(),
    default="130s",
    show_default=True,
    help="What nobody answered after this time has failed. Method tc; Linux gives up before 130s.",
)
@click.option(
    "--pull",
    is_flag=True,
    help="Read packets as the original tool did, by pulling their headers, for comparison. Method tc.",
)
@tool_options
def handshakes(
    *,
    method: str,
    interfaces: tuple[str, ...],
    pod_interfaces: tuple[str, ...],
    timeout: float,
    pull: bool,
    options: Options,
) -> None:
    """Show how long connections take to open, and why some do not."""
    names: dict[int, str] = {}

    def begin() -> None:
        if options.output == "table":
            click.echo(_HEADER)

    if method == "kernel":
        if interfaces or pod_interfaces or pull:
            raise click.UsageError("--interface, --pod-interface and --pull need --method tc")
        found = batches(HANDSHAKES, options, attached=lambda _: begin(), ended=told)
    else:
        places = _places(interfaces, pod_interfaces, options)
        names = {place.interface.ifindex: place.interface.name for place in places}
        found = follow(_at_packets(places, options, timeout, pull=pull), options, attached=begin)
    write = row if options.output == "table" else line
    for batch, clock in found:
        for record in batch:
            unix_ns = clock.to_unix(int(record["flow"]["boot_ns"]))
            click.echo(write(record, unix_ns, names.get(int(record["ifindex"]))))


def _places(interfaces: tuple[str, ...], pod_interfaces: tuple[str, ...], options: Options) -> list[Place]:
    if not interfaces and not pod_interfaces:
        raise click.UsageError("--method tc needs an --interface, such as eth0")
    if options.socket_filter.tgid or options.socket_filter.cgroup_id:
        raise click.UsageError("packets name no process: --pid and --cgroup need --method kernel")
    places = [Place.find(name, pod=False) for name in interfaces]
    places += [Place.find(name, pod=True) for name in pod_interfaces]
    for place in places:
        click.echo(f"{place.interface.name}: {'of a pod' if place.pod else 'of this host'}", err=True)
    return places


@contextmanager
def _at_packets(places: Sequence[Place], options: Options, timeout_s: float, *, pull: bool) -> Iterator[PacketPrograms]:
    """Attach when entered, and not before: by then SIGINT and SIGTERM end it in order. What older kernels attach to an
    interface outlives a process."""
    folder = settings.from_environment().bpf_dir
    with PacketPrograms.alone(
        folder, HANDSHAKES_TC, options.socket_filter, places=places, timeout_ns=int(timeout_s * 1e9), pull=pull
    ) as programs:
        yield programs
        told(programs)
        seen = ", ".join(f"{n} ({kind})" for kind, n in programs.tally().items() if n)
        click.echo(f"not reported: {seen or 'nothing'}", err=True)


def told(programs: Attached) -> None:
    """Print how many connections opened and did not, as the kernel has counted them: with or without a record."""
    _, counts = programs.evidence_counts()
    by_outcome = counts["connections"].sum(axis=0).tolist()
    of_each = ", ".join(f"{n} {ConnectOutcome(kind).name.lower()}" for kind, n in enumerate(by_outcome) if n)
    click.echo(f"connections: {of_each or 'none'}; both ends of one on this host count", err=True)


def row(record: np.void, unix_ns: int, interface: str | None = None) -> str:
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
        interface or "-",
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
