"""Who is at the other end of waiting halves: named as soon as anybody knows, and not renamed.

An address changes hands: when a pod has gone nobody has it, or another pod. So a half has the name of who had the
address when it began, where that is known, also if it comes after the news that this has changed; and it keeps the name
that its peer had while it was fresh. What is learned of the same peer later, such as that it is measured, is taken.
"""

from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from latencyprobe.plan import Identity
from latencyprobe_agent.directory.past_owners import Ownership, nobody, whose
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.telemetry.codes import Codes
from latencyprobe_agent.telemetry.matching import halves_of
from latencyprobe_agent.telemetry.span_rows import NOT_JOINED, Peer
from latencyprobe_agent.vocabulary.addresses import address

MOST = 1024  # names that are kept before it is looked which are still needed
NOBODY = 0  # the code of rows without a name


class PeerNames:
    """`peers`: by the codes in the column `peer` of rows; a new row has NOBODY."""

    def __init__(self) -> None:
        self._codes = Codes[Peer]()
        self._codes.of(Peer("", None))

    @property
    def peers(self) -> list[Peer]:
        """What the codes stand for."""
        return self._codes.values

    def name(self, rows: NDArray[np.void], peers: Peers) -> NDArray[np.bool_]:
        """Name rows (ROW[n]) whose peers are known by now; returns which are not."""
        first, of_row = groups([*halves_of(rows["peer_addr"]), rows["peer"]])
        found = addresses(rows[first])
        known, before = peers.resolve(set(found)), rows["peer"][first].tolist()
        codes = [self._named(one, code, known, peers) for one, code in zip(found, before, strict=True)]
        named = np.array(codes, np.uint32)[of_row]
        nameless = [one if code == NOBODY and one in known else "" for one, code in zip(found, before, strict=True)]
        self._name_as_then(named, rows["start_ns"], of_row, _past_owners(nameless, known, peers))
        rows["peer"] = named
        return np.asarray(named == NOBODY)

    def give_up(self, rows: NDArray[np.void], peers: Peers) -> int:
        """Let rows go without a name; returns of how many that are alone nobody has said whose their peers' addresses
        are."""
        nameless = np.flatnonzero(rows["peer"] == NOBODY)
        if not len(nameless):
            return 0
        first, of_row = groups(halves_of(rows["peer_addr"][nameless]))
        found = addresses(rows[nameless[first]])
        known = peers.resolve(found)
        named = np.array([self._codes.of(Peer(one, known.get(one))) for one in found], np.uint32)[of_row]
        then = self._name_as_then(named, rows["start_ns"][nameless], of_row, _past_owners(found, known, peers))
        rows["peer"][nameless] = named
        unasked = np.array([one not in known for one in found])[of_row] & ~then
        return int(np.count_nonzero(unasked & (rows["joined"][nameless] == NOT_JOINED)))

    def _name_as_then(
        self,
        named: NDArray[np.uint32],
        start_ns: NDArray[np.int64],
        of_row: NDArray[np.intp],
        had: list[Ownership | None],
    ) -> NDArray[np.bool_]:
        """Give rows whose address has changed hands since they began the code of who had it then; return which. `had`:
        that of each group of rows."""
        then = np.zeros(len(named), bool)
        for group, past in ((group, past) for group, past in enumerate(had) if past is not None):
            mine = (of_row == group) & (start_ns >= past.since_s * 1e9) & (start_ns <= past.until_s * 1e9)
            named[mine] = self._codes.of(Peer(past.identity.address, past.identity))
            then |= mine
        return then

    def keep(self, rows: NDArray[np.void]) -> None:
        """Forget the names that no row has, if there are many."""
        if len(self._codes.values) > MOST:
            rows["peer"] = self._codes.keep(np.append(rows["peer"], np.uint32(NOBODY)))[:-1]

    def _named(self, one: str, code: int, known: Mapping[str, Identity], peers: Peers) -> int:
        found, old = known.get(one), self._codes.values[code].identity
        if found is None or (peers.asks and nobody(found)) or (old is not None and whose(old) != whose(found)):
            return code
        return self._codes.of(Peer(one, found))


def _past_owners(found: list[str], known: Mapping[str, Identity], peers: Peers) -> list[Ownership | None]:
    """Return who had each address before, None where that is who has it now: of them what is known now is better."""
    had = peers.past_owners(found)
    owner_now = {one: whose(known[one]) for one in had if one in known}
    return [past if (past := had.get(one)) and owner_now.get(one) != whose(past.identity) else None for one in found]


def addresses(rows: NDArray[np.void]) -> list[str]:
    """Return the address of the peer of each of ROW[n]."""
    return [address(packed) for packed in np.ascontiguousarray(rows["peer_addr"]).view("V16").ravel().tolist()]
