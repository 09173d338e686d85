"""What agents post, and what they are answered. No HTTP: callers are known, documents decoded."""

import time
from collections.abc import Callable, Generator, Iterable
from functools import partial

from latencyprobe.plan import (
    AgentStatus,
    Identity,
    IdentityAnswer,
    IdentityRequest,
    PastIdentity,
    RemoteJoinAnswer,
    RemoteJoinMessage,
)
from latencyprobe.wire import MAX_ADDRESSES, MAX_KEYS
from latencyprobe_operator.cluster.loops import in_slices
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import Changes, ClusterState
from latencyprobe_operator.directory.holders import VALID_S
from latencyprobe_operator.directory.limits import MAX_HALVES, Refused
from latencyprobe_operator.directory.lookups import Lookups
from latencyprobe_operator.directory.moved import Moved
from latencyprobe_operator.directory.streams import PlanStreams
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.client_halves import ClientHalves
from latencyprobe_operator.plan.deliveries import Deliveries
from latencyprobe_operator.plan.identities import identity, nodes_at, owner_of
from latencyprobe_operator.plan.past_owners import PastOwners
from latencyprobe_operator.plan.planner import Planner

UNSETTLED_VALID_S = 2.0  # a caller's agent is about to apply its plan, or to come back: ask again soon


class Answers:
    """The answers to agents, each known by its node. `on_report` is called after each status; `lookups`: what the nodes
    were told of addresses; `client_halves`: what is measured of callers; `moved`: what others are to be told of
    them; `past`: who had addresses until lately."""

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
        self.client_halves = ClientHalves(planner, agents)
        self.moved = Moved(streams.forget)
        self.past = PastOwners()

    def changing(self, changes: Changes) -> None:
        """Take note of who has left, before plans are made without them."""
        self.past.note(changes.left, self.client_halves.measured, time.monotonic())

    def nodes_at(self, address: str) -> frozenset[str]:
        """Return the nodes whose agents may know of halves at an address: of its pods, else of the one that had it."""
        return nodes_at(address, self._state) or self.past.nodes_at(address, time.monotonic())

    def status(self, node: str, status: AgentStatus) -> None:
        """Take an agent's status, and note who has fallen silent. While thousands come back, each with callers that all
        of them asked about, nobody is told of a first status: the answers before it were valid for a short time only.
        """
        now_s, first = time.monotonic(), node not in self._agents.applied
        moved = self._agents.reported(node, status, self._planner.plan_of(node), now_s)
        self.moved.add(node, moved if not first or self._unsettled_s == UNSETTLED_VALID_S else frozenset())
        for silent, callers in self.client_halves.fallen_silent(now_s).items():
            self.moved.add(silent, callers)
        self._deliveries.followed(node, status.generation, now_s)
        self._on_report()

    async def identities(self, node: str, request: IdentityRequest) -> IdentityAnswer:
        """Return who has the addresses, nobody for those that the node may not learn. Raises Refused for too many, at
        once or a second. In slices; whose address changes hands between two is told to forget it."""
        if len(request.addresses) > MAX_ADDRESSES:
            raise Refused(400, f"$.addresses: {len(request.addresses)} of them: at most {MAX_ADDRESSES}")
        self.lookups.admit(node, len(request.addresses))
        found: list[Identity] = []
        past: list[PastIdentity] = []
        told, whole = await in_slices(self._look_up(node, request.addresses, found, past))
        settled = not any(self.client_halves.awaited(one.node, one.uid) for one in found)
        pacing = self._streams.pacing
        valid_s = (pacing.known_s if whole else pacing.status_s) if told else VALID_S
        if not settled:
            valid_s = self._unsettled_s
        return IdentityAnswer(tuple(found), self._planner.plan_of(node).generation, valid_s, told, tuple(past))

    async def remote_join(self, node: str, message: RemoteJoinMessage) -> RemoteJoinAnswer:
        """Pass on halves and questions. Raises Refused for too many."""
        for field, count, most in (
            ("asks", sum(len(ask.keys) or 1 for ask in message.asks), MAX_KEYS),
            ("halves", len(message.halves), MAX_HALVES),
        ):
            if count > most:
                raise Refused(400, f"$.{field}: {count} of them: at most {most}")
        self._streams.switchboard.answer(node, message.halves)
        return RemoteJoinAnswer(await in_slices(self._streams.switchboard.ask(node, message.asks)))

    @property
    def _unsettled_s(self) -> float:
        """How long an answer is valid of which more will be known: longer where agents take longer to come back."""
        return min(VALID_S, max(UNSETTLED_VALID_S, self._streams.pacing.return_s))

    def _look_up(
        self, node: str, addresses: Iterable[str], found: list[Identity], past: list[PastIdentity]
    ) -> Generator[None, None, tuple[bool, bool]]:
        """Add who has the addresses to `found`, and who had them to `past`; returns whether the node's agent can be
        told to forget them, and if so, whether of all that would change them. That it knows one is remembered at once:
        the address may change hands at a `yield`."""
        told, whole = node in self._streams.of, True
        for address in addresses:
            one, all_of_it = self._identity(node, address)
            whole &= self._streams.answered(node, (one,)) and all_of_it
            told &= node in self._streams.of
            found.append(one)
            if (before := self._past(node, address, one)) is not None:
                past.append(before)
            yield
        return told, whole

    def _identity(self, node: str, address: str) -> tuple[Identity, bool]:
        """Return who has an address, and whether that is all that can be said."""
        owner = owner_of(address, self._state)
        if owner is None:
            return Identity(address), True
        if not self._may_learn(node, address, "" if isinstance(owner, str) else owner.namespace):
            return Identity(address), False
        halves = self.client_halves
        limited = isinstance(owner, Pod) and halves.limited(owner.node, owner.uid)
        return identity(address, owner, partial(halves.named, node)), not limited

    def _past(self, node: str, address: str, now: Identity) -> PastIdentity | None:
        """Return who had an address until lately, if another has it now, and the node may learn it."""
        now_s = time.monotonic()
        past = self.past.at(address, now_s)
        if past is None or past.pod.uid == now.uid or not self._may_learn(node, address, past.pod.namespace):
            return None
        one = identity(address, past.pod, lambda *_: self.client_halves.told(node, past.measured))
        return PastIdentity(one, now_s - past.began_s, now_s - past.ended_s)

    def _may_learn(self, node: str, address: str, namespace: str) -> bool:
        return self.lookups.may_learn(node, address, namespace, self.client_halves.namespaces(node))
