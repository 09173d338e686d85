"""What agents post, and what they are answered. No HTTP: callers are known, documents decoded."""

import time
from collections.abc import Callable, Set

from latencyprobe.plan import (
    AgentStatus,
    Identity,
    IdentityAnswer,
    IdentityRequest,
    RemoteJoinAnswer,
    RemoteJoinMessage,
)
from latencyprobe.wire import MAX_ADDRESSES, MAX_KEYS
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.directory.holders import VALID_S
from latencyprobe_operator.directory.limits import MAX_HALVES, Bucket, ByNode, Refused
from latencyprobe_operator.directory.lookups import Lookups
from latencyprobe_operator.directory.streams import PlanStreams
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.deliveries import Deliveries
from latencyprobe_operator.plan.identities import identify
from latencyprobe_operator.plan.planner import Planner

UNSETTLED_VALID_S = 2.0  # a caller's agent is about to apply its plan, or to come back: ask again soon
MOVED_S = 5.0  # others are told of a node's callers at most so often: each of them asks again then


class _Moved:
    """The addresses of a node's callers that others are still to be told of."""

    def __init__(self) -> None:
        self.addresses: set[str] = set()
        self.pace = Bucket(1 / MOVED_S, 1)


class Answers:
    """The answers to agents, each known by its node. `on_report` is called after each status; `lookups`: what the nodes
    were told of addresses; `moved`: what others are still to be told of a node's."""

    def __init__(
        self,
        planner: Planner,
        agents: Agents,
        state: ClusterState,
        streams: PlanStreams,
        on_report: Callable[[], None],
        *,
        deliveries: Deliveries,
    ) -> None:
        self._planner = planner
        self._agents = agents
        self._state = state
        self._streams = streams
        self._on_report = on_report
        self._deliveries = deliveries
        self.lookups = Lookups()
        self.moved = ByNode(_Moved)

    def status(self, node: str, status: AgentStatus) -> None:
        """Take an agent's status. While thousands come back, each with callers that all of them asked about, nobody is
        told of a first status: the answers before it were valid for a short time only."""
        now_s, first = time.monotonic(), node not in self._agents.applied
        moved = self._agents.reported(node, status, self._planner.plan_of(node), now_s)
        if not first or self._unsettled_s == UNSETTLED_VALID_S:
            self._tell(self.moved.of(node), moved)
        self._deliveries.followed(node, status.generation, now_s)
        self._on_report()

    def identities(self, node: str, request: IdentityRequest) -> IdentityAnswer:
        """Return who has the addresses, nobody for those that the node may not learn. Raises Refused for too many, at
        once or a second."""
        if len(request.addresses) > MAX_ADDRESSES:
            raise Refused(400, f"$.addresses: {len(request.addresses)} of them: at most {MAX_ADDRESSES}")
        self.lookups.admit(node, len(request.addresses))
        found = tuple(self._identity(node, address) for address in request.addresses)
        settled = all(i.measured or not self._planner.calls(i.node, i.uid) for i in found)
        valid_s = VALID_S if settled else self._unsettled_s
        told = self._streams.answered(node, found)
        return IdentityAnswer(found, self._planner.plan_of(node).generation, valid_s, told)

    def remote_join(self, node: str, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        """Pass on halves and questions. Raises Refused for too many."""
        for field, count, most in (
            ("asks", sum(len(ask.keys) or 1 for ask in message.asks), MAX_KEYS),
            ("halves", len(message.halves), MAX_HALVES),
        ):
            if count > most:
                raise Refused(400, f"$.{field}: {count} of them: at most {most}")
        self._streams.switchboard.answer(node, message.halves)
        return RemoteJoinAnswer(self._streams.switchboard.ask(node, message.asks))

    @property
    def _unsettled_s(self) -> float:
        """How long an answer is valid of which more will be known: longer where agents take longer to come back."""
        return min(VALID_S, max(UNSETTLED_VALID_S, self._streams.return_s()))

    def _tell(self, waiting: _Moved, moved: Set[str]) -> None:
        """Tell others to forget addresses; what has to wait is told after one of the node's next statuses."""
        waiting.addresses |= moved
        if waiting.addresses and waiting.pace.take():
            self._streams.forget(waiting.addresses)
            waiting.addresses = set()

    def _identity(self, node: str, address: str) -> Identity:
        found, nobody = identify(address, self._state, self._agents), Identity(address)
        return found if found == nobody or self.lookups.may_learn(node, address) else nobody
