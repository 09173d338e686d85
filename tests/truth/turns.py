"""The rules of turns as a model: what one end of one connection makes of the bytes that it sees.

The oracle of bpf/'s state machine (docs/design/measurement.md, "State machine"), written from the rules, not from the
code. Feed `OneEnd` with events; ended turns come out. A: bytes from client to server, B: bytes from server to client.
"""

from latencyprobe_agent.vocabulary.records import Excluded, Outcome, Role
from tests.truth.open_turn import OpenTurn
from tests.truth.turn_events import Event, Kind, Phase
from tests.truth.turn_statistics import CLEAN_AT_LEAST

ALERT_BYTES = {16, 23, 24, 31, 53, 57, 69, 85}  # lengths of one in TLS 1.2 and 1.3, by cipher
GOODBYE_NS = 100_000_000  # the asking end's FIN this closely behind its message: no answer was expected


class OneEnd(OpenTurn):
    """One end, from the handshake to the end of its socket."""

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
                self._touched = self._moved = event  # the window may have been closed until now
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
        self._stalled = False
        if self._resuming and self._overlaps(e):
            self._resuming = 0
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
                elif not (server and e.unread):
                    self._count_lull(e)
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
                if self._turn.greeting or self._silent(e) or self._resuming == 1:
                    self._finish(self._unasked())
                    self._begin(Phase.REQUEST, e)
                else:
                    self.phase = Phase.REPLY
            case Phase.REPLY:
                if self._silent(e):
                    self._finish(self._unasked())
                    self._begin(Phase.REQUEST, e)

    def _see_b(self, e: Event) -> None:
        if self._resuming and (self._silent(e) or self._overlaps(e)):
            self._resuming = 0
        match self.phase:
            case Phase.IDLE:
                self._begin(Phase.PUSH, e)
                self._turn.awoke = True
                self._resuming = CLEAN_AT_LEAST if self._stalled else 0
                self._stalled = False
            case Phase.REQUEST:
                if self._overlaps(e):
                    self._statistics.overlaps(unread=self.role is Role.SERVER)
                    self._turn.overlap = True
                self._respond()
            case Phase.RESPONSE:
                if self._silent(e):
                    trusted = self._statistics.trusted
                    self._finish(Excluded.STREAMING)
                    self._begin(Phase.PUSH, e, after_streaming=True)
                    self._resuming = CLEAN_AT_LEAST if trusted else 0
            case Phase.LATE:
                assert self._late
                offset, first = self._late
                self._finish(request_until=offset)
                self._begin(Phase.REQUEST, first)
                self._turn.request_offset, self._turn.overlap = offset, True
                self._respond()
            case Phase.PUSH:
                if not self._turn.greeting and self._silent(e):
                    self._push_again(e)
            case Phase.REPLY:
                self._push_again(e)

    def _push_again(self, e: Event) -> None:
        left = self._resuming
        self._finish(Excluded.PUSH)
        self._begin(Phase.PUSH, e)
        self._resuming = left - (left > 1)

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
            self._stalled = self.phase is Phase.RESPONSE and self._statistics.trusted
            self._finish(self._unasked())

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
            self._finish(self._unasked() or self._answered_goodbye() or why)

    def _unasked(self) -> Excluded:
        """Return what a turn is that the server began: its goodbye, if its FIN follows soon, or a push."""
        if self.phase not in (Phase.PUSH, Phase.REPLY):
            return Excluded.NONE
        if not (self._turn.awoke and self._turn.closed):
            return Excluded.PUSH
        if self.role is Role.CLIENT:
            left, said = self._fin, self._turn.end
        else:
            left, said = self._now, self._turn.start
        if left is None or self._at_least(GOODBYE_NS, said, left, near=0.2):
            return Excluded.PUSH
        return Excluded.TEARDOWN

    def _answered_goodbye(self) -> Excluded:
        """Return TEARDOWN for the last of several turns if an alert of TLS answers: an alert, or what an end left with.

        At the server alone: the client's FIN followed it, or the server left first.
        """
        turn = self._turn
        if not (self.tls and turn.closed and turn.answered and self._statistics.answered):
            return Excluded.NONE
        asked, answered = self._a - turn.request_offset, self._b - turn.response_offset
        if answered not in ALERT_BYTES:
            return Excluded.NONE
        first = self._fin or self._now  # who left: the client, or nobody had before the server does
        left = self.role is Role.SERVER and (turn.left or not self._fin) and self._said_goodbye(first)
        alike = asked == answered and not self._at_least(GOODBYE_NS, self._touched, self._now, near=0.2)
        return Excluded.TEARDOWN if left or alike else Excluded.NONE

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
