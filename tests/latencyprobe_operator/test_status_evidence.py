"""Evidence that a LatencyProbe asks for and its nodes do not make, or not yet: which, where, and why."""

from typing import Any

import pytest

from latencyprobe_operator.status.placement import Placement

LOCKED = "kernel lockdown forbids reading kernel memory: boot with lockdown=integrity"


def told(planned: Any, now_s: float) -> dict[str, tuple[str, str]]:
    placement = Placement(planned.state, "latencyprobe-agents", ())
    found = planned.conditions(now_s, placement)
    return {one.type: (one.status, one.message) for one in found if one.type in ("EvidenceUnsupported", "Ready")}


@pytest.mark.parametrize(
    ("asked", "refused", "named"),
    [
        ({}, {"handshakes": LOCKED, "retransmits": LOCKED, "tcprt": "nobody asks"}, "handshakes, retransmits"),
        ({"retransmits": False}, {"handshakes": LOCKED, "retransmits": "nobody asks"}, "handshakes"),
        ({"offcpu": {}}, {"waits": LOCKED}, "waits"),
        ({}, {"waits": "nobody asks"}, ""),
    ],
)
def test_signals_that_are_asked_for_and_not_attached_are_told_with_the_remedy(
    make: Any, asked: dict[str, Any], refused: dict[str, str], named: str
) -> None:
    planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}, evidence=asked)
    planned.report("n1", 5, seen=7, variants=dict.fromkeys(refused, "unsupported"), refused=refused)
    said = {"EvidenceUnsupported": ("True", f"agent on n1 measures without evidence of {named}: {LOCKED}")}
    assert told(planned, 6) == {"Ready": ("True", "")} | (said if named else {})
    planned.report("n1", 7, seen=9)
    assert "EvidenceUnsupported" not in told(planned, 8)


def test_who_waits_until_all_is_ready_has_evidence_from_then_on(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), clients={"scope": "None"})
    planned.report("n1", 5, seen=7, loading=("retransmits", "tcprt"))
    ready = "agent on n1 measures, and is about to attach evidence of retransmits"
    assert {"Ready": ("Unknown", ready)} == told(planned, 6)
    planned.report("n1", 7, seen=9, loading=("tcprt",))
    assert {"Ready": ("True", "")} == told(planned, 8), "what others ask for is not waited for"
