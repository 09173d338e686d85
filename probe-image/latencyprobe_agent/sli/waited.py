"""What servers waited for, added up by peer: for SLI rows, and for the slowest exchanges in them."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe import sli
from latencyprobe_agent.measure.calls import Called
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.nesting import Intervals, covered_ns
from latencyprobe_agent.signals.exchanges import place

_PEER = np.dtype([("addr", "u1", 16), ("port", ">u2")])


class Waited:
    """Calls by peer; peers as packed addresses and ports in hex."""

    def __init__(self, called: Called) -> None:
        self._called = called
        client = called.client
        peer = np.empty(len(called), _PEER)
        peer["addr"], peer["port"] = client.rec["peer_addr"], client.rec["peer_port"]
        names, self._peer = np.unique(peer.view(f"V{_PEER.itemsize}"), return_inverse=True)
        self._names = [one.tobytes().hex() for one in names]
        group = groups([called.of, self._peer]).of_row.astype(np.uint64)  # one peer of one server half
        self._new_ns = covered_ns(Intervals(group, client.start_ns, client.end_ns))

    def ns_by_peer(self, some: NDArray[np.bool_]) -> dict[str, int]:
        """Return the time of some calls, each for as many as it stands for; where they share time it counts once."""
        ns, found = self._new_ns * self._called.client.adjusted_count, np.zeros(len(self._names), np.int64)
        np.add.at(found, self._peer[some], ns[some])
        return sli.most({self._names[i]: int(found[i]) for i in np.flatnonzero(found).tolist()})

    def of(self, server: int) -> tuple[sli.WaitedFor, ...]:
        """Return what one server half waited for, by the `place` of the longest call in hex instead of its trace id."""
        at = np.flatnonzero(self._called.of == server)
        found = []
        for peer in np.unique(self._peer[at]).tolist():
            mine = at[self._peer[at] == peer]
            longest = mine[self._called.client.duration_ns[mine].argmax()]
            trace = place(self._called.client.rec[longest : longest + 1]).tobytes().hex()
            found.append(sli.WaitedFor(self._names[peer], len(mine), int(self._new_ns[mine].sum()), trace))
        return sli.longest(found)
