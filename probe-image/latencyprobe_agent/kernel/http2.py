"""The programs of `http2.bpf.c`, beside those of `exchange.bpf.c`: calls that share a connection, told by stream.

They count and record where those do, so there is nothing to drain; targets ask for them (`targets[].protocol`).
"""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.kernel.attached import Attached, counters
from latencyprobe_agent.kernel.loader import Loaded
from latencyprobe_agent.kernel.maps import Map
from latencyprobe_agent.signals.table import HTTP2
from latencyprobe_agent.vocabulary.records import STREAM, Lost

_SHARED = (
    "connections",
    "unmeasured",
    "target_sets",
    "rules",
    "scopes",
    "scope_filter",
    "config",
    "counts",
    "unaccounted",
    "census",
    "exchanges",
    "overlapping",
    "shares",
    ".data.rate",
)


class Http2Programs(AbstractContextManager["Http2Programs"]):
    """Loaded and attached. `variants`: event → attach variant in use; `refused`: (event, variant) → why not."""

    def __init__(self, loaded: Loaded) -> None:
        self._loaded = loaded
        self.variants, self.refused = loaded.variants, loaded.refused

    @classmethod
    def beside(cls, programs: Attached, folder: Path) -> Self:
        """Load and attach for the connections of `programs` (of exchange.bpf.c). Close it before these.

        `folder`: of the compiled objects. Raises Unsupported or AbiMismatch as `Attached.load()` does.
        """
        shared = {name: programs.map(name).fd for name in _SHARED}
        return cls(Attached.load(folder / "http2.bpf.o", HTTP2, None, shared=shared))

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Detach and free everything; streams that are open are forgotten."""
        self._loaded.close()

    def map(self, name: str) -> Map:
        """Return a map of the object. Raises KeyError if it has none of this name."""
        return self._loaded.object.map(name)

    def open_streams(self) -> NDArray[np.void]:
        """Return STREAM[n]: what is known so far of each stream that is open."""
        of, one, found = self.map("streams"), np.empty((), STREAM), []
        for key in of.keys():  # noqa: SIM118 - no dict
            if of.lookup(key, one.reshape(1).view(np.uint8).data):
                found.append(one.copy())
        return np.array(found, STREAM)

    def lost(self) -> dict[str, int]:
        """Return what was lost, by reason, as `Attached.lost()` does."""
        lost = counters(self.map("lost"), Lost)
        lost[Lost.RECURSION.name.lower()] += sum(p.recursion_misses() for p in self._loaded.programs)
        return lost


class FakeHttp2Programs:
    """`Http2Programs` for tests. `lost_records`: what was lost, by reason; `closed`: detached."""

    def __init__(self) -> None:
        self.variants = {"send": "tp_btf"}
        self.lost_records: dict[str, int] = {}
        self.closed = False

    def lost(self) -> dict[str, int]:
        """Return `lost_records`, which cannot be read any more once closed."""
        assert not self.closed
        return self.lost_records

    def close(self) -> None:
        """Detach."""
        self.closed = True
