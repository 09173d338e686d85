"""`latencyprobe retransmits`: what TCP sends again on this host, of which connection, and why. Like tcpretrans."""

from collections import Counter
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Any

import click
import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.identity.process_name import process_name
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.signals.retransmits import FIN, JIFFY_US, STATES, reasons, sent
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from latencyprobe_agent.tools.options import Options, tool_options
from latencyprobe_agent.tools.owners import Owners
from latencyprobe_agent.tools.tail import as_object, batches, timestamp
from latencyprobe_agent.vocabulary.addresses import endpoint
from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.records import RETRANSMIT_STACK, RetransmitKind, RetransmitOptionFlags

ROW = "%-15s %-7s %-2s %-22s %s> %-22s %-12s %-17s %4s %s"
_HEADER = ("TIME", "PID", "IP", "LADDR:LPORT", "T", "RADDR:RPORT", "STATE", "REASON", "SEGS", "LEN")
_TYPES = {RetransmitKind.PROBE: "L", RetransmitKind.UNDO: "U", RetransmitKind.SENT: "D"}
_STACK_RING_BYTES = 1 << 22
_WITH_STACK = replace(RETRANSMITS, ring="stacks", record=RETRANSMIT_STACK)
_RAW = (
    *("seq", "end_seq", "segs", "len", "nth", "icsk_retransmits", "backoff", "total_retrans", "data_segs_out"),
    *("bytes_retrans", "bytes_sent", "new_duplicates", "dsack_dups", "ca_state", "icsk_pending", "undo_marker"),
    *("tcp_flags", "sacked", "snd_cwnd", "snd_ssthresh", "snd_wnd", "srtt_us", "err"),
)


@click.command(
    epilog="""\b
Reasons: fast, rack_reo (reordering timer), tlp (loss probe), rto (timeout), slow_start (after it),
syn, synack, zero_window_probe, pmtu, other; failed: not sent, and no retransmit.
\b
Examples:
  latencyprobe retransmits --port 443
  latencyprobe retransmits -c --duration 1m
\b
Times are UTC. T: R retransmit, L loss probe. SEGS: segments of one retransmit.
Needs root, or CAP_BPF and CAP_PERFMON.
"""
)
@click.option("-s", "--stack", is_flag=True, help="Show the kernel's stack of each retransmit.")
@click.option("--seq", is_flag=True, help="Show sequence numbers.")
@click.option("-l", "--lossprobe", is_flag=True, help="Show attempts of tail loss probes too.")
@click.option("-c", "--count", is_flag=True, help="Count segments per flow, shown at the end.")
@tool_options
def retransmits(*, options: Options, stack: bool, seq: bool, lossprobe: bool, count: bool) -> None:
    """Show what TCP sends again on this host, of which connection, and why."""
    table = Table(options, Symbolizer() if stack else None, seq, count)
    asked = RetransmitOptionFlags(0)
    if stack:
        asked |= RetransmitOptionFlags.OPTION_STACKS
    if lossprobe:
        asked |= RetransmitOptionFlags.OPTION_PROBES
    probes_before = _loss_probes()

    def attached(programs: EvidencePrograms) -> None:
        table.begin()
        zero = np.uint32(0).tobytes()
        programs.map("retransmit_options").update(zero, np.uint32(asked).tobytes())
        if lossprobe and "loss_probe" not in programs.variants:
            why = "; ".join(why for (event, _), why in programs.refused.items() if event == "loss_probe")
            click.echo(f"loss probes cannot be seen here ({why.splitlines()[0]}): counted at the end", err=True)

    def ended(programs: EvidencePrograms) -> None:
        if lossprobe and "loss_probe" not in programs.variants:
            sent = _loss_probes() - probes_before
            click.echo(f"loss probes sent in this network namespace: {sent} (TCPLossProbes)", err=True)

        if not options.socket_filter.tgid:  # the kernel counts those of all processes
            told(programs)

    # the process of an accepted socket is found here, not in the kernel
    anyone = replace(options, socket_filter=replace(options.socket_filter, tgid=0))
    signal, ring_bytes = (_WITH_STACK, _STACK_RING_BYTES) if stack else (RETRANSMITS, None)
    for batch, clock in batches(signal, anyone, attached=attached, ended=ended, ring_bytes=ring_bytes):
        table.show(batch, clock.offset_ns)
    table.end()


