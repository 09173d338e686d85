"""Who is calling: bearer token → node, by TokenReview, cached until shortly before the token ends: for a minute at
least and an hour at most, whatever our clock says.

Only the agents' service account is let in, and only for the node that the token itself is bound to. While the API
server cannot be asked, who was let in before still is, as the kubelet has no new tokens then either.
"""

import asyncio
import base64
import hashlib
import time
from collections import OrderedDict
from collections.abc import Callable, Coroutine
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.limits import Bucket, Refused

AUDIENCE = "latencyprobe-directory"
NODE_CLAIM = "authentication.kubernetes.io/node-name"  # since Kubernetes 1.30
POD_NAME_CLAIM = "authentication.kubernetes.io/pod-name"
POD_UID_CLAIM = "authentication.kubernetes.io/pod-uid"
_EARLY_S = 30.0  # a cached answer ends this long before its token
_MIN_TTL_S = 60.0  # also of a token without an end, and of one that has ended by a clock that is ahead
_MAX_TTL_S = 3600.0  # a token's whole life, by a clock that is behind
_MAX_CACHED = 20_000  # several tokens for each of 5,000 nodes
_MAX_TOKEN = 16_384
_MAX_SOURCES = 4_096
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


class Strangers:
    """How many tokens that are refused each address may send, and all together: so nobody can make the API server
    review without end, and none keeps the others out. `is_agent`: whether an agent's pod has an address; those share
    nothing with anybody else."""

    PER_S, AT_ONCE = 1, 20  # of one address
    ALL_PER_S, ALL_AT_ONCE = 20, 200  # of all but the agents'

    def __init__(self, is_agent: Callable[[str], bool], clock: Callable[[], float]) -> None:
        self._is_agent = is_agent
        self._clock = clock
        self._all = Bucket(self.ALL_PER_S, self.ALL_AT_ONCE, clock)
        self._of: OrderedDict[str, Bucket] = OrderedDict()

    def may_try(self, source: str) -> bool:
        """Return whether a token from this address may be reviewed."""
        return not any(bucket.empty() for bucket in self._buckets(source))

    def refused(self, source: str) -> None:
        """Count a token that was refused."""
        for bucket in self._buckets(source):
            bucket.take()

    def _buckets(self, source: str) -> tuple[Bucket, ...]:
        own = self._of.pop(source, None) or Bucket(self.PER_S, self.AT_ONCE, self._clock)
        self._of[source] = own
        while len(self._of) > _MAX_SOURCES:
            self._of.popitem(last=False)
        return (own,) if self._is_agent(source) else (own, self._all)


class Caller(NamedTuple):
    """An agent: the node that its token is bound to, and until when (s, monotonic clock) it may be believed."""

    node: str
    until_s: float


class Authenticator:
    """Tokens → callers. `node_of_pod`: the node of an agent's pod by name and uid, for tokens that name no node;
    `is_agent`: whether an agent's pod has an address."""

    def __init__(
        self,
        reviewer: Reviewer,
        agent_namespace: str,
        agent_account: str,
        node_of_pod: Callable[[str, str], str],
        clock: Callable[[], float] = time.monotonic,
        *,
        is_agent: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._reviewer = reviewer
        self._user = f"system:serviceaccount:{agent_namespace}:{agent_account}"
        self._node_of_pod = node_of_pod
        self._clock = clock
        self._known: OrderedDict[bytes, Caller] = OrderedDict()
        self._readers: OrderedDict[bytes, float] = OrderedDict()  # of metrics, and when they were allowed to last
        self._away_until_s = 0.0
        self._reviews = asyncio.Semaphore(8)
        self._strangers = Strangers(is_agent, clock)

    async def agent(self, token: str, source: str = "") -> Caller:
        """Return who holds a token. `source`: the address that it comes from.

        Raises Refused: 401 not valid, 403 not an agent, 429 too many refused ones, 503 cannot be checked now.
        """
        digest = hashlib.sha256(token.encode()).digest()
        caller = self._known.get(digest)
        if caller is not None and caller.until_s > self._clock():
            return caller
        try:
            user = await self._review(token, AUDIENCE, source)
        except Refused as error:
            now = self._clock()
            if error.status == 503 and caller is not None and now < caller.until_s + GRACE_S:
                return caller._replace(until_s=now + _AGAIN_S)
            self._known.pop(digest, None)
            raise
        if user.username != self._user:
            self._strangers.refused(source)
            raise Refused(403, f"{user.username} is not the agents' service account {self._user}")
        node = self._node(user)
        if not node:
            raise Refused(403, "the token names neither a node nor a pod of the agents that runs on one")
        caller = Caller(node, self._clock() + _lifetime_s(token))
        self._known[digest] = caller
        while len(self._known) > _MAX_CACHED:
            self._known.popitem(last=False)
        return caller

    async def metrics_reader(self, token: str, source: str = "") -> None:
        """Check that the holder of a token may read /metrics, by the API server's rights. Raises Refused as `agent`."""
        digest = hashlib.sha256(token.encode()).digest()
        try:
            user = await self._review(token, "", source)
            allowed = await self._asked(self._reviewer.may_read_metrics(user))
        except Refused as error:
            allowed_s = self._readers.get(digest)
            if error.status == 503 and allowed_s is not None and self._clock() < allowed_s + GRACE_S:
                return
            raise
        if not allowed:
            self._strangers.refused(source)
            raise Refused(403, f'{user.username} may not "get" the non-resource URL /metrics')
        self._readers[digest] = self._clock()
        while len(self._readers) > _MAX_READERS:
            self._readers.popitem(last=False)

    async def _review(self, token: str, audience: str, source: str) -> Reviewed:
        if not 0 < len(token) <= _MAX_TOKEN:
            raise Refused(401, "send a service account token as `Authorization: Bearer`")
        if not self._strangers.may_try(source):
            raise Refused(429, "too many refused tokens: try again later")
        async with self._reviews:
            user = await self._asked(self._reviewer.review_token(token, audience))
        if user is None:
            self._strangers.refused(source)
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
        claims = {name: values[0] for name, values in user.extra.items() if len(values) == 1}
        return claims.get(NODE_CLAIM) or self._node_of_pod(
            claims.get(POD_NAME_CLAIM, ""), claims.get(POD_UID_CLAIM, "")
        )


class _Claims(msgspec.Struct):
    exp: float = 0.0


def _lifetime_s(token: str) -> float:
    """Return how long a token that was just reviewed may be believed without asking again. Its end is by the API
    server's clock, and ours may be hours from that."""
    try:
        payload = token.split(".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, ValueError, msgspec.DecodeError):
        return _MIN_TTL_S
    return min(_MAX_TTL_S, max(_MIN_TTL_S, claims.exp - time.time() - _EARLY_S))
