"""The rules of turns as a model: what one end of one connection makes of the bytes that it sees.

The oracle of bpf/'s state machine (docs/design/measurement.md, "State machine"), written from the rules, not from the
code. Feed `OneEnd` with events; ended turns come out. A: bytes from client to server, B: bytes from server to client.
"""

from dataclasses import dataclass, field

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.truth.turn_events import Event, Kind, Phase, Turn
from tests.truth.turn_statistics import Statistics

GOODBYE_NS = 100_000_000  # the asking end's FIN this closely behind its message: no answer was expected


@dataclass
class OneEnd:
    """One end, from the handshake to the end of its socket. `turns`: those that have ended.

    `late`: when a request went on though its response had begun, and up to which offset.
    `undecided`: a threshold was too near for the log's times to say on which side of it a gap lay.
    """

    role: Role
    pause_ns: int
    rtt_ns: int = 0
    setup_turns: int = 0
    idle_ns: int = 2_000_000_000
    turns: list[Turn] = field(default_factory=list)
    late: list[tuple[int, int]] = field(default_factory=list)
    undecided: bool = False

    def __post_init__(self) -> None:
        self.phase = Phase.IDLE
        self._open: Turn | None = None
        self._a = self._b = 0  # bytes so far
        self._late: tuple[int, Event] | None = None  # offset and event of the first late byte
        self._moved: Event | None = None  # the last event that moved a byte on the wire
        self._touched: Event | None = None  # the same, or the application read
        self._message: Event | None = None  # the last A bytes
        self._fin: Event | None = None  # the other end's
        self._own_fin: Event | None = None
        self._fin_with_bytes = False
        self._closing: Event | None = None  # a server's close() whose judgement waits for the client's FIN
        self._refused: Event | None = None  # a RST for a client that has not called for an answer, or not yet
        self._sending: Event | None = None  # the first bytes of our message of the open turn
        self._hasty = False  # the server has answered over unread bytes: what comes may be the rest of them
        self._oneway_cut = False
        self._greeted = False
        self._statistics = Statistics()

    def see(self, event: Event) -> None:
        """Take the next event."""
        self._now = event
        self._handle(event)
        if self._open and event.kind is (Kind.A if self.role is Role.CLIENT else Kind.B):
            self._sending = self._sending or event
            self._open.sent_ns = event.last_ns - self._sending.ns

    def _handle(self, event: Event) -> None:
        match event.kind:
            case Kind.A:
                self._see_a(event)
                self._a += event.size
                self._moved = self._touched = self._message = event
            case Kind.B:
                self._see_b(event)
                self._b += event.size
                self._moved = self._touched = event
                self._hasty = self.role is Role.SERVER and event.unread
                if self._open and self.phase in (Phase.RESPONSE, Phase.PUSH):
                    self._open.end = event
            case Kind.READ:
                self._touched = event
                self._see_read(event)
            case Kind.LOOK:
                self._see_look()
            case Kind.FIN:
                self._see_fin(event)
            case Kind.SHUT if self._fin is None:
                self._own_fin = event
                if self.role is Role.SERVER and self.phase is Phase.REQUEST:
                    self._closing = event
            case Kind.SHUT | Kind.CLOSE:
                self._own_fin = self._own_fin or event
                self._see_close(event)
            case Kind.ABORT:
                self._see_abort(event)
            case Kind.RESET:
                self._see_reset(event)
            case Kind.GONE if self._closing:
                self._fail(Outcome.UNANSWERED, self._closing)
            case Kind.GONE:
                self._close()
            case Kind.FLUSH:
                self._see_flush(event)

    # -- bytes: the table of the rules, cell by cell

    def _see_a(self, e: Event) -> None:
        server = self.role is Role.SERVER
        if server and self._own_fin and self.phase is not Phase.REQUEST:  # nobody will answer these
            self._close(closed=False)
            return
        match self.phase:
            case Phase.IDLE:
                self._begin(Phase.REQUEST, e)
            case Phase.REQUEST:
                if not (server and e.unread) and self._silent(e):
                    self._oneway_cut = True
                    self._finish(Excluded.ONEWAY)
                    self._begin(Phase.REQUEST, e, resumed=True)
            case Phase.RESPONSE:
                if self._overlaps(e):
                    self._statistics.overlaps(unread=not server)
                    self._turn.overlap, self.phase, self._late = True, Phase.LATE, (self._a, e)
                    self.late.append((e.ns, self._a + e.size))
                    return
                self._finish()
                self._begin(Phase.REQUEST, e)
            case Phase.LATE:
                if not self._overlaps(e) and self._silent(e):
                    self._finish()
                    self._begin(Phase.REQUEST, e)
                else:
                    self.late.append((e.ns, self._a + e.size))
            case Phase.PUSH:
                if self._turn.greeting or self._silent(e):
                    self._finish(Excluded.PUSH)
                    self._begin(Phase.REQUEST, e)
                else:
                    self.phase = Phase.REPLY
            case Phase.REPLY:
                if self._silent(e):
                    self._finish(Excluded.PUSH)
                    self._begin(Phase.REQUEST, e)

    def _see_b(self, e: Event) -> None:
        match self.phase:
            case Phase.IDLE:
                self._begin(Phase.PUSH, e)
            case Phase.REQUEST:
                if self._overlaps(e):
                    self._statistics.overlaps(unread=self.role is Role.SERVER)
                    self._turn.overlap = True
                self._respond()
            case Phase.RESPONSE:
                if self._silent(e):
                    self._finish(Excluded.STREAMING)
                    self._begin(Phase.PUSH, e, after_streaming=True)
            case Phase.LATE:
                assert self._late
                offset, first = self._late
                self._finish(request_until=offset)
                self._begin(Phase.REQUEST, first)
                self._turn.request_offset, self._turn.overlap = offset, True
                self._respond()
            case Phase.PUSH:
                if not self._turn.greeting and self._silent(e):
                    self._finish(Excluded.PUSH)
                    self._begin(Phase.PUSH, e)
            case Phase.REPLY:
                self._finish(Excluded.PUSH)
                self._begin(Phase.PUSH, e)

    def _see_read(self, e: Event) -> None:
        if not self._open:
            return
        if self.phase is (Phase.RESPONSE if self.role is Role.CLIENT else Phase.REQUEST):
            self._open.read = True
        if self.role is Role.CLIENT and self.phase is Phase.RESPONSE:
            self._open.end = e
        self._see_look()

    def _see_look(self) -> None:
        if self.role is Role.CLIENT and self.phase is Phase.REQUEST:
            self._turn.called = True
            if self._refused:
                self._fail(Outcome.RESET, self._refused)

    def _see_flush(self, e: Event) -> None:
        if self.phase in (Phase.IDLE, Phase.REQUEST) or e.unread or e.unacked:
            return
        if self._at_least(max(self.idle_ns, self.pause_ns), self._touched, e, near=0.02):
            self._turn.cut = True
            self._finish(Excluded.PUSH if self.phase in (Phase.PUSH, Phase.REPLY) else Excluded.NONE)

    # -- the ends of the connection

    def _see_fin(self, e: Event) -> None:
        self._fin = e
        if self._closing:
            self._fail(Outcome.OK if self._said_goodbye(e) else Outcome.UNANSWERED, self._closing)
        elif self._own_fin and not e.unread:  # both have said that there is no more
            self._see_close(e)
        elif self.role is Role.CLIENT and self.phase in (Phase.RESPONSE, Phase.LATE, Phase.PUSH):
            self._fin_with_bytes = not self._silent(e)

    def _see_close(self, e: Event) -> None:
        if self.phase is Phase.RESPONSE and self.role is Role.CLIENT and not (self._turn.called or self._turn.read):
            self._close(
                Excluded.NONE if self._at_least(GOODBYE_NS, self._turn.start, e, near=0.2) else Excluded.TEARDOWN
            )
        elif self.phase is not Phase.REQUEST:
            self._close()
        elif self.role is Role.CLIENT:
            assert self._own_fin
            if self._said_goodbye(self._own_fin):
                self._fail(Outcome.OK, e)
            elif self._refused:
                self._fail(Outcome.RESET, self._refused)
            elif self._fin:
                self._fail(Outcome.UNANSWERED, self._fin)
            else:
                self._fail(Outcome.ABORTED, e)
        elif not self._turn.read and self._said_goodbye(e):
            self._fail(Outcome.OK, e)
        elif self._fin:
            self._fail(Outcome.OK if self._said_goodbye(self._fin) else Outcome.ABORTED, self._fin)
        elif e.unread:
            self._fail(Outcome.UNANSWERED, e)
        else:
            self._closing = e

    def _ignores_the_answer(self, e: Event) -> bool:
        """Tell whether the client closes soon and has not called for an answer: two goodbyes that crossed."""
        if self.role is Role.SERVER or self.phase is not Phase.RESPONSE or self._turn.called or self._turn.read:
            return False
        return not self._at_least(GOODBYE_NS, self._turn.start, e, near=0.2)

    def _see_abort(self, e: Event) -> None:
        if self.role is Role.SERVER or self.phase is not Phase.REQUEST:
            self._see_close(e)
            if self._closing:
                self._fail(Outcome.UNANSWERED, e)
        else:
            self._fail(Outcome.ABORTED, e)

    def _see_reset(self, e: Event) -> None:
        if self._closing:
            self._fail(Outcome.UNANSWERED, self._closing)
        elif self.phase is Phase.REQUEST:
            if self.role is Role.SERVER and self._fin:
                self._fail(Outcome.OK if self._said_goodbye(self._fin) else Outcome.ABORTED, self._fin)
            elif self.role is Role.SERVER or self._turn.called:
                self._fail(Outcome.RESET, e)
            else:
                self._refused = e
        elif self._open:
            complete = not (e.unacked if self.role is Role.SERVER else e.unread)
            self._turn.outcome = Outcome.OK if complete else Outcome.RESET
            self._close()

    def _close(self, why: Excluded = Excluded.NONE, *, closed: bool = True) -> None:
        if self._open:
            self._turn.closed = closed
            self._finish(Excluded.PUSH if self.phase in (Phase.PUSH, Phase.REPLY) else why)

    def _fail(self, outcome: Outcome, end: Event) -> None:
        """End an unanswered request with the connection. Outcome OK: it was a goodbye."""
        self._closing = self._refused = None
        turn = self._turn
        turn.closed, turn.end = True, end
        goodbye = turn.goodbye or outcome is Outcome.OK
        turn.outcome = Outcome.OK if goodbye else outcome
        if self._oneway_cut and not self._b:
            self._finish(Excluded.ONEWAY)
        else:
            self._finish(Excluded.TEARDOWN if goodbye else Excluded.NONE)

    def _said_goodbye(self, fin: Event) -> bool:
        return not self._at_least(GOODBYE_NS, self._message, fin, near=0.2)

    # -- one turn

    @property
    def _turn(self) -> Turn:
        assert self._open
        return self._open

    def _begin(self, phase: Phase, e: Event, *, resumed: bool = False, after_streaming: bool = False) -> None:
        self.phase = phase
        self._open = Turn(self._a, self._b, e, e, resumed=resumed, after_streaming=after_streaming)
        self._turn.greeting = phase is Phase.PUSH and not self._a
        self._sending = None
        if phase is Phase.REQUEST:
            self._turn.goodbye = self._fin_with_bytes

    def _respond(self) -> None:
        self.phase = Phase.RESPONSE
        self._turn.answered, self._turn.response_offset = True, self._b

    def _finish(self, why: Excluded = Excluded.NONE, request_until: int | None = None) -> None:
        """End what is open. `why`: what the end itself says that it is. `request_until`: offset, if not all of A."""
        turn = self._turn
        turn.ended_ns = self._now.ns
        turn.request_bytes = (self._a if request_until is None else request_until) - turn.request_offset
        turn.response_bytes = self._b - turn.response_offset
        if turn.greeting:
            self.setup_turns = max(self.setup_turns, 1)  # the turn that answers it
            setup = True
        else:
            setup = self.setup_turns > 0
            self.setup_turns -= setup
        self._statistics.judge(turn, why, setup=setup)
        self.turns.append(turn)
        self._open, self.phase = None, Phase.IDLE

    def _overlaps(self, e: Event) -> bool:
        """Tell whether a message begins before the other end's has ended, as far as this end can know."""
        ours = (self.role is Role.CLIENT) == (e.kind is Kind.A)
        return e.unread if ours else e.early or self._hasty

    def _silent(self, e: Event) -> bool:
        if e.unacked or e.disturbed:
            return False
        return self._at_least(max(self.pause_ns, 2 * self.rtt_ns), self._moved, e, near=0.5)

    def _at_least(self, threshold_ns: int, since: Event | None, now: Event, near: float) -> bool:
        """Tell whether the time since then reached the threshold; both are known within their logged bounds only."""
        if not since:
            return False
        least_ns, most_ns = now.ns - since.last_ns, now.last_ns - since.ns
        if least_ns < threshold_ns * (1 + near) and most_ns > threshold_ns * (1 - near):
            self.undecided = True
        return least_ns >= threshold_ns
