"""What the kernel's words mean where people see them: classes, exclusions, outcomes and flags of exchanges, losses; and
what became of the halves of the remote join.

Attributes of spans and points carry them; docs/telemetry.md explains them from here (`make gen`).
"""

from typing import NamedTuple

from latencyprobe import exclusions
from latencyprobe_agent.vocabulary.records import ExchangeClass, ExchangeFlags, Excluded, Lost, Outcome


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

LOST = {
    Lost.RING_FULL: "a record; counts are intact",
    Lost.THROTTLED: "a record; its namespace had its share of a ring that was more than half full; counts are intact",
    Lost.LIMIT: "a record of `waits`, above 200 a second of a target set and kind; counts are intact",
    Lost.COUNTS_FULL: "whose container it was: no room for a key among 1,024, or no memory in the kernel; counted "
    "under owner 0",
    Lost.COUNTS: "an exchange that is in no count: not even owner 0 had room",
    Lost.STORAGE: "a half on a socket that has no storage (`net.core.optmem_max`), so its connection is not measured; "
    "more than one where a message is sent in several calls",
    Lost.RECURSION: "a firing that the kernel skipped, which costs a flagged stamp; or a turn that ended while the one "
    "before it on its connection was being accounted for",
    Lost.STATE: "no room to follow one more handshake, thread, or call of HTTP/2",
    Lost.UNSEEN_END: "a connection whose end no program saw, because of `recursion` or on a host that runs none over "
    "some threads: what was open on it, if anything was, is in no count",
}

# the reason of the agent's own part: each failure is logged, and counted by `latencyprobe.agent.failures`
UNMEASURED = "unmeasured"
OF_UNMEASURED = "a record, of exchanges or of evidence, whose batch the agent failed to work on; counts are intact"

# by `latencyprobe.outcome`; `refused_`: nobody was asked, by the word of the directory
REMOTE_JOINS = {
    "asked": "a client half asked for its server half",
    "joined": "... and got it",
    "ambiguous": "... and got it, but two client halves have the same key: no pair",
    "unanswered": "... and nobody had it, or the answer came after 4 s: the server's half ended too long before, was "
    "not recorded, or was cut otherwise",
    "left_out": "... and was not asked for: over `spans.maxPerSecond`, `agent.spansPerSecond`, or 2,048 under way",
    "refused_unknown_peer": "the address is no pod, Service or node of the cluster",
    "refused_own_node": "the address is on the client's own node",
    "refused_no_agent": "no node behind the address has an agent whose stream is open",
    "refused_too_many_nodes": "more than 64 nodes are behind a Service",
    "refused_busy": "20,000 questions are under way in the cluster, 2,000 wait for the node that has it, or 4,096 in "
    "this agent",
    "refused_directory": "the directory was away, or took none of that request",
    "refused_too_fast": "the agent asks for more than 500 keys a second",
    "refused_asked_already": "that half was asked for already",
    "given": "a server half that another node had asked for",
    "not_found": "... that this node does not have",
    "too_many": "... that was not looked for: 4,096 are",
    "dropped_busy": "a server half for another node that found no room: 4,096 wait",
    "dropped_directory": "... that the directory did not take",
    "dropped_unread": "questions and halves from the directory that found no room: 4,096 wait",
}

EXCLUSIONS = {Excluded[exclusion.name.upper()]: exclusion for exclusion in exclusions.ALL}
AMBIGUOUS = [excluded for excluded, exclusion in EXCLUSIONS.items() if exclusion.ambiguous]
