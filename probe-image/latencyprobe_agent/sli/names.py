"""What peers are called in rows. Exact or unknown: counts and figures are named when a time is over in which an address
may have changed hands, and who has it now may be somebody of another namespace, who has never been here."""

from collections.abc import Iterable

from latencyprobe_agent.directory.peers import Peers, name
from latencyprobe_agent.vocabulary.addresses import address

_LATE_S = 1.0  # a record is drained so long after what it tells of
_ENDED_S = 30.0  # a peer is not itself and its address, in one minute, for a name that is just being asked for again


class Names:
    """Names packed addresses as a person would."""

    def __init__(self, peers: Peers) -> None:
        self._peers = peers

    def of(self, packed: Iterable[bytes], since_s: float) -> list[str]:
        """Return who alone has had each address since then (s, boot time); the address itself where that is nobody, not
        known, or being asked for."""
        found = [address(one) for one in packed]
        known = self._peers.had_since(found, since_s - _LATE_S, _ENDED_S)
        return [name(known.get(one), one) for one in found]

    def changed(self, packed: Iterable[bytes], since_s: float, now_s: float) -> bool:
        """Return whether somebody has ceased to have one of these addresses since then, and all that tells of him has
        been drained."""
        past = self._peers.past_owners(map(address, packed)).values()
        return any(since_s - _LATE_S <= one.gone_s < now_s - _LATE_S for one in past)
