"""What the rules of turns (turns.py) work with: the open turn of one end, its beginning, its end, and silence."""

from dataclasses import dataclass, field

from latencyprobe_agent.vocabulary.records import Excluded, Role
from tests.truth.turn_events import Event, Kind, Phase, Turn
from tests.truth.turn_statistics import Statistics

LULLS = 8  # pauses of them in a request
DISTURBED_NS = 60_000_000_000  # what was lost comes within it; whatever is silent for longer has fallen silent


@dataclass
class OpenTurn:
    """One end, from the handshake to the end of its socket. `turns`: those that have ended.

    `late`: when a request went on though its response had begun, and up to which offset.
    `undecided`: a threshold was too near for the log's times to say on which side of it a gap lay.
    """

    role: Role
    pause_ns: int
    rtt_ns: int = 0
    setup_turns: int = 0
    tls: bool = False
    idle_ns: int = 2_000_000_000
    turns: list[Turn] = field(default_factory=list)
    late: list[tuple[int, int]] = field(default_factory=list)
    undecided: bool = False

    def __post_init__(self) -> None:
        self.phase = Phase.IDLE
        self._open: Turn | None = None
        self._now: Event
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
        self._stalled = False  # the flush ended a response of a connection that had taken turns for long
        self._resuming = 0  # turns of the server until the client is taken to ask again; 0: only silence tells
        self._statistics = Statistics()

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
        self._turn.left = self._fin is not None

    def _finish(self, why: Excluded = Excluded.NONE, request_until: int | None = None) -> None:
        """End what is open. `why`: what the end itself says that it is. `request_until`: offset, if not all of A."""
        turn = self._turn
        turn.ended_ns = self._now.ns
        turn.request_bytes = (self._a if request_until is None else request_until) - turn.request_offset
        turn.response_bytes = self._b - turn.response_offset
        turn.overlap = turn.overlap or self._lulled()
        if turn.greeting:
            self.setup_turns = max(self.setup_turns, 1)  # the turn that answers it
            setup = True
        else:
            setup = self.setup_turns > 0 and self.phase not in (Phase.PUSH, Phase.REPLY)
            self.setup_turns -= setup
        turn.held_up = self._resuming > 0
        self._resuming = 0
        self._statistics.judge(turn, why, setup=setup)
        self.turns.append(turn)
        self._open, self.phase = None, Phase.IDLE

    def _overlaps(self, e: Event) -> bool:
        """Tell whether a message begins before the other end's has ended, as far as this end can know."""
        ours = (self.role is Role.CLIENT) == (e.kind is Kind.A)
        return e.unread if ours else e.early or self._hasty

    def _calm(self, e: Event) -> bool:
        return not e.unacked and (not e.disturbed or self._at_least(DISTURBED_NS, self._moved, e, near=0.1))

    def _count_lull(self, e: Event) -> None:
        """Add a pause in a request that is long for who writes one message."""
        if not self._moved or e.unacked or e.disturbed:
            return
        bounds = e.ns - self._moved.last_ns, e.last_ns - self._moved.ns
        least, most = (
            so_far + (ns if self.pause_ns // 16 <= ns < self.pause_ns else 0)
            for so_far, ns in zip(self._turn.lulls_ns, bounds, strict=True)
        )
        self._turn.lulls_ns = least, most

    def _lulled(self) -> bool:
        """Tell whether the request had so many, for so few bytes, that it is not taken for one message."""
        least, most = self._turn.lulls_ns
        enough_ns = max(LULLS * self.pause_ns, self._turn.request_bytes << 14)
        if least < enough_ns * 1.1 and most > enough_ns * 0.9:
            self.undecided = True
        return least >= enough_ns

    def _silent(self, e: Event) -> bool:
        if not self._calm(e):
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
