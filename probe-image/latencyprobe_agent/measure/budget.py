"""How many spans LatencyProbes, namespaces and all of a node together may still make. Pure.

The node's budget is shared out among namespaces twice: what is left of it now by what comes together now, and over time
by an equal part for each, which it has even if others have just used everything up.
"""

from collections.abc import Iterable, Mapping, Set

from latencyprobe.shares import shares

_LONGEST_WAIT_S = 10.0  # of records for the agent, that the budget makes up for
_NODE = "/"  # no name of a LatencyProbe or namespace: the budget of all together


class Budget:
    """Spans that each LatencyProbe, and all together, may still make on this node. `per_second`: of all together.

    One second's worth is saved up, or as many seconds' as the oldest of what comes has waited for us: an agent that the
    machine held up lacks no spans for it.
    """

    def __init__(self, per_second: int) -> None:
        self.per_second = per_second
        self._left: dict[str, tuple[float, int]] = {}
        self._limited_ns: dict[str, int] = {}

    def left(self, probe: str, per_second: float, now_ns: int, waited_ns: int = 0) -> int:
        """Return how many spans `probe` may make now.

        `now_ns`: a clock that never steps back; `waited_ns`: since the oldest of those that come now had ended.
        """
        saved_s = min(max(waited_ns / 1e9, 1.0), _LONGEST_WAIT_S)
        at_first = max(per_second, min(per_second * _LONGEST_WAIT_S, 1.0))  # of less than one a second, one
        most = max(per_second * saved_s, at_first)
        left, since_ns = self._left.get(probe, (at_first, now_ns))
        left = min(most, left + per_second * (now_ns - since_ns) / 1e9)
        self._left[probe] = (left, now_ns)
        return max(0, int(left))

    def spend(self, probe: str, spans: int) -> None:
        """Take `spans` off what is left."""
        left, since_ns = self._left[probe]
        self._left[probe] = (left - spans, since_ns)

    def shared_out(self, wanted: Mapping[str, int], namespaces: int, now_ns: int, waited_ns: int) -> dict[str, int]:
        """Spend of the node's budget what each namespace gets of the spans that it wants now; return it.

        `namespaces`: among how many the node is shared. Who has just begun to want has an equal part at once, which
        those who want more have to wait for afterwards.
        """
        given = shares(wanted, self.left(_NODE, self.per_second, now_ns, waited_ns))
        for namespace, spans in wanted.items():
            equal = self.left(namespace, self.per_second / max(namespaces, 1), now_ns, waited_ns)
            given[namespace] = max(given[namespace], min(spans, equal))
            self.spend(namespace, min(given[namespace], equal))
        self.spend(_NODE, sum(given.values()))
        return given

    def keep(self, names: Set[str]) -> None:
        """Forget LatencyProbes and namespaces that are none of these, once they are the most."""
        if len(self._left) > 2 * len(names) + 1:
            self._left = {name: left for name, left in self._left.items() if name in names or name == _NODE}
            self._limited_ns = {name: at_ns for name, at_ns in self._limited_ns.items() if name in names}

    def limit(self, probes: Iterable[str], now_ns: int) -> None:
        """Note that what all together may make has left out spans of these."""
        self._limited_ns |= dict.fromkeys(probes, now_ns)

    def limited(self, since_ns: int) -> set[str]:
        """Return those that this was noted of since then."""
        return {probe for probe, at_ns in self._limited_ns.items() if at_ns >= since_ns}
