"""Listener: turns become rows of SLI counts, which go to the store or to the directory every few seconds."""

from collections.abc import Callable, Sequence

from latencyprobe.sli import SliRow
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.objectives import tracked
from latencyprobe_agent.measure.turn import InForce, Turn
from latencyprobe_agent.sli.by_peer import ByPeer
from latencyprobe_agent.sli.names import Names
from latencyprobe_agent.sli.slicing import Slicer
from latencyprobe_agent.vocabulary.addresses import address

_LATE_S = 10.0  # what remote halves and calls say comes so long after the exchange


class SliRows:
    """Hands rows to `deliver` once per `interval_s` of boot time. `peers`: None where nobody can name an address.

    Time is measured from the first turn on: there is none before the first plan."""

    name = "sli"

    def __init__(self, deliver: Callable[[Sequence[SliRow]], None], interval_s: float, peers: Peers | None) -> None:
        self._deliver = deliver
        self._interval_ns = round(interval_s * 1e9)
        self._handed_over_ns = 0
        self._names = Names(peers) if peers else None
        self._slicer = Slicer()
        # on a host nobody asks for them: `top` there has its own
        self._by_peer = ByPeer(self._names) if self._names else None
        self._in_force: InForce | None = None

    def take(self, turn: Turn) -> None:
        """Add the turn up; hand the rows over when it is time."""
        if self._in_force is None:
            self._slicer.begin(turn.now)
            self._handed_over_ns = turn.now.boot_ns
        if turn.in_force is not self._in_force:
            self._in_force = turn.in_force
            self._slicer.apply(turn.in_force.plan, turn.in_force.rules)
            if self._by_peer:
                self._by_peer.apply(tracked(turn.in_force.plan, turn.in_force.rules.sets))
        if self._by_peer:
            self._by_peer.add(turn.halves, turn.now)
        self._slicer.add_records(turn.halves, turn.pairs.events, turn.now)
        self._slicer.add_remote(turn.remote.pairs.events, turn.now)
        for batch in turn.evidence:
            for found in (batch.joined, batch.shared):
                if found is not None:
                    self._slicer.add_evidence(batch.name, batch.explains, found, turn.now)
        if turn.calls.called is not None:
            self._slicer.add_calls(turn.calls.called, turn.now)
        for gained in turn.gained:
            self._slicer.add_evidence_lost(gained, turn.now)
        if turn.counts is not None:
            self._slicer.add_counts(turn.counts.counts, turn.counts.unaccounted, turn.now)
            self._slicer.add_pressure(turn.counts.living, turn.pressure, turn.now)
            if turn.now.boot_ns >= self._handed_over_ns + self._interval_ns:
                self._hand_over(self._by_peer.take(turn.now) if self._by_peer else ())
                self._handed_over_ns = turn.now.boot_ns

    def close(self) -> None:
        """Hand over what is left."""
        self._hand_over(self._by_peer.close() if self._by_peer else ())

    def _hand_over(self, by_peer: Sequence[SliRow]) -> None:
        if rows := (*self._slicer.take(self._peer_name), *by_peer):
            self._deliver(rows)

    def _peer_name(self, packed: bytes) -> str:
        if self._names is None:
            return address(packed)
        (found,) = self._names.of([packed], self._handed_over_ns / 1e9 - _LATE_S)
        return found
