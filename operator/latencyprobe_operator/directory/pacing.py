"""How often agents hand in counts and statuses, and ask whose an address is, and over what time they come back to an
operator that was away: often and at once in a small cluster, where a report is soon complete, and in a large one so
that the operator keeps up. Pure.
"""

from collections.abc import Callable

from latencyprobe.wire import STATUS_S

SHORTEST_S = 5.0
LONGEST_S = 60.0
LONGEST_KNOWN_S = 300.0
BATCHES_PER_S = 50  # of all agents; one of 20 rows takes some milliseconds of the operator's CPU
STATUSES_PER_S = 60  # of all agents
QUESTIONS_PER_S = 10  # of all agents, of each for all addresses that it knows and was not told to forget
RETURNS_PER_S = 100  # each is a stream with a whole plan, a status and a question for identities, on new connections
LONGEST_RETURN_S = 35.0  # whoever came while plans were still made comes once more: all within a minute


class Pacing:
    """`nodes`: how many nodes must measure; `full`: which share of the room for waiting rows is taken, 0 to 1."""

    def __init__(self, nodes: Callable[[], int] = lambda: 0, full: Callable[[], float] = lambda: 0.0) -> None:
        self._nodes = nodes
        self._full = full

    @property
    def usual_s(self) -> float:
        """The pause between two uploads of an agent."""
        return min(LONGEST_S, max(SHORTEST_S, self._nodes() / BATCHES_PER_S))

    @property
    def status_s(self) -> float:
        """The pause between two statuses of an agent."""
        return min(LONGEST_S, max(STATUS_S, self._nodes() / STATUSES_PER_S))

    @property
    def known_s(self) -> float:
        """For how long an agent knows by one answer whose an address is, if it is told of all that would change it."""
        return min(LONGEST_KNOWN_S, max(STATUS_S, self._nodes() / QUESTIONS_PER_S))

    @property
    def return_s(self) -> float:
        """The time over which agents come back when their streams end."""
        return min(LONGEST_RETURN_S, self._nodes() / RETURNS_PER_S)

    @property
    def next_s(self) -> float:
        """The pause until the next upload, longer while rows pile up."""
        return max(self.usual_s, LONGEST_S * self._full())
