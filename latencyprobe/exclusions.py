"""Why a turn counts as no RPC, each reason once: what it is called and means, and what can be done about it.

The kernel gives every turn that is no event one of these reasons (docs/design/measurement.md, "Exclusion"). Counts by
reason travel under the names; the store and the report write what stands here for them.
"""

from typing import NamedTuple


class Exclusion(NamedTuple):
    """One reason. `code`: stands for it in the store; never changed, never used again. `word`: as a person reads it.
    `ambiguous`: an RPC may hide in it that cannot be told from the rest, so it lowers the coverage; the others are no
    RPC by construction, or known to be outside of the measuring. `remedy`: what helps who meant to measure these."""

    name: str
    code: int
    word: str
    ambiguous: bool
    meaning: str
    remedy: str = ""


ALL = (
    Exclusion(
        *("push", 0, "push", True),
        "the server speaks unasked after the client had spoken, or the client replies to that; all turns of a "
        "connection that does so often",
        "what a server says unasked is no RPC; if these are answers that only pause, raise the target's pause",
    ),
    Exclusion(
        *("streaming", 1, "streaming", True),
        "the response goes on after a pause: all of it is not the answer to one request",
        "answers go on after a pause; if each is one answer, raise the target's pause above theirs",
    ),
    Exclusion(
        *("overlap", 2, "overlapping", True),
        "one turn that overlaps the next, on a connection that otherwise takes turns",
        "requests and answers cross now and then; with TLS set the target's tls, with other sign-in its setupTurns",
    ),
    Exclusion(
        *("pipelined", 3, "pipelined", True),
        "turns of the connection overlap again and again",
        "requests do not wait for answers, so none can be told from the next; a perspective of Server may tell more",
    ),
    Exclusion(
        *("multiplexed", 4, "multiplexed", True),
        "turns of the connection overlap in both directions",
        "many requests share a connection, as in HTTP/2, and cannot be told apart; take a port without it",
    ),
    Exclusion(
        *("oneway", 5, "one-way", False),
        "the server read it and never answered, and the client went on after a pause",
        "nobody answers these; if a request only pauses while it is sent, raise the target's pause",
    ),
    Exclusion(
        *("teardown", 6, "goodbye", False),
        "the connection's last message, which nobody answers: the end that sent it closes at once",
        "clients close right after they ask; is the target's port right?",
    ),
    Exclusion(
        *("setup", 7, "set-up", False),
        "a greeting and what answers it, and the first turns that the target leaves out by `tls` or `setupTurns`",
        "no connection gets beyond its set-up; lower the target's setupTurns, or keep connections open",
    ),
    Exclusion(
        *("peer", 8, "between peers", False),
        "pods of one target among themselves",
        "pods of the target talk to each other; with peers: true that counts",
    ),
    Exclusion(
        *("partial", 9, "older connection", False),
        "the first turn of a connection that was open before it was measured",
        "connections were open before; their next RPCs count",
    ),
    Exclusion(
        *("tfo", 10, "TCP Fast Open", False),
        "the request came in the SYN: nobody saw its first byte",
        "each connection's first request comes in its SYN, unseen; keep connections open, or do without Fast Open",
    ),
    Exclusion(
        *("unsupported", 11, "past the hooks", False),
        "Multipath TCP, kernel TLS, SMC or a sockmap moves the bytes; one for each connection",
        "Multipath TCP, kernel TLS, SMC or a sockmap moves the bytes unseen; do without it where you measure",
    ),
    Exclusion(*("plan", 12, "plan changed", False), "the LatencyProbe dropped the target while the turn was open"),
    Exclusion(*("own", 13, "our own", False), "the agent's own connections"),
)

BY_NAME = {exclusion.name: exclusion for exclusion in ALL}
