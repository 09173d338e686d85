"""Listener: sampled halves become spans, when their other half, their peer's name and their evidence are known."""

from collections.abc import Callable
from functools import partial

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from latencyprobe.plan import Target
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.turn import InForce, Turn
from latencyprobe_agent.telemetry import span_encoder
from latencyprobe_agent.telemetry.naming import Naming
from latencyprobe_agent.telemetry.outbox import Outbox
from latencyprobe_agent.telemetry.span_evidence import Names, user_stacks
from latencyprobe_agent.telemetry.span_rows import Ready
from latencyprobe_agent.telemetry.waiting import WaitingRoom
from latencyprobe_agent.vocabulary.now import Now

# Encoding some spans takes as long as encoding hundreds, and so does a request at the collector.
_SEND_EVERY_S = 1.0
_MANY = 2048  # send them now
_NOBODY = Names()


class Spans:
    """Sends to `outbox`, once a second or as soon as many wait.

    `shared_key`: another host has the same pairing key, so its half may be somebody's parent. `naming`: of
    stacks. `admitted`: is given the rows (ROW[n]) that have been let in to wait, and will leave.
    """

    name = "spans"

    def __init__(
        self,
        outbox: Outbox,
        room: WaitingRoom,
        peers: Peers,
        *,
        shared_key: bool,
        naming: Names = _NOBODY,
        admitted: Callable[[NDArray[np.void]], None] = lambda rows: None,
    ) -> None:
        kernel_names = naming._replace(user=_NOBODY.user)
        self._context = partial(span_encoder.Context, shared_key=shared_key, naming=kernel_names)
        self._naming = Naming(outbox, naming.user)
        self._outbox = outbox
        self._room = room
        self._peers = peers
        self._admitted = admitted
        self._in_force: InForce | None = None
        self._targets: dict[int, Target] = {}
        self._now = Now(0, 0)
        self._sent_s = -_SEND_EVERY_S

    def take(self, turn: Turn) -> None:
        """Let the turn's sampled halves wait, give all what the turn knows of them, and send when it is time."""
        if turn.in_force is not self._in_force:
            self._in_force, self._targets = turn.in_force, _targets(turn.in_force)
        self._now = turn.now
        self._room.unnamed = self._naming.unnamed
        by_process = turn.in_force.resources.by_process
        self._admitted(self._room.admit(turn.sampled, self._targets, turn.now.boot_s, by_process=by_process))
        self._room.note_pairs(turn.pairs, by_process=by_process)
        self._room.note_pairs(turn.remote.pairs, by_process=False, servers=turn.remote.servers)
        for batch in turn.evidence:
            if batch.joined is not None:
                self._room.note_evidence(batch.explains, batch.joined)
        self._room.note_calls(turn.calls.links)
        self._room.name(self._peers, turn.now.boot_s)
        if turn.now.boot_s - self._sent_s >= _SEND_EVERY_S or len(self._room) >= _MANY:
            self._sent_s = turn.now.boot_s
            self._send(self._room.take_ready(self._peers, turn.now.boot_s, turn.remote.asking, turn.calls.open))

    def close(self) -> None:
        """Send all that still wait."""
        self._send(self._room.take_ready(self._peers, self._now.boot_s, all_of_them=True))
        self._naming.close()

    def _send(self, ready: Ready) -> None:
        if not len(ready) or self._in_force is None:
            return
        context = self._context(self._in_force.resources, self._now.offset_ns)
        if numbers := {number for number, _ in user_stacks(ready.evidence)}:
            slow = np.isin(ready.rows["number"], np.fromiter(numbers, np.uint64, len(numbers)))
            self._naming.put(ready.take(np.flatnonzero(slow)), context)
            ready = ready.take(np.flatnonzero(~slow))
        for body, count in span_encoder.requests(ready, context):
            self._outbox.put(body, count)


def _targets(in_force: InForce) -> dict[int, Target]:
    """Return the target that names the spans of each target set, with the set's policy; sets that the plan no longer
    has name none."""
    targets = {target.id: target for target in in_force.plan.targets}
    return {
        index: replace(next(targets[name] for name in one.targets if name in targets), spans=one.spans)
        for index, one in in_force.rules.sets.items()
        if not targets.keys().isdisjoint(one.targets)
    }
