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
        "if these are answers that pause, raise the target's `pause`; what a server says unasked is no RPC",
    ),
    Exclusion(
        *("streaming", 1, "streaming", True),
        "the response goes on after a pause: all of it is not the answer to one request",
        "if one request gets all of it, raise the target's `pause` above the pauses of its answers",
    ),
    Exclusion(
        *("overlap", 2, "overlapping", True),
        "one turn that overlaps the next, on a connection that otherwise takes turns",
        "requests and answers cross; if only while connections are set up, `tls` or `setupTurns` leaves that out",
    ),
    Exclusion(
        *("pipelined", 3, "pipelined", True),
        "turns of the connection overlap again and again",
        "requests do not wait for answers; at most the server's side can tell them apart: set `perspective`",
    ),
    Exclusion(
        *("multiplexed", 4, "multiplexed", True),
        "turns of the connection overlap in both directions",
        "requests share a connection; of HTTP/2 in clear text the target's `protocol: HTTP2` tells them apart",
    ),
    Exclusion(
        *("oneway", 5, "one-way", False),
        "the server read it and never answered, and the client went on after a pause",
        "if requests pause while they are sent, raise the target's `pause`; what nobody answers is no RPC",
    ),
    Exclusion(
        *("teardown", 6, "goodbye", False),
        "the connection's last message: who sent it closes at once, whether it is answered or not",
        "clients close right after they ask; is the target's port right?",
    ),
    Exclusion(
        *("setup", 7, "set-up", False),
        "a greeting and what answers it, and the first turns that the target leaves out by `tls` or `setupTurns`",
        "connections end before their first RPC; lower the target's `setupTurns`, or keep them open",
    ),
    Exclusion(
        *("peer", 8, "between peers", False),
        "pods of one application among themselves",
        "pods of one application talk to each other; `peers` counts that",
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
    Exclusion(
        *("out_of_step", 14, "out of step", True),
        "calls of HTTP/2 that were open, or began, while the place of its frames was lost",
        "bytes moved past the hooks (sendfile, splice, io_uring with fixed buffers), or the agent came in their middle",
    ),
    Exclusion(*("own", 13, "our own", False), "the agent's own connections"),
)

BY_NAME = {exclusion.name: exclusion for exclusion in ALL}
