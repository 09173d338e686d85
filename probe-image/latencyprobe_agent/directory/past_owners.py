"""Who had an address until lately: what tells of a peer may come when another has its address. Pure."""

import math
from collections.abc import Iterable
from typing import NamedTuple

from latencyprobe.plan import Identity, PastIdentity

_MOST = 4096  # a half waits for the name of its peer for 4 s: a thousand changes of hands a second


class Ownership(NamedTuple):
    """Who has an address, from when until when that is known (s, boot time). `alone_s`: until when it is without a word
    of the plan stream; `gone_s`: when he had it no more, at the latest; `after_s`: the same of who had it before."""

    identity: Identity
    since_s: float
    until_s: float
    alone_s: float = 0.0
    gone_s: float = math.inf
    after_s: float = -math.inf


class PastOwners:
    """Looked up by address: the last one of each."""

    def __init__(self) -> None:
        self._had: dict[str, Ownership] = {}  # in the order in which it ended

    def of(self, addresses: Iterable[str]) -> dict[str, Ownership]:
        """Return who had addresses, of those that have lately changed hands."""
        return {address: self._had[address] for address in addresses if address in self._had}

    def told(self, past: PastIdentity, asked_s: float, now_s: float) -> None:
        """Take who had an address: not longer than is sure, whenever between question and now it was answered."""
        until_s = asked_s - past.ended_ago_s
        told = Ownership(past.identity, now_s - past.began_ago_s, until_s, gone_s=now_s - past.ended_ago_s)
        known = self._had.get(address := past.identity.address)
        if known is not None and whose(known.identity) == whose(told.identity):
            told = told._replace(since_s=min(known.since_s, told.since_s), until_s=max(known.until_s, told.until_s))
            told = told._replace(gone_s=max(told.until_s, min(known.gone_s, told.gone_s)))
        if known is None or told.until_s >= known.until_s:
            self.keep(address, told)

    def keep(self, address: str, past: Ownership) -> None:
        """Take who has just ceased to have an address."""
        before = self._had.pop(address, None)
        if before is not None:
            same = whose(before.identity) == whose(past.identity)
            past = past._replace(after_s=before.after_s if same else before.gone_s)
        self._had[address] = past
        if len(self._had) > _MOST:
            del self._had[next(iter(self._had))]


def whose(identity: Identity) -> tuple[str, ...]:
    """Return what tells one owner of an address from another."""
    return identity.uid, identity.namespace, identity.pod, identity.service, identity.node


def nobody(identity: Identity) -> bool:
    """Return whether it is known that nobody in the cluster has an address, so far."""
    return not (identity.pod or identity.service or identity.node)
