"""What one end of a connection sees, and the turns that it makes of it. Part of the oracle of `turns.py`."""

from dataclasses import dataclass
from enum import Enum, auto

from latencyprobe_agent.vocabulary.records import ExchangeClass, Excluded, Outcome


class Kind(Enum):
    """What happened at this end."""

    A = auto()  # bytes from client to server: the client's send call begins, or they became readable at the server
    B = auto()
    READ = auto()  # the application read what had come
    LOOK = auto()  # it called for bytes, and there were none
    FIN = auto()  # the other end's
    SHUT = auto()  # shutdown(SHUT_WR) of our own
    CLOSE = auto()  # close() of our own
    RESET = auto()  # the other end's RST
    ABORT = auto()  # we close by a RST
    GONE = auto()  # the kernel's socket has ended, after our close()
    FLUSH = auto()  # idle turns are looked for


@dataclass(frozen=True)
class Event:
    """One event, which took place between `ns` and `until_ns` (the log's readings around it).

    `unread`: what had come before, our application has not read. `early`: arriving bytes left a peer that did not have
    all of ours. `unacked`: not all of ours is acknowledged. `disturbed`: something was sent again or out of order
    since the last byte.
    """

    kind: Kind
    ns: int
    until_ns: int = 0
    size: int = 0  # bytes
    unread: bool = False
    early: bool = False
    unacked: bool = False
    disturbed: bool = False

    @property
    def last_ns(self) -> int:
        """The latest time at which it was over."""
        return max(self.ns, self.until_ns)


class Phase(Enum):
    """What is open."""

    IDLE = auto()
    REQUEST = auto()
    RESPONSE = auto()
    LATE = auto()  # bytes of the request come after the response has begun
    PUSH = auto()
    REPLY = auto()  # the client's, to a push


@dataclass
class Turn:
    """One turn. Bytes and offsets in the two streams; its duration lies between `start` and `end`.

    `ended_ns`: when that was known.
    """

    request_offset: int
    response_offset: int
    start: Event
    end: Event
    ended_ns: int = 0
    sent_ns: int = 0  # how long this end has been sending its message
    request_bytes: int = 0
    response_bytes: int = 0
    answered: bool = False
    greeting: bool = False
    after_streaming: bool = False  # a push that is the rest of a response
    held_up: bool = False  # a push that may be a response, on a connection one of whose responses was held up
    goodbye: bool = False  # opened after the server's FIN that came with its last bytes
    awoke: bool = False  # begun by the server when nothing was open
    left: bool = False  # the client's FIN came before the server answered
    read: bool = False  # our application has read of what the other end said
    called: bool = False  # the client has called for an answer
    overlap: bool = False
    lulls_ns: tuple[int, int] = (0, 0)  # in its request, too short to be silence: at least, at most
    resumed: bool = False
    cut: bool = False  # by the idle flush
    closed: bool = False
    outcome: Outcome = Outcome.OK
    conn_class: ExchangeClass = ExchangeClass.UNKNOWN
    excluded: Excluded = Excluded.NONE
