"""What the kernel's words mean where people see them: classes, exclusions, outcomes and flags of exchanges.

Attributes of spans and points carry them; docs/telemetry.md explains them from here (`make gen`).
"""

from typing import NamedTuple

from latencyprobe import exclusions
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Outcome


class Error(NamedTuple):
    """A failure: the value of `error.type`, and what happened."""

    type: str
    meaning: str


# by how the exchange ended; `_OTHER` is OpenTelemetry's own fallback value
ERRORS = {
    Outcome.RESET: Error("ECONNRESET", "the connection was reset"),
    Outcome.TIMED_OUT: Error("ETIMEDOUT", "TCP gave up sending again"),
    Outcome.UNREACHABLE: Error("EHOSTUNREACH", "the network has no way to the host"),
    Outcome.UNANSWERED: Error("unanswered", "the server ended the connection without an answer"),
    Outcome.ABORTED: Error("aborted", "the client gave up"),
    Outcome.STREAM_RESET: Error("RST_STREAM", "an end gave the call up: canceled, its deadline over, or refused"),
    Outcome.OTHER: Error("_OTHER", "another error of the socket"),
}

# of the connection when the exchange ended
CLASSES = {
    ExchangeClass.PINGPONG: "turns alternate",
    ExchangeClass.UNARY: "a stream of HTTP/2 with one request and one answer",
    ExchangeClass.UNKNOWN: "too few turns to tell",
    ExchangeClass.STREAM: "a message over 1 MiB, or over a second of sending",
    ExchangeClass.PIPELINED: "requests do not wait for answers",
    ExchangeClass.MULTIPLEXED: "turns overlap in both directions, as with many streams on one connection",
    ExchangeClass.PUSH: "the server speaks unasked",
    ExchangeClass.STREAMING: "the response went on after a pause, or began before the request had ended",
    ExchangeClass.ONEWAY: "nobody answers",
    ExchangeClass.SETUP: "greeting, sign-in, TLS",
    ExchangeClass.TEARDOWN: "a goodbye: unanswered, and the end that sent it closes at once",
    ExchangeClass.PEER: "pods of one application among themselves",
    ExchangeClass.UNSUPPORTED: "bytes move past the hooks",
}

FLAGS = {
    ExchangeFlags.BACKLOG: "data waited for the socket's owner: it was readable a little earlier",
    ExchangeFlags.READ_APPROX: "data was read without a receive call (splice, zero-copy)",
    ExchangeFlags.LOWAT: "SO_RCVLOWAT is above 1: the application was told late",
    ExchangeFlags.RECEIVER_LIMITED: "this end's own receive window was closed: the other end waited for it to read",
    ExchangeFlags.SEND_APPROX: "a stamp of sending was missed: the nearest event's stands for it",
    ExchangeFlags.OVERLAP: "turns overlapped",
    ExchangeFlags.MAYBE_CUT: "ended by quiet alone: more of the response may have come",
    ExchangeFlags.FRESH: "the first of a connection that was seen to open",
    ExchangeFlags.CLOSED: "ended by the connection's close",
    ExchangeFlags.STAGE_OVERLAP: "a stamp lay before its predecessor: the stage between them is empty",
    ExchangeFlags.READY_APPROX: "when data became readable was missed: it was read by then",
    ExchangeFlags.SUSPENDED: "the host slept meanwhile",
    ExchangeFlags.REQUEST_RESUMED: "the client had paused: what it sent before was one-way, or part of this request",
}

EXCLUSIONS = {Excluded[exclusion.name.upper()]: exclusion for exclusion in exclusions.ALL}
AMBIGUOUS = [excluded for excluded, exclusion in EXCLUSIONS.items() if exclusion.ambiguous]
