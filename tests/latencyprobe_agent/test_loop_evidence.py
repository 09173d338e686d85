"""The signals of evidence as the plan switches it."""

import numpy as np

from latencyprobe.plan import SpanPolicy
from latencyprobe_agent.loop.evidence import EvidenceSignals
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.signals.table import RETRANSMITS
from latencyprobe_agent.vocabulary.records import RETRANSMIT, EvidenceFlags, RetransmitKind

ANY = {("", 1, 0, 0): 1}
MINUTES_NS = 10**12


def rules(evidence: EvidenceFlags) -> Rules:
    target_set = TargetSet(("shop/p/cart",), (), 0, SpanPolicy(1, 1.0, 1), "shop/p", evidence)
    return Rules(rules=ANY, sets={1: target_set})


class Attached:
    """A signal whose ring has one record that explains nothing, after it has lost three."""

    def __init__(self, signal) -> None:
        assert signal is RETRANSMITS
        self.variants: dict[str, str] = {}
        self.closed = False
        self._ring = np.zeros(1, RETRANSMIT)
        self._ring["kind"] = RetransmitKind.SEGMENT
        self._ring["flow"]["boot_ns"] = MINUTES_NS

    def drain(self, limit: int) -> np.ndarray:
        batch, self._ring = self._ring[:limit], self._ring[limit:]
        return batch

    def lost(self) -> dict[str, int]:
        assert not self.closed
        return {"ring_full": 3, "storage": 0}

    def close(self) -> None:
        self.closed = True


def test_counters_go_on_when_a_signal_is_switched_off_and_on_again():
    signals = EvidenceSignals(Attached)
    seen = []
    for evidence in (EvidenceFlags.RETRANSMITS, EvidenceFlags(0), EvidenceFlags.RETRANSMITS):
        signals.follow(rules(evidence))
        list(signals.drain(MINUTES_NS))
        counts = signals.lost["retransmits"], signals.outcomes["retransmits"]
        seen.append((counts[0]["ring_full"], counts[1]["no_exchange"]))

    signals.give_up()

    assert [(3, 0), (3, 1), (6, 1)] == seen, "what waits for its exchange when its signal ends finds none"
    assert 2 == signals.outcomes["retransmits"]["no_exchange"]
