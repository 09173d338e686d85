"""Calls that wait beside the rows of the spans that show them: the server's, and the client's own."""

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.telemetry.matching import find
from latencyprobe_agent.telemetry.span_rows import NotedCalls, parted
from latencyprobe_agent.vocabulary.records import Role


class WaitingCalls:
    """At most `capacity` of them at each end. `unshown`: those that found no room."""

    def __init__(self, capacity: int) -> None:
        self.unshown = 0
        self._capacity = capacity
        self._noted: list[NotedCalls] = []

    def note(self, links: NDArray[np.void], rows: NDArray[np.void]) -> None:
        """Keep the calls (`measure.call_links.LINK`) that concern these waiting spans."""
        for server, key, some in ((True, "server_key", links), (False, "client_key", links[links["linked"]])):
            of_role = np.flatnonzero((rows["role"] == Role.SERVER) == server)
            found = find(some[key], rows["join_key"][of_role])
            at = np.flatnonzero(found >= 0)
            fits = at[: self._capacity - sum(len(one.number) for one in self._noted if one.server == server)]
            self.unshown += len(at) - len(fits)
            if len(fits):
                self._noted.append(NotedCalls(server, rows["number"][of_role[found[fits]]], some[fits]))

    def take(self, number: NDArray[np.uint64]) -> list[NotedCalls]:
        """Return what concerns the spans with these numbers, and keep the rest."""
        taken, self._noted = parted(self._noted, number)
        return taken
