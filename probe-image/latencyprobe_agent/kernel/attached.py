"""The kernel side of one signal: load and attach its object, read its records, know what was lost.

Nothing is pinned: programs, maps and what they hold go with `close()`, or with the process. One thread calls it;
another may load, meanwhile, what shares its maps or goes on behind its programs.
"""

import os
from collections.abc import Mapping
from contextlib import AbstractContextManager
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel import counts
from latencyprobe_agent.kernel.hooks import KERNEL_BTF, KERNEL_BTF_VARIABLE, Hooks, require_capabilities
from latencyprobe_agent.kernel.libbpf import Link, Object, Program, give_back
from latencyprobe_agent.kernel.loader import Behind, Demands, Loaded, load
from latencyprobe_agent.kernel.maps import Map, possible_cpus
from latencyprobe_agent.kernel.newest import Newest
from latencyprobe_agent.kernel.ring import Ring
from latencyprobe_agent.measure.counts import added_up
from latencyprobe_agent.signals.table import Signal
from latencyprobe_agent.vocabulary.records import EVIDENCE_COUNTS, Lost

_MOST_RING_BYTES = 32 << 20  # a machine with 4 CPUs may be made for 512, and one thread reads them all


class Attached(AbstractContextManager["Attached"]):
    """A loaded and attached signal. `variants`: event → attach variant in use; `refused`: (event, variant) → why not.

    `drain()`, `wait()` and `waiting()` are those of its `Ring`; `ring_bytes` is its size.
    """

    def __init__(self, loaded: Loaded, signal: Signal) -> None:
        self._loaded = loaded
        self.variants = loaded.variants
        self.refused = loaded.refused
        self._lost = self.map("lost")
        ring = self.map(signal.ring)
        self.ring_bytes = ring.max_entries
        self._ring: Ring | Newest
        try:
            if ring.is_ring:
                self._ring = Ring.open(ring.fd, ring.max_entries, signal.record)
            else:
                self._ring = Newest(ring, self.map(f"{signal.ring}_heads"))
        except OSError:  # no memory to map it, or no descriptor: who tries again loads anew
            loaded.close()
            raise
        self.drain, self.wait, self.waiting = self._ring.drain, self._ring.wait, self._ring.waiting

    @staticmethod
    def load(
        path: Path,
        signal: Signal,
        ring_bytes: int | None,
        *,
        shared: Mapping[str, int] | None = None,
        sizes: Mapping[str, int] | None = None,
        behind: Behind | None = None,
    ) -> Loaded:
        """Load and attach the object at `path`. `ring_bytes`: size of the ring, a power of two; None: as compiled, or
        what the signal asks for each CPU, 32 MiB at most.

        `shared`: map name → file descriptor of another object's map to use; `sizes`: map name → entries, or bytes of a
        ring, in place of what is compiled; `behind`: programs that are not attached. The environment variable
        LATENCYPROBE_BTF names type information to use in place of the kernel's own file. Raises Unsupported (with a
        reason and a remedy) or AbiMismatch.
        """
        require_capabilities(Path("/proc/self/status").read_text())
        custom = os.environ.get(KERNEL_BTF_VARIABLE)

        def adjust(opened: Object) -> None:
            ring, size = opened.map(signal.ring), ring_bytes
            if size is None and signal.ring_bytes_per_cpu:
                size = 1 << (signal.ring_bytes_per_cpu * possible_cpus() - 1).bit_length()
                size = min(size, _MOST_RING_BYTES) if ring.is_ring else size
            if size is not None:
                ring.max_entries = size if ring.is_ring else max(size // ring.value_size, possible_cpus())
            for name, fd in (shared or {}).items():
                opened.map(name).share(fd)
            for name, entries in (sizes or {}).items():
                opened.map(name).max_entries = entries

        demands = Demands(adjust, frozenset(signal.optional), signal.iterated, frozenset(signal.left_out), behind)
        with Hooks(Path(custom) if custom else KERNEL_BTF) as hooks:
            loaded = load(path, Path(custom) if custom else None, hooks, demands)
        give_back()
        return loaded

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach and free everything; a batch from `drain()` stays valid."""
        del self.drain, self.wait, self.waiting
        self._ring.close()
        self._loaded.close()

    def map(self, name: str) -> Map:
        """Return a map of the object. Raises KeyError if it has none of this name."""
        return self._loaded.object.map(name)

    def put_behind(self, program: Program) -> Link:
        """Let a program of another object go on where the one of this object at the same hook ends. Close it before."""
        return program.put_into(self.map(f"behind_{program.section.partition('/')[2]}"))

    def flush(self) -> None:
        """Run the signal's iterator over its sockets, due once a second: it ends what has been idle."""
        for link in self._loaded.links.get("flush", ()):
            link.read()

    def lost(self) -> dict[str, int]:
        """Return how many records or counts never arrived, by reason (`enum lost`, in lower case), since the start."""
        lost = counters(self._lost, Lost)
        lost[Lost.RING_FULL.name.lower()] += self._ring.lost
        lost[Lost.RECURSION.name.lower()] += sum(p.recursion_misses() for p in self._loaded.programs)
        return lost

    def evidence_counts(self) -> tuple[NDArray[np.void], NDArray[np.void]]:
        """Return what a signal of evidence has counted since the start, added up over shards: (COUNTS_KEY[n],
        EVIDENCE_COUNTS[n])."""
        return counts.read(self.map("evidence_counts"), EVIDENCE_COUNTS, partial(added_up, layout=EVIDENCE_COUNTS))

    def forget_evidence(self, keys: NDArray[np.void]) -> None:
        """Take these COUNTS_KEYs out of the signal's table; one that comes again starts from 0."""
        counts.forget(self.map("evidence_counts"), keys)


def counters(of: Map, kinds: type[IntEnum]) -> dict[str, int]:
    """Return the sums over CPUs of a map of counters (u64 by u32), by the name of their kind in lower case."""
    per_cpu, found = np.zeros(possible_cpus(), np.uint64), {}
    for kind in kinds:
        of.lookup(u32(kind), per_cpu.view(np.uint8).data)
        found[kind.name.lower()] = int(per_cpu.sum())
    return found


def u32(value: int) -> bytes:
    """Return a key or value of four bytes in the kernel's layout."""
    return np.uint32(value).tobytes()
