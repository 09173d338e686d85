"""Who is at the other end: a cache of peer address → Identity with the validity that the directory gives.

`resolve()` returns what is known at once; what is not is asked in batches by a thread of its own, so measuring never
waits. An entry ends after its validity or when the plan stream tells to forget it (from an operator that does not: when
the plan's generation changes), so a reused address is never given to its old owner (docs/design/directory.md,
"Identities"). While the stream says nothing it ends after 15 s, however long it was valid. What began while an entry
held is that owner's all the same, whenever it is looked at: `past_owners()`. Who had it until lately is answered too: a
pod may have gone before anybody here has asked for it.
"""

import math
import threading
import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import NamedTuple

from latencyprobe.plan import Identity, IdentityAnswer
from latencyprobe.wire import MAX_ADDRESSES, STATUS_S
from latencyprobe_agent.directory.attempts import Attempts
from latencyprobe_agent.directory.past_owners import Ownership, PastOwners, nobody, whose
from latencyprobe_agent.guard import Guard

_CAPACITY = 20_000  # about 600 B each: 12 MB in the worst case, a caller count that no single node reaches
_RETRY_S = 1.0
_SILENT_S = 20.0  # a heartbeat and some more: the stream may have ended, and nobody have told
_PACE_S = 0.1  # the directory takes 20 requests a second from a node; addresses that come meanwhile are one question


class _Question(NamedTuple):
    """Addresses that are asked for now, and those of them that are to be forgotten before the answer is here."""

    asked: frozenset[str]
    void: set[str]