class Table:
    """Rows of the table, or JSON; what is counted until the end."""

    def __init__(self, options: Options, symbols: Symbolizer | None, seq: bool, count: bool) -> None:
        self._options = options
        self._symbols = symbols
        self._seq = seq
        self._count = count
        self._json = options.output == "json"
        self._owners = Owners()
        self._flows: Counter[tuple[str, str]] = Counter()
        self._spurious: Counter[str] = Counter()

    def begin(self) -> None:
        """Print the header."""
        if not self._json and not self._count:
            click.echo(ROW % _HEADER + (" SEQ" if self._seq else ""))

    def show(self, batch: NDArray[np.void], offset_ns: int) -> None:
        """Print a batch. `offset_ns`: from boot time to Unix time."""
        records = batch["retransmit"] if self._symbols else batch
        owners = self._owners.find(records["inode"].tolist())
        for i, (record, reason, was_sent) in enumerate(zip(records, reasons(records), sent(records), strict=True)):
            event = _Event(record, str(reason), offset_ns, owners, self._owners)
            if self._options.socket_filter.tgid not in (0, event.pid):
                continue
            stack = self._stack(batch["stack"][i].tolist()) if self._symbols else []
            self._spurious["dsack"] += int(record["new_duplicates"])
            self._spurious["undo"] += int(record["segs"]) if event.type == "U" else 0
            if self._count:
                self._flows[event.ends] += int(record["segs"]) if was_sent else 0
            elif self._json:
                more = {"stack": stack} if self._symbols else {}
                click.echo(msgspec.json.encode({**event.as_object(), **more}))
            elif event.type in "RL":
                click.echo(event.row() + (f" {int(record['seq'])}" if self._seq else ""))
                for name in stack:
                    click.echo(f" => {name}")

    def _stack(self, addresses: list[int]) -> list[str]:
        assert self._symbols is not None
        return without_hook(self._symbols.kernel(takewhile(bool, addresses)))

    def end(self) -> None:
        """Print what was counted."""
        if self._symbols:
            self._symbols.close()
        for (local, peer), segments in sorted(self._flows.items(), key=lambda flow: -flow[1]):
            if segments and self._json:
                click.echo(msgspec.json.encode({"local": local, "peer": peer, "segments": segments}))
            elif segments:
                click.echo(f"{local:<20} <-> {peer:<20} {segments:>10}")
        if total := self._spurious.total():
            by = ", ".join(f"{n} by {how}" for how, n in self._spurious.items() if n)
            click.echo(f"sent again in vain: {total} segments, {by}", err=True)


@dataclass(frozen=True)
class _Event:
    """One record and what is known of it beyond."""

    record: np.void
    reason: str
    offset_ns: int
    owners: dict[int, int]
    processes: Owners

    @property
    def type(self) -> str:
        return _TYPES.get(RetransmitKind(int(self.record["kind"])), "R")

    @property
    def pid(self) -> int:
        return int(self.record["flow"]["owner_tgid"]) or self.owners.get(int(self.record["inode"]), 0)

    @property
    def ends(self) -> tuple[str, str]:
        flow = self.record["flow"]
        return (
            endpoint(bytes(flow["local_addr"]), int(flow["local_port"])),
            endpoint(bytes(flow["peer_addr"]), int(flow["peer_port"])),
        )

    @property
    def state(self) -> str:
        return STATES[self.record["tcp_state"]]

    @property
    def unix_ns(self) -> int:
        return int(self.record["flow"]["boot_ns"]) + self.offset_ns

    def row(self) -> str:
        flow, (local, peer) = self.record["flow"], self.ends
        clock = timestamp(self.unix_ns)[11:26]
        size = (int(self.record["segs"]), int(self.record["len"]))
        what = (self.type, peer, self.state, self.reason or "-")
        return ROW % (clock, self.pid or "-", int(flow["family"]), local, *what, *size)

    def as_object(self) -> dict[str, Any]:
        pid, flow = self.pid, self.record["flow"]
        name = comm(flow["owner_comm"]) if flow["owner_tgid"] else process_name(pid)
        return as_object(
            self.record,
            self.unix_ns,
            {
                "owner_tgid": pid,
                "owner_comm": name,
                "in_process": bool(self.record["in_process"]),
                "type": self.type,
                "reason": self.reason or None,
                "fin": bool(self.record["tcp_flags"] & FIN),
                "tcp_state": self.state,
                "rto_us": int(self.record["rto_jiffies"]) * JIFFY_US,
                **{name: int(self.record[name]) for name in _RAW},
            },
        )


def told(programs: EvidencePrograms) -> None:
    """Print how many segments were sent again, as the kernel has counted them: with or without a record."""
    _, counts = programs.evidence_counts()
    again, unrecorded = (int(counts[name].sum()) for name in ("segs_retrans", "segs_unrecorded"))
    click.echo(f"sent again: {again} segments" + (f", {unrecorded} without a record" * bool(unrecorded)), err=True)


def without_hook(stack: list[str]) -> list[str]:
    """Return a stack without its top: our own program and the way into it. BPF further down is what was interrupted."""
    return list(dropwhile(lambda name: name.startswith(("bpf_", "__traceiter_", "__bpf_trace")), stack))


def _loss_probes() -> int:
    """Return TCPLossProbes of this network namespace."""
    names, values = (
        line.split() for line in Path("/proc/net/netstat").read_text().splitlines() if line.startswith("TcpExt:")
    )
    return int(dict(zip(names, values, strict=True))["TCPLossProbes"])
