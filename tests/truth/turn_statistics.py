"""What the turns of a connection say of it together: docs/design/measurement.md, "Classes", as a model.

Part of the oracle of `turns.py`: the class of each ended turn, and why it is no event.
"""

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded
from tests.truth.turn_events import Turn

WINDOW = 32  # turns
PIPELINED, MULTIPLEXED, PUSHED = 2, 8, 2  # of them
CLEAN_AT_LEAST, CLEAN_AT_MOST = 32, 1024  # turns after which a connection is believed again
TRUSTED = 128  # clean turns after which a pause inside a response is no sign of pushes yet

STREAM_BYTES, STREAM_NS = 1 << 20, 1_000_000_000  # of a message

CLASS_OF = {
    Excluded.SETUP: ExchangeClass.SETUP,
    Excluded.TEARDOWN: ExchangeClass.TEARDOWN,
    Excluded.PUSH: ExchangeClass.PUSH,
    Excluded.ONEWAY: ExchangeClass.ONEWAY,
    Excluded.STREAMING: ExchangeClass.STREAMING,
    Excluded.PIPELINED: ExchangeClass.PIPELINED,
    Excluded.MULTIPLEXED: ExchangeClass.MULTIPLEXED,
}


class Statistics:
    """Judges the turns of one end, in the order of their ends.

    `suspected`: why no turn of the connection is believed, until it has gone on long enough without a bad one;
    `answered`: turns in which a response began.
    """

    def __init__(self) -> None:
        self._unread: list[bool] = []  # per turn: overlapped by what this end sent
        self._early: list[bool] = []  # per turn: overlapped by what the other end sent
        self._pushed: list[bool] = []  # per turn: the server had the initiative, or nobody answered, again
        self._now = {"unread": False, "early": False}
        self.answered = 0
        self._clean = 0  # turns since the last bad one
        self._probation = 0  # turns
        self._since = 0  # turns, when it became suspected
        self.suspected = Excluded.NONE

    @property
    def trusted(self) -> bool:
        """Whether the connection has taken turns for so long that a response may have been held up."""
        return self._clean >= TRUSTED

    def overlaps(self, *, unread: bool) -> None:
        """Say that the open turn overlaps with the next message: one of ours over `unread` bytes, or one of theirs."""
        self._now["unread" if unread else "early"] = True

    def judge(self, turn: Turn, why: Excluded, *, setup: bool) -> None:
        """Fill in class and exclusion of an ended turn. `why`: what its end alone says; `setup`: one of the first."""
        self._count(turn, why, setup=setup)
        self._suspect()
        if setup:
            turn.excluded = Excluded.SETUP
        elif why is not Excluded.NONE:
            turn.excluded = why
        elif self.suspected is not Excluded.NONE:
            turn.excluded = self.suspected
        elif turn.overlap:
            turn.excluded = Excluded.OVERLAP
        turn.conn_class = CLASS_OF.get(turn.excluded, self._plain(turn))

    def _plain(self, turn: Turn) -> ExchangeClass:
        if max(turn.request_bytes, turn.response_bytes) > STREAM_BYTES or turn.sent_ns > STREAM_NS:
            return ExchangeClass.STREAM
        return ExchangeClass.UNKNOWN if self.answered < 2 and not turn.closed else ExchangeClass.PINGPONG

    def _count(self, turn: Turn, why: Excluded, *, setup: bool) -> None:
        self.answered += turn.answered
        self._unread.append(self._now["unread"] and not setup)  # TLS's tickets may cross the first request
        self._early.append(self._now["early"] and not setup)
        self._now = {"unread": False, "early": False}
        self._pushed.append(
            (why is Excluded.PUSH and not turn.held_up and not turn.after_streaming and not turn.greeting)
            or why is Excluded.STREAMING
            or (why is Excluded.ONEWAY and turn.resumed)
        )
        bad = self._unread[-1] or self._early[-1] or self._pushed[-1]
        self._clean = 0 if bad else self._clean + 1

    def _suspect(self) -> None:
        """See whether the connection is to be believed. The first suspicion names it; multiplexing is the worse one."""
        unread, early = self._unread[-WINDOW:], self._early[-WINDOW:]
        overlaps = sum(a or b for a, b in zip(unread, early, strict=True)) >= PIPELINED
        pushes = sum(self._pushed[-WINDOW:]) >= PUSHED
        turns = len(self._unread)
        if not overlaps and not pushes:
            if self._clean >= self._probation:
                self.suspected = Excluded.NONE
            return
        if not self.suspected:
            self._probation = CLEAN_AT_MOST if self._probation else CLEAN_AT_LEAST
            self._since = turns
            self.suspected = Excluded.PIPELINED if overlaps else Excluded.PUSH
        elif not self._clean:
            self._probation = min(max(self._probation, turns - self._since), CLEAN_AT_MOST)
        multiplexed = min(sum(unread), sum(early)) >= MULTIPLEXED
        if multiplexed:
            self.suspected = Excluded.MULTIPLEXED
        if multiplexed or pushes:
            self._probation = CLEAN_AT_MOST