class Peers:
    """`ask` is Directory.identities, or None when nobody can be asked (standalone): every address is then nameless.
    `silent_s`: for how long the plan stream has said nothing."""

    def __init__(
        self,
        ask: Callable[[tuple[str, ...]], IdentityAnswer] | None,
        guard: Guard | None = None,
        silent_s: Callable[[], float] = lambda: 0.0,
    ) -> None:
        self._ask = ask
        self._questions = Attempts("peers", "peers stay unresolved meanwhile", guard)
        self._known: dict[str, Ownership] = {}
        self._past = PastOwners()
        self._unanswered: dict[str, float] = {}  # and since when nobody has had it, inf where that is not known
        self._silent_s = silent_s
        self._question = _Question(frozenset(), set())
        self._generation = -1
        self._lock = threading.Condition()
        self._stopped = False

    @property
    def asks(self) -> bool:
        """Whether there is anybody to ask."""
        return self._ask is not None

    def start(self) -> None:
        """Start asking."""
        if self._ask is not None:
            threading.Thread(target=self._run, name="peers", daemon=True).start()

    def stop(self) -> None:
        """Ask no more."""
        with self._lock:
            self._stopped = True
            self._lock.notify()

    def forget(self, addresses: Iterable[str] | None) -> None:
        """Know these addresses (None: any) no more, nor by an answer that is on its way. It stays known who had these
        until now; of any no more than that he had it, as they may have changed before. Those that nobody had are asked
        for at once: whoever has them now has had them since then."""
        with self._lock:
            if addresses is None:
                for address, had in self._known.items():
                    if not nobody(had.identity):
                        self._past.keep(address, had._replace(until_s=had.since_s, alone_s=0.0, gone_s=_now_s()))
                self._known.clear()
                self._unanswered = dict.fromkeys(self._unanswered, math.inf)
                self._question.void.update(self._question.asked)
                return
            for address in addresses:
                if address in self._unanswered:
                    self._unanswered[address] = math.inf
                if (known := self._known.pop(address, None)) is not None:
                    self._end(address, known)
            self._question.void.update(self._question.asked.intersection(addresses))
            self._lock.notify()

    def resolve(self, addresses: Iterable[str], late_s: float = 0.0) -> dict[str, Identity]:
        """Return the identities known now; the others are asked for meanwhile. Never blocks. `late_s`: also those whose
        validity has ended no longer ago, which are asked for all the same; never what is to be forgotten."""
        if self._ask is None:
            return {address: Identity(address) for address in addresses}
        now, silent = _now_s(), self._silent_s() > _SILENT_S
        found = {}
        with self._lock:
            for address in addresses:
                known = self._known.get(address)
                until_s = 0.0 if known is None else min(known.until_s, known.alone_s) if silent else known.until_s
                if known is not None and now < until_s + late_s:
                    found[address] = known.identity
                if now >= until_s and len(self._unanswered) < _CAPACITY:
                    self._unanswered.setdefault(address, math.inf)
            if self._unanswered:
                self._lock.notify()
        return found

    def past_owners(self, addresses: Iterable[str]) -> dict[str, Ownership]:
        """Return who had addresses until it was told that they have changed hands, of those that have lately."""
        with self._lock:
            return self._past.of(addresses)

    def had_since(self, addresses: Iterable[str], since_s: float, late_s: float = 0.0) -> dict[str, Identity]:
        """Return who alone has had addresses since then (s, boot time), as far as is known: who has them now or, while
        nobody has, who had them last. `late_s`: as of `resolve()`."""
        found = self.resolve(addresses, late_s)
        for address, past in self.past_owners(found).items():
            now = found.get(address)
            if now is None or past.gone_s < since_s or whose(past.identity) == whose(now):
                continue
            if nobody(now) and past.after_s < since_s:
                found[address] = past.identity
            else:
                del found[address]
        return found

    def _run(self) -> None:
        while True:
            with self._lock:
                self._lock.wait_for(lambda: self._unanswered or self._stopped)
                if self._stopped:
                    return
                batch = tuple(sorted(self._unanswered)[:MAX_ADDRESSES])
                self._question = _Question(frozenset(batch), set())
            answered = self._questions.run(partial(self._ask_for, batch))
            with self._lock:
                self._lock.wait_for(lambda: self._stopped, timeout=_PACE_S if answered else _RETRY_S)

    def _ask_for(self, batch: tuple[str, ...]) -> bool:
        assert self._ask is not None
        asked_s = _now_s()
        self._take(batch, self._ask(batch), asked_s)
        return True

    def _take(self, batch: tuple[str, ...], answer: IdentityAnswer, asked_s: float) -> None:
        with self._lock:
            outdated = not answer.told and answer.generation != self._generation
            if outdated or len(self._known) + len(batch) > _CAPACITY:
                self._known.clear()
            self._generation = answer.generation
            now_s = _now_s()
            for past in answer.past:
                self._past.told(past, asked_s, now_s)
            ended_s = {past.identity.address: now_s - past.ended_ago_s for past in answer.past}
            for identity in answer.identities:
                if (address := identity.address) not in self._question.void:
                    had = Ownership(identity, asked_s, asked_s + answer.valid_s, asked_s + STATUS_S)
                    self._know(had, min(asked_s, ended_s.get(address, -math.inf)))
            for address in self._question.asked - self._question.void:
                self._unanswered.pop(address, None)
            self._question = _Question(frozenset(), set())

    def _know(self, now: Ownership, not_before_s: float) -> None:
        before = self._known.get(address := now.identity.address)
        since_s = min(now.since_s, self._unanswered.pop(address, math.inf))
        if before is not None and not nobody(before.identity) and whose(before.identity) != whose(now.identity):
            self._end(address, before)
        elif before is not None and now.since_s <= before.until_s:
            since_s = before.since_s
        self._known[address] = now._replace(since_s=max(since_s, not_before_s))

    def _end(self, address: str, known: Ownership) -> None:
        if nobody(known.identity):  # a pod talks before its address is known, and may have ended before the next turn
            if len(self._unanswered) < _CAPACITY:
                self._unanswered[address] = known.since_s
            return
        now_s = _now_s()
        self._past.keep(address, known._replace(until_s=min(known.until_s, now_s), alone_s=0.0, gone_s=now_s))


class FakePeers(Peers):
    """`Peers` for tests: knows `identities`, by address, at once and asks nobody."""

    def __init__(self, *known: Identity) -> None:
        super().__init__(None)
        self.identities = {identity.address: identity for identity in known}

    def resolve(self, addresses: Iterable[str], late_s: float = 0.0) -> dict[str, Identity]:
        """Return those that are known."""
        return {address: self.identities[address] for address in addresses if address in self.identities}

    def leave(self, address: str, since_s: float, until_s: float) -> None:
        """Let nobody have it who did from then to then."""
        self._past.keep(address, Ownership(self.identities[address], since_s, until_s, gone_s=until_s))
        self.identities[address] = Identity(address)


def _now_s() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)  # as stamps are


def name(identity: Identity | None, peer: str) -> str:
    """Return a peer as a person would name it: `namespace/workload`, else its address."""
    who = identity and (identity.workload or identity.service or identity.pod)
    return f"{identity.namespace}/{who}" if identity and who else peer
