"""A span before it is encoded: one row of numbers, and the tables that its codes stand for."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import Identity, Target
from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.vocabulary.records import EXCHANGE

NOT_JOINED, JOINED_HERE, JOINED_REMOTELY = range(3)
NO_STAGES, AS_EVENTS, AS_SPANS = range(3)  # as `StagesAs` has them

# of the half's record, as they are there
OF_RECORD = (
    "target_set",
    *("request_bytes", "response_bytes", "local_addr", "peer_addr", "srtt_us", "rtt_min_us", "retransmits", "flags"),
    "stream_id",
    *("local_port", "peer_port", "role", "conn_class", "outcome"),
)
# `number`: ascending, of its own; `owner`: as in `struct counts_key`; `target`, `peer`, `server`: codes, see `Ready`.
# Of a joined half: `pair_stages` as `stages.PAIR`; `excess_ns`, NaN without a round trip sample; the owner of the other
# half if that was joined here, else `server`. `held_s`: until when evidence may still come. `first_answer_ns`: of a
# streaming call, else 0. `stages_as`: NO_STAGES, AS_EVENTS or AS_SPANS.
ROW = np.dtype(
    [
        *[("number", "u8"), ("join_key", "u8"), ("trace_id", "2u8"), ("owner", "u8"), ("start_ns", "i8")],
        *[("stages", "4i8"), ("ratio", "f8"), ("since_s", "f8"), ("held_s", "f8")],
        *[("pair_stages", "i8", len(PAIR_STAGES)), ("excess_ns", "f8"), ("other_owner", "u8")],
        ("first_answer_ns", "i8"),
        *[("target", "u4"), ("peer", "u4"), ("server", "u4")],
        *[(name, EXCHANGE[name]) for name in OF_RECORD],
        *[("dominant", "u1"), ("reason", "u1"), ("joined", "u1"), ("pair_dominant", "u1"), ("stages_as", "u1")],
    ],
    align=True,
)


class SpanTarget(NamedTuple):
    """What spans need of a target. `clients`: standalone, its clients on other hosts may be measured too."""

    id: str
    probe: str
    name: str
    clients: bool

    @classmethod
    def of(cls, target: Target) -> "SpanTarget":
        """Return it of a target of the plan."""
        return cls(target.id, target.probe, target.name, target.clients)


class Peer(NamedTuple):
    """Who has an address; `identity` None: nobody has named it so far."""

    address: str
    identity: Identity | None


@dataclass(frozen=True)
class Noted:
    """Records of one signal that explain spans, with the wait of each in ns: of the rows with these `number`s."""

    explains: Explains
    number: NDArray[np.uint64]
    records: NDArray[np.void]
    wait_ns: NDArray[np.int64]

    def take(self, mask: NDArray[np.bool_]) -> "Noted":
        """Return some of them."""
        return Noted(self.explains, self.number[mask], self.records[mask], self.wait_ns[mask])


@dataclass(frozen=True)
class NotedCalls:
    """Calls (`measure.call_links.LINK`) that concern the rows with these `number`s: of `server`s, or the clients'."""

    server: bool
    number: NDArray[np.uint64]
    links: NDArray[np.void]

    def take(self, mask: NDArray[np.bool_]) -> "NotedCalls":
        """Return some of them."""
        return NotedCalls(self.server, self.number[mask], self.links[mask])


def taken(rows: NDArray[np.void], which: slice | NDArray[np.intp]) -> NDArray[np.void]:
    """Return some of ROW[n], copied whole and not field by field."""
    return rows.view(f"V{ROW.itemsize}")[which].view(ROW)


def concatenated(parts: Sequence[NDArray[np.void]]) -> NDArray[np.void]:
    """Return the rows of all parts (ROW[n] each, at least one), copied whole."""
    return np.concatenate([part.view(f"V{ROW.itemsize}") for part in parts]).view(ROW)


_Some = TypeVar("_Some", Noted, NotedCalls)


def parted(noted: Sequence[_Some], number: NDArray[np.uint64]) -> tuple[list[_Some], list[_Some]]:
    """Return what concerns the rows with these numbers, and the rest."""
    taken, left = [], []
    for one in noted:
        mine = np.isin(one.number, number)
        taken += [one.take(mine)] if mine.any() else []
        left += [one.take(~mine)] if not mine.all() else []
    return taken, left


@dataclass(frozen=True)
class Ready:
    """Spans that need not wait any longer: ROW[n].

    `targets`, `peers`, `servers`: what the codes of the rows stand for; a server is the service name and namespace of a
    half that was joined remotely. `evidence`, `calls`: of these rows, maybe of others too.
    """

    rows: NDArray[np.void]
    targets: Sequence[SpanTarget]
    peers: Sequence[Peer]
    servers: Sequence[tuple[str, str]]
    evidence: Sequence[Noted] = ()
    calls: Sequence[NotedCalls] = ()

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: slice | NDArray[np.intp]) -> "Ready":
        """Return some of the rows."""
        return replace(self, rows=taken(self.rows, which))
