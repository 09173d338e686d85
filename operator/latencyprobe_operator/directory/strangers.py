"""How many tokens that are refused who may send: so nobody can make the API server review without end, and none keeps
the others out.

Who shares a bound with whom follows from the pod that a token names. Whether it may, only the API server knows, but who
has a pod's uid has mostly got it from that pod.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from latencyprobe_operator.directory.claims import claims
from latencyprobe_operator.directory.limits import SOURCES, Bucket, Recent, Refused

PER_S, AT_ONCE = 1, 20  # of one address, namespace or agent
ALL_PER_S, ALL_AT_ONCE = 20, 200  # of all addresses, and of all namespaces
AGENTS_AT_ONCE, OTHERS_AT_ONCE = 8, 4  # reviews, so that those of others keep no agent waiting
_REFUSED = (401, 403)


class Strangers:
    """`node_of_pod`: the node of a pod by namespace, name and uid, empty where there is no such pod; agents' pods, and
    addresses of these (`is_agent`), share with nobody."""

    def __init__(
        self,
        agent_namespace: str,
        node_of_pod: Callable[[str, str, str], str],
        is_agent: Callable[[str], bool],
        clock: Callable[[], float],
    ) -> None:
        self._agent_namespace = agent_namespace
        self._node_of_pod = node_of_pod
        self._is_agent = is_agent
        self._addresses, self._pods = (Bucket(ALL_PER_S, ALL_AT_ONCE, clock) for _ in range(2))
        self._of: Recent[tuple[str, str], Bucket] = Recent(SOURCES, lambda: Bucket(PER_S, AT_ONCE, clock))
        self._turns, self._turns_of_many = asyncio.Semaphore(AGENTS_AT_ONCE), asyncio.Semaphore(OTHERS_AT_ONCE)

    @asynccontextmanager
    async def trying(self, token: str, source: str, *, known: bool) -> AsyncIterator[None]:
        """Have the turn of a token from an address to be reviewed. It counts, unless it was good before (`known`), or
        that shows that it is good, or nothing. Raises Refused: 429 for too many."""
        buckets = () if known else self._buckets(token, source)
        async with self._turns if len(buckets) < 2 else self._turns_of_many:
            if any(bucket.empty() for bucket in buckets):
                raise Refused(429, "too many refused tokens: try again later")
            for bucket in buckets:
                bucket.spend(1)  # now: others come while this one is asked for
            counts = False
            try:
                yield
            except Refused as error:
                counts = error.status in _REFUSED
                raise
            finally:
                for bucket in () if counts else buckets:
                    bucket.spend(-1)

    def _buckets(self, token: str, source: str) -> tuple[Bucket, ...]:
        said = claims(token).kubernetes
        of_pod = bool(said.pod.uid and self._node_of_pod(said.namespace, said.pod.name, said.pod.uid))
        if of_pod and said.namespace == self._agent_namespace:
            return (self._of.of(("agent", said.pod.uid)),)
        if self._is_agent(source):
            return (self._of.of(("address", source)),)
        if of_pod:
            return self._of.of(("namespace", said.namespace)), self._pods
        return self._of.of(("address", source)), self._addresses
