"""Who is calling: bearer token → node, by TokenReview, cached until shortly before the token ends: for a minute at
least and an hour at most, whatever our clock says.

Only the agents' service account is let in, and only for the node that the token itself is bound to. While the API
server cannot be asked, who was let in before still is, as the kubelet has no new tokens then either.
"""

import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.claims import claims
from latencyprobe_operator.directory.limits import Refused
from latencyprobe_operator.directory.strangers import Strangers

AUDIENCE = "latencyprobe-directory"
NODE_CLAIM = "authentication.kubernetes.io/node-name"  # since Kubernetes 1.30
POD_NAME_CLAIM = "authentication.kubernetes.io/pod-name"
POD_UID_CLAIM = "authentication.kubernetes.io/pod-uid"
_EARLY_S = 30.0  # a cached answer ends this long before its token
_MIN_TTL_S = 60.0  # also of a token without an end, and of one that has ended by a clock that is ahead
_MAX_TTL_S = 3600.0  # a token's whole life, by a clock that is behind
_MAX_CACHED = 20_000  # several tokens for each of 5,000 nodes
_MAX_TOKEN = 16_384
_MAX_READERS = 64
GRACE_S = 4 * 3600.0  # beyond its end a token is believed for so long, while the API server is away
_AGAIN_S = 60.0  # then it is asked again
_AWAY_S = 5.0  # nobody else waits for an API server that has just failed


T = TypeVar("T")


class Reviewer(Protocol):
    """The part of `Cluster` that checks tokens."""

    async def review_token(self, token: str, audience: str = "") -> Reviewed | None: ...  # noqa: D102 - see Cluster
    async def may_read_metrics(self, user: Reviewed) -> bool: ...  # noqa: D102 - see Cluster


class FakeReviewer:
    """A Reviewer for tests: `users` by token. Counts its calls; `away` makes it fail."""

    def __init__(self, users: dict[str, Reviewed]) -> None:
        self.users = users
        self.calls = 0
        self.away = False

    async def review_token(self, token: str, audience: str = "") -> Reviewed | None:
        """Answer from `users`; tokens for the API server begin with `api-`."""
        self.calls += 1
        if self.away:
            raise ClusterError("the API server is away")
        return self.users.get(token) if bool(audience) != token.startswith("api-") else None

    async def may_read_metrics(self, user: Reviewed) -> bool:
        """Let the user `prometheus` in."""
        return user.username == "prometheus"


class Caller(NamedTuple):
    """An agent: the node that its token is bound to, and until when (s, monotonic clock) it may be believed."""

    node: str
    until_s: float


class Authenticator:
    """Tokens → callers. `node_of_pod`: the node of a pod by namespace, name and uid, for tokens of agents that name no
    node; `is_agent`: whether an agent's pod has an address."""

    def __init__(
        self,
        reviewer: Reviewer,
        agent_namespace: str,
        agent_account: str,
        node_of_pod: Callable[[str, str, str], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        is_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._reviewer = reviewer
        self._user = f"system:serviceaccount:{agent_namespace}:{agent_account}"
        self._node_of_agent = partial(node_of_pod, agent_namespace)
        self._clock = clock
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        self._readers: OrderedDict[bytes, float] = OrderedDict()  # of metrics, and when they were allowed to last
        self._away_until_s = 0.0
        self._strangers = Strangers(agent_namespace, node_of_pod, is_agent, clock)

    async def agent(self, token: str, source: str = "") -> Caller:
        """Return who holds a token. `source`: the address that it comes from.

        Raises Refused: 401 not valid, 403 not an agent, 429 too many refused ones, 503 cannot be checked now.
        """
        digest = _digest(token)
        caller = self._known.get(digest)
        if caller is not None and caller.until_s > self._clock():
            return caller
        try:
            async with self._strangers.trying(token, source, known=caller is not None):
                node = self._node(await self._review(token, AUDIENCE))
        except Refused as error:
            now = self._clock()
            if error.status == 503 and caller is not None and now < caller.until_s + GRACE_S:
                return caller._replace(until_s=now + _AGAIN_S)
            self._known.pop(digest, None)
            raise
        caller = Caller(node, self._clock() + _lifetime_s(token))
        self._known[digest] = caller
        while len(self._known) > _MAX_CACHED:
            self._known.popitem(last=False)
        return caller

    async def metrics_reader(self, token: str, source: str = "") -> None:
        """Check that the holder of a token may read /metrics, by the API server's rights. Raises Refused as `agent`."""
        digest = _digest(token)
        allowed_s = self._readers.get(digest)
        try:
            async with self._strangers.trying(token, source, known=allowed_s is not None):
                user = await self._review(token)
                if not await self._asked(self._reviewer.may_read_metrics(user)):
                    raise Refused(403, f'{user.username} may not "get" the non-resource URL /metrics')
        except Refused as error:
            if error.status == 503 and allowed_s is not None and self._clock() < allowed_s + GRACE_S:
                return
            if error.status != 503:
                self._readers.pop(digest, None)
            raise
        self._readers[digest] = self._clock()
        while len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)

    async def _review(self, token: str, audience: str = "") -> Reviewed:
        user = await self._asked(self._reviewer.review_token(token, audience))
        if user is None:
            for_whom = f"audience {audience}" if audience else "the API server"
            raise Refused(401, f"the token is not valid for {for_whom}")
        return user

    async def _asked(self, question: Coroutine[Any, Any, T]) -> T:
        """Return the API server's answer. Raises Refused (503) without one, and at once after another had none."""
        if self._clock() < self._away_until_s:
            question.close()
            raise Refused(503, "the API server cannot be asked now")
        try:
            return await question
        except ClusterError as error:
            self._away_until_s = self._clock() + _AWAY_S
            raise Refused(503, f"the API server cannot be asked: {error}") from error

    def _node(self, user: Reviewed) -> str:
        """Return the node that an agent's token is bound to. Raises Refused for another's."""
        if user.username != self._user:
            raise Refused(403, f"{user.username} is not the agents' service account {self._user}")
        of = {name: values[0] for name, values in user.extra.items() if len(values) == 1}
        node = of.get(NODE_CLAIM) or self._node_of_agent(of.get(POD_NAME_CLAIM, ""), of.get(POD_UID_CLAIM, ""))
        if not node:
            raise Refused(403, "the token names neither a node nor a pod of the agents that runs on one")
        return node


def _digest(token: str) -> bytes:
    """Return what stands for a token. Raises Refused (401) for what can be none."""
    if not 0 < len(token) <= _MAX_TOKEN:
        raise Refused(401, "send a service account token as `Authorization: Bearer`")
    return hashlib.sha256(token.encode()).digest()


def _lifetime_s(token: str) -> float:
    """Return how long a token that was just reviewed may be believed without asking again. Its end is by the API
    server's clock, and ours may be hours from that."""
    return min(_MAX_TTL_S, max(_MIN_TTL_S, claims(token).exp - time.time() - _EARLY_S))
