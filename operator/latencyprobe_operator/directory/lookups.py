"""How many owners of addresses an agent may learn: those that its node's pods talk to, which are few and the same again
and again, and not those of the whole cluster.
"""

import logging
import time
from collections import Counter
from collections.abc import Callable, Iterable, Set

from latencyprobe_operator.directory.limits import Bucket, ByNode, Recent, Refused

log = logging.getLogger(__name__)

NEW_PER_S, NEW_AT_ONCE = 10, 5_000  # addresses whose owner a node did not ask for before
OWN_PER_S, OWN_AT_ONCE = 2, 1_000  # of each namespace that the node measures, whatever it asks for besides
PER_S, AT_ONCE = 3_000, 20_000  # all that a node asks for: its 5,000 each 2 s, while callers' agents are about to apply
_BITS = 1 << 15  # 4 KiB a node, 20 MB of 5,000 nodes; twice that of those that have asked for many
_SHIFTS = range(0, 4 * (_BITS.bit_length() - 1), _BITS.bit_length() - 1)  # four hashes
_NAMESPACES = 128  # that a node measures; it has some 110 pods


class Lookups:
    """`counts`: addresses whose owner was told, because it was before (`again`) or is one more (`new`), and those whose
    owner was not told (`too_many`). `told`: the others, of each node; `asked`: how many more it may ask for."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self.counts: Counter[str] = Counter()
        self.told = ByNode(lambda: _Told(clock))
        self.asked = ByNode(lambda: Bucket(PER_S, AT_ONCE, clock))

    def admit(self, node: str, addresses: int) -> None:
        """Let a node ask for the owners of so many addresses. Raises Refused: 429 when it has asked for too many."""
        asked = self.asked.of(node)
        if asked.empty():
            raise Refused(429, f"more than {PER_S} addresses a second: slow down", asked.wait_s)
        asked.spend(addresses)

    def may_learn(self, node: str, address: str, namespace: str, measured: Set[str]) -> bool:
        """Return whether a node may be told who has an address. `namespace`: the owner's; `measured`: those of whose
        LatencyProbes the node measures any."""
        told = self.told.of(node)
        outcome = told.again_or_new(address, namespace if namespace in measured else "")
        self.counts[outcome] += 1
        if outcome == "too_many" and not told.logged:
            told.logged = True
            log.warning(
                "%s: its agent asks for the owners of more addresses than its pods can talk to (%d, and %d more a "
                "second): the others have no name; look whether it is the agent that asks",
                *(node, NEW_AT_ONCE, NEW_PER_S),
            )
        return outcome != "too_many"


class _Told:
    """The owners that one node was told, in Bloom filters (Bloom 1970): of 5,000 addresses in each 4 % of new ones
    count as told before, none the other way round. Of two the older one goes when the younger is full: who is asked for
    again meanwhile is in that too."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self.logged = False
        self._filters = [_Filter()]
        self._new = Bucket(NEW_PER_S, NEW_AT_ONCE, clock)
        self._own: Recent[str, Bucket] = Recent(_NAMESPACES, lambda: Bucket(OWN_PER_S, OWN_AT_ONCE, clock))

    def again_or_new(self, address: str, own: str) -> str:
        """Return what becomes of an address. `own`: the namespace that it is of, if the node measures that."""
        places = _places(address)
        recent = self._filters[0].has(places)
        again = recent or (len(self._filters) > 1 and self._filters[1].has(places))
        if not again and not (own and self._own.of(own).take()) and not self._new.take():
            return "too_many"
        if not recent:
            if self._filters[0].entries >= NEW_AT_ONCE:
                self._filters = [_Filter(), self._filters[0]]
            self._filters[0].put(places)
        return "again" if again else "new"


class _Filter:
    def __init__(self) -> None:
        self.entries = 0
        self._bits = bytearray(_BITS // 8)

    def has(self, places: Iterable[int]) -> bool:
        bits = self._bits
        for place in places:  # noqa: SIM110 - a third of the time of all(), which was a twentieth of the operator's
            if not bits[place >> 3] >> (place & 7) & 1:
                return False
        return True

    def put(self, places: Iterable[int]) -> None:
        self.entries += 1
        for place in places:
            self._bits[place >> 3] |= 1 << (place & 7)


def _places(address: str) -> tuple[int, ...]:
    digest = hash(address)  # 61 bits with the process's own salt: nobody can choose addresses that collide
    return tuple([digest >> shift & _BITS - 1 for shift in _SHIFTS])
