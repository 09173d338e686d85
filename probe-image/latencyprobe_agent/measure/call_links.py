"""Which calls of a server's span it shows, which of these become spans for it, and the links between both. Pure."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.measure.calls import Called
from latencyprobe_agent.measure.halves import Halves
from latencyprobe_agent.measure.sampling import Reason, Sampled

SHOWN = 8  # calls of one span, the longest

# A call that a server's span shows. `*_trace`: of either half; `begin_ns`, `wait_ns`: of the client half, `linked`: it
# is a span too; `calls`, `waited_ns`: of the server half, of all of its calls.
LINK = np.dtype(
    [
        *(("server_key", "u8"), ("client_key", "u8"), ("server_trace", "2u8"), ("client_trace", "2u8")),
        *(("begin_ns", "i8"), ("wait_ns", "i8"), ("waited_ns", "i8"), ("calls", "u4"), ("peer_port", "u2")),
        *(("peer_addr", "u1", 16), ("outcome", "u1"), ("linked", "?")),
    ],
    align=True,
)


class Calls(NamedTuple):
    """What one turn tells of calls. `links`: LINK[n]; `open`: join keys of spans of which it is not known yet."""

    called: Called | None
    links: NDArray[np.void]
    open: NDArray[np.uint64]


NO_CALLS = Calls(None, np.zeros(0, LINK), np.zeros(0, np.uint64))


def shown(called: Called) -> NDArray[np.intp]:
    """Return intp[m], the places in `called.client` of the calls that spans of servers show: of each its longest."""
    at = np.flatnonzero(called.server.sampled[called.of] > 0)
    at = at[np.lexsort((-called.client.duration_ns[at], called.of[at]))]
    first = np.searchsorted(called.of[at], called.of[at], side="left")
    return at[np.arange(len(at)) - first < SHOWN]


def wanted(called: Called, at: NDArray[np.intp]) -> Halves:
    """Return the calls `at` that are no spans and shall be: those of whatever is a span for more than its share."""
    why = called.server.sampled[called.of[at]]
    return called.client.take(at[(called.client.sampled[at] == 0) & (why != Reason.RATIO + 1)])


def links(called: Called, at: NDArray[np.intp], taken: Sampled, pair_key: bytes) -> NDArray[np.void]:
    """Return LINK[m] of the calls `at` (intp[m]). `taken`: those that have become spans for it."""
    rows, client, of = np.zeros(len(at), LINK), called.client.take(at), called.of[at]
    servers, place = np.unique(of, return_inverse=True)
    rows["server_trace"] = called.server.take(servers).trace_ids(pair_key)[place]
    rows["client_trace"] = client.trace_ids(pair_key)
    rows["server_key"], rows["client_key"] = called.server.join_key[of], client.join_key
    rows["begin_ns"], rows["wait_ns"] = client.start_ns, client.duration_ns
    waited_ns = np.zeros(len(called.server), np.int64)
    np.add.at(waited_ns, called.of, called.new_ns)
    rows["waited_ns"], rows["calls"] = waited_ns[of], np.bincount(called.of)[of]
    for name in ("peer_addr", "peer_port", "outcome"):
        rows[name] = client.rec[name]
    rows["linked"] = (client.sampled > 0) | np.isin(client.join_key, taken.halves.join_key)
    return rows
