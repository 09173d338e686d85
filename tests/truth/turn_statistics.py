"""What the turns of a connection say of it together: docs/design/measurement.md, "Classes", as a model.

Part of the oracle of `turns.py`: the class of each ended turn, and why it is no event.
"""

from dataclasses import dataclass, field

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Role
from tests.truth.turn_events import Turn

WINDOW = 32  # turns
PIPELINED, MULTIPLEXED, PUSHED = 2, 8, 2  # of them
CLEAN_AT_LEAST, CLEAN_AT_MOST = 32, 1024  # turns after which a connection is believed again

CLASS_OF = {
    Excluded.SETUP: ExchangeClass.SETUP,
    Excluded.TEARDOWN: ExchangeClass.TEARDOWN,
    Excluded.PUSH: ExchangeClass.PUSH,
    Excluded.ONEWAY: ExchangeClass.ONEWAY,
    Excluded.STREAMING: ExchangeClass.STREAMING,
    Excluded.PIPELINED: ExchangeClass.PIPELINED,
    Excluded.MULTIPLEXED: ExchangeClass.MULTIPLEXED,
}


@dataclass
class Told:
    """What the server's end has found and tells the client's end, where both are on one host."""

    overlapping: bool = False


@dataclass
class Suspicion:
    """A connection is not believed from `enough` bad turns in 32 on, until it has gone on long enough without one."""

    enough: int
    probation: int = 0  # turns
    suspected: bool = False
    history: list[bool] = field(default_factory=list)
    _since: int = 0
    _clean: int = 0

    def add(self, bad: bool, *, at_least: int = CLEAN_AT_LEAST) -> None:
        """Count one more turn."""
        self.history.append(bad)
        self._clean = 0 if bad else self._clean + 1
        if sum(self.history[-WINDOW:]) >= self.enough:
            if not self.suspected:
                again = CLEAN_AT_MOST if self.probation else at_least
                self.suspected, self.probation, self._since = True, again, len(self.history)
            elif bad:
                self.probation = min(max(self.probation, len(self.history) - self._since), CLEAN_AT_MOST)
        elif self._clean >= self.probation:
            self.suspected = False


class Statistics:
    """Judges the turns of one end, in the order of their ends."""

    def __init__(self, role: Role, told: Told) -> None:
        self._role, self._told = role, told
        self._overlaps = Suspicion(PIPELINED)
        self._pushes = Suspicion(PUSHED)
        self._unread: list[bool] = []  # per turn: overlapped by what this end sent
        self._early: list[bool] = []  # per turn: overlapped by what the other end sent
        self._now = {"unread": False, "early": False}
        self._multiplexed = False
        self._answered = 0

    def overlaps(self, *, unread: bool) -> None:
        """Say that the open turn overlaps with the next message: one of ours over `unread` bytes, or one of theirs."""
        self._now["unread" if unread else "early"] = True

    def judge(self, turn: Turn, why: Excluded) -> None:
        """Fill in class and exclusion of an ended turn. `why`: what its end alone says."""
        self._count(turn, why)
        connection = self._of_connection(turn)
        if why is not Excluded.NONE:
            turn.excluded = why
        elif connection is not Excluded.NONE:
            turn.excluded = connection
        elif turn.overlap:
            turn.excluded = Excluded.OVERLAP
        plain = ExchangeClass.UNKNOWN if self._answered < 2 and not turn.closed else ExchangeClass.PINGPONG
        turn.conn_class = CLASS_OF.get(turn.excluded, plain)

    def _count(self, turn: Turn, why: Excluded) -> None:
        self._answered += turn.answered
        self._unread.append(self._now["unread"])
        self._early.append(self._now["early"])
        self._overlaps.add(self._unread[-1] or self._early[-1])
        if min(sum(self._unread[-WINDOW:]), sum(self._early[-WINDOW:])) >= MULTIPLEXED:
            self._multiplexed, self._overlaps.probation = True, CLEAN_AT_MOST
        self._multiplexed &= self._overlaps.suspected
        self._now = {"unread": False, "early": False}
        pushed = (
            (why is Excluded.PUSH and not turn.after_streaming)
            or why is Excluded.STREAMING
            or (why is Excluded.ONEWAY and turn.resumed)
        )
        self._pushes.add(pushed, at_least=CLEAN_AT_MOST)

    def _of_connection(self, turn: Turn) -> Excluded:
        """Tell what the connection is. A server's end tells the client's, about turns that both can name."""
        found = Excluded.NONE
        if self._multiplexed:
            found = Excluded.MULTIPLEXED
        elif self._overlaps.suspected:
            found = Excluded.PIPELINED
        if turn.request_bytes and turn.response_bytes:
            if self._role is Role.SERVER:
                self._told.overlapping = found is not Excluded.NONE
            elif self._told.overlapping and found is Excluded.NONE:
                found = Excluded.PIPELINED
        if found is Excluded.NONE and self._pushes.suspected:
            found = Excluded.PUSH
        return found
