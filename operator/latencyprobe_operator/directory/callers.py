"""Which agent calls, and whether it may now: its token, its node, its rate."""

from collections.abc import Callable, Set

from latencyprobe_operator.directory.auth import Authenticator, Caller
from latencyprobe_operator.directory.limits import Bucket, ByNode, Refused
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.planner import Planner

PER_S, AT_ONCE = 20, 100  # requests of one agent
STATUS_BYTES_PER_S, STATUS_BYTES_AT_ONCE = 256 << 10, 4 << 20  # of one agent: at most 1 MiB each 15 s while all is well


class Callers:
    """The agents that may call. Why one of a node that must measure was refused is kept for the status, if it called
    from where that node's agent may (`agents_at`, by address): anybody may name a node. `requests`: how many more each
    may send now; `statuses`: how many bytes of them."""

    def __init__(
        self, auth: Authenticator, planner: Planner, agents: Agents, agents_at: Callable[[str], Set[str]]
    ) -> None:
        self._auth = auth
        self._planner = planner
        self._agents = agents
        self._agents_at = agents_at
        self.requests = ByNode(lambda: Bucket(PER_S, AT_ONCE))
        self.statuses = ByNode(lambda: Bucket(STATUS_BYTES_PER_S, STATUS_BYTES_AT_ONCE))

    async def agent(self, token: str, node: str = "", source: str = "") -> Caller:
        """Return the agent that holds a token; where a node is given it must be that one's. `source`: the address that
        it calls from. Raises Refused."""
        try:
            caller = await self._auth.agent(token, source)
            if node and node != caller.node:
                raise Refused(403, f"the token belongs to node {caller.node}, not to {node}")
        except Refused as error:
            if error.status in (401, 403) and node in self._planner.nodes & self._agents_at(source):
                self._agents.refused(node, str(error))
            raise
        if not self.requests.of(caller.node).take():
            raise Refused(429, f"more than {PER_S} requests a second: slow down", 1)
        return caller

    def admit_status(self, node: str, size: int) -> None:
        """Let a status of `size` bytes come in. Raises Refused: 429 when the node has said too much."""
        statuses = self.statuses.of(node)
        if statuses.empty():
            raise Refused(429, f"more than {STATUS_BYTES_PER_S} bytes of statuses a second: slow down", statuses.wait_s)
        statuses.spend(size)
