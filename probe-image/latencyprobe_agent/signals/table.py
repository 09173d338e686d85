"""The signal table: one row per signal. `Attached` loads and drains what it names; a new signal is a new row."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.signals import exchanges, handshakes, retransmits, tcprt
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.vocabulary.records import EXCHANGE, HANDSHAKE, RETRANSMIT, TCPRT


@dataclass(frozen=True)
class Signal:
    """`name`: file stem of the object; `ring`: its ring map; `record`: dtype in it; `columns`: the decoder.

    `optional`: events that a kernel may be without, at the cost of a detail; `iterated`: the socket storage that the
    iterator program `flush` walks; `explains`: of a signal of evidence, which is switched by the field `switch` of
    `spec.evidence`; `ring_bytes_per_cpu`: size of the ring where nobody asks for another, 0 = as compiled.
    """

    name: str
    ring: str
    record: np.dtype[np.void]
    columns: Callable[[NDArray[np.void]], object]
    optional: tuple[str, ...] = ()
    iterated: str = "connections"
    switch: str = ""
    explains: Explains | None = None
    ring_bytes_per_cpu: int = 0


EXCHANGES = Signal("exchange", "exchanges", EXCHANGE, exchanges.columns)
RETRANSMITS = Signal(
    "retransmit",
    "retransmits",
    RETRANSMIT,
    retransmits.columns,
    optional=("loss_probe", "cong_state"),
    switch="retransmits",
    explains=retransmits.EXPLAINS,
)
HANDSHAKES = Signal(
    "handshake",
    "handshakes",
    HANDSHAKE,
    handshakes.columns,
    switch="handshakes",
    explains=handshakes.EXPLAINS,
)
# The same records from packets, for a tool: its programs are attached to interfaces (`kernel.packets`).
HANDSHAKES_TC = Signal("handshake_tc", "handshakes", HANDSHAKE, handshakes.columns, iterated="pending")
TASKS = Signal(
    "tcprt",
    "tcprts",
    TCPRT,
    tcprt.columns,
    switch="tcprt",
    explains=tcprt.EXPLAINS,
    ring_bytes_per_cpu=2 << 20,  # as the original: 8 × 256 KiB
)
EVIDENCE: tuple[Signal, ...] = (RETRANSMITS, HANDSHAKES, TASKS)
