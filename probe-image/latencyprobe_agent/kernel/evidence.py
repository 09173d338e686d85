"""A signal of evidence in the kernel: beside the measuring programs, or alone under a tool.

Beside them it shares their connections and plan, so that a socket is looked up once; a tool has a `Filter` instead.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import numpy as np

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.attached import Attached, u32
from latencyprobe_agent.kernel.loader import Behind
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import CONFIG, EVIDENCE_COUNTS, EVIDENCE_FILTER, EvidenceMode

_SHARED = ("connections", "unmeasured", "target_sets", "rules", "scopes", "config")


@dataclass(frozen=True)
class Filter:
    """Which sockets a tool observes; what is 0 or empty lets everything through. `port`, `addr`: of either end.

    `tgid`: the process that connected the socket; `family`: 4 or 6.
    """

    port: int = 0
    addr: str = ""
    tgid: int = 0
    cgroup_id: int = 0
    family: int = 0

    def packed(self) -> bytes:
        """Return it as the kernel's. Raises ValueError for what is no address."""
        value = np.zeros((), EVIDENCE_FILTER)
        value["mode"] = EvidenceMode.FILTER
        value["port"], value["tgid"], value["family"] = self.port, self.tgid, self.family
        value["cgroup_id"] = self.cgroup_id
        if self.addr:
            ip = ipaddress.ip_address(self.addr)
            mapped = ip if ip.version == 6 else ipaddress.ip_address(f"::ffff:{ip}")
            value["addr"] = np.frombuffer(mapped.packed, np.uint8)
        return value.tobytes()


class EvidencePrograms(Attached):
    """The programs of one signal of evidence, attached."""

    @classmethod
    def beside(cls, programs: Attached, folder: Path, signal: Signal, *, ring_bytes: int | None = None) -> Self:
        """Load and attach what `programs` (of exchange.bpf.c) decide: sockets of targets that ask for the signal.

        `folder`: of the compiled objects. Close it before `programs`. Raises as `Attached.load()` does.
        """
        path = folder / f"{signal.name}.bpf.o"
        shared = {name: programs.map(name).fd for name in _SHARED}
        behind = Behind({event: programs.variants[event] for event in signal.behind}, programs.put_behind)
        sizes = {"evidence_counts": counts.entries(EVIDENCE_COUNTS)}
        attached = cls(cls.load(path, signal, ring_bytes, shared=shared, sizes=sizes, behind=behind), signal)
        attached._fill(signal.entries)
        return attached

    @classmethod
    def alone(
        cls,
        folder: Path,
        signal: Signal,
        socket_filter: Filter,
        *,
        ring_bytes: int | None = None,
        entries: Mapping[str, Mapping[bytes, bytes]] | None = None,
    ) -> Self:
        """Load and attach for a tool. `entries`: map → key → value, of the signal's own maps, in force from the start.

        Raises as `beside()` does, and ValueError for a filter's wrong address.
        """
        packed = socket_filter.packed()
        sizes = {"evidence_counts": counts.entries(EVIDENCE_COUNTS)}
        attached = cls(cls.load(folder / f"{signal.name}.bpf.o", signal, ring_bytes, sizes=sizes), signal)
        attached._fill({**signal.entries, **(entries or {})})
        attached.map("evidence_filter").update(u32(0), packed)
        config = np.zeros((), CONFIG)
        config["wakeup_bytes"] = attached.ring_bytes // 4
        config["generation"] = 1  # last: what the programs decided before, without the choice, is decided again
        attached.map("config").update(u32(0), config.tobytes())
        return attached

    def _fill(self, entries: Mapping[str, Mapping[bytes, bytes]]) -> None:
        for name, values in entries.items():
            for key, value in values.items():
                self.map(name).update(key, value)
