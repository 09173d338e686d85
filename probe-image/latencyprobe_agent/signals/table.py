"""The signal table: one row per signal, with its object, ring, record and decoder. A new signal is a new row."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals import handshakes, retransmits, tcprt, waits
from latencyprobe_agent.signals.evidence import Evidence, Explains
from latencyprobe_agent.signals.join_keys import JoinKey
from latencyprobe_agent.vocabulary.records import EXCHANGE, HANDSHAKE, RETRANSMIT, TCPRT, WAIT


@dataclass(frozen=True, kw_only=True)
class Signal:
    """Where records come from. `name`: file stem of the object; `ring`: its ring map; `record`: dtype in it.

    `optional`: events that a kernel may be without, at the cost of a detail; `iterated`: the socket storage that the
    iterator program `flush` walks; `ring_bytes_per_cpu`: size of the ring where nobody asks for another, up to a bound,
    0 = as compiled. `entries`: map → key → value, what user space must tell the programs; `left_out`: events that are
    not to be attached at all; `behind`: events at which its programs go on where the measuring ones end.
    """

    name: str
    ring: str
    record: np.dtype[np.void]
    optional: tuple[str, ...] = ()
    iterated: str = "connections"
    ring_bytes_per_cpu: int = 0
    entries: Mapping[str, Mapping[bytes, bytes]] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    behind: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class EvidenceSignal(Signal):
    """A signal whose records explain exchanges. `switch`: its name, which is that of the field of `spec.evidence` that
    asks for it, unless `switches` are several such fields.

    `columns`: the decoder of its records; `key`: how the join finds the exchanges; `explains`: how they are described.
    """

    switch: str
    switches: tuple[str, ...] = ()
    columns: Callable[[NDArray[np.void]], Evidence]
    key: JoinKey
    explains: Explains

    @property
    def asked_by(self) -> tuple[str, ...]:
        """Return the fields of `spec.evidence` of which any asks for it."""
        return self.switches or (self.switch,)


EXCHANGES = Signal(name="exchange", ring="exchanges", record=EXCHANGE)
HTTP2 = Signal(name="http2", ring="exchanges", record=EXCHANGE, iterated="http2_connections")  # the same ring
RETRANSMITS = EvidenceSignal(
    name="retransmit",
    ring="retransmits",
    record=RETRANSMIT,
    optional=("loss_probe", "cong_state"),
    switch="retransmits",
    columns=retransmits.columns,
    key=retransmits.KEY,
    explains=retransmits.EXPLAINS,
)
HANDSHAKES = EvidenceSignal(
    name="handshake",
    ring="handshakes",
    record=HANDSHAKE,
    switch="handshakes",
    columns=handshakes.columns,
    key=handshakes.KEY,
    explains=handshakes.EXPLAINS,
)
# The same records from packets, for a tool: its programs are attached to interfaces (`kernel.packets`).
HANDSHAKES_TC = Signal(name="handshake_tc", ring="handshakes", record=HANDSHAKE, iterated="pending")
TASKS = EvidenceSignal(
    name="tcprt",
    ring="tcprts",
    record=TCPRT,
    ring_bytes_per_cpu=2 << 20,  # as the original: 8 × 256 KiB
    switch="tcprt",
    columns=tcprt.columns,
    key=tcprt.KEY,
    explains=tcprt.EXPLAINS,
)
WAITS = EvidenceSignal(
    name="wait",
    ring="waits",
    record=WAIT,
    optional=("waking",),
    iterated="requests",
    behind=("read", "send_start"),
    entries={"call_kinds": waits.call_kinds()},
    switch="waits",
    switches=("syscalls", "offcpu"),
    columns=waits.columns,
    key=waits.KEY,
    explains=waits.EXPLAINS,
)
EVIDENCE: tuple[EvidenceSignal, ...] = (RETRANSMITS, HANDSHAKES, TASKS, WAITS)
