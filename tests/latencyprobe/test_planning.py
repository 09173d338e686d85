"""planning.py: what a LatencyProbe alone says of a plan."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe import plan, planning, spec
from latencyprobe.plan import Role
from latencyprobe.stages import StagesAs

MakeProbe = Callable[..., spec.LatencyProbe]
ROOT = Path(__file__).parents[2]


def test_thresholds_are_distinct_by_value_and_ascending(probe: MakeProbe) -> None:
    objectives = [
        {"name": f"o{i}", "target": target, "threshold": threshold, "goal": "99"}
        for i, (target, threshold) in enumerate([("cart", "1s"), ("cart", "25ms"), ("cart", "1000ms"), ("db", "1ms")])
    ]
    parsed = probe(objectives=objectives)
    assert (25_000_000, 1_000_000_000) == planning.target_thresholds_ns(parsed, "cart")
    assert [1, 0, 1, 0] == [objective.threshold_index for objective in planning.objectives(parsed)]


def test_span_threshold_falls_back_to_smallest_threshold_then_100ms(probe: MakeProbe) -> None:
    def slower_than_ns(parsed: spec.LatencyProbe, index: int) -> int:
        return planning.target(parsed, parsed.spec.targets[index]).spans.slower_than_ns

    assert 5_000_000 == slower_than_ns(probe(spans={"slowerThan": "5ms"}), 0)
    assert 25_000_000 == slower_than_ns(probe(), 0)
    assert 100_000_000 == slower_than_ns(probe(), 1)


def test_target_has_what_its_probe_says(probe: MakeProbe) -> None:
    spans = {"ratio": "0.5", "maxPerSecond": 7, "stages": "Events"}
    parsed = probe(spans=spans, evidence={"handshakes": False, "tcprt": True})
    target = planning.target(parsed, parsed.spec.targets[1])
    assert ("shop/checkout/db", "u1", Role.CLIENT) == (target.id, target.probe_uid, target.role)
    policy = plan.SpanPolicy(100_000_000, 0.5, 7, StagesAs.EVENTS)
    assert (policy, ("retransmits", "tcprt")) == (target.spans, target.evidence)


def test_stages_are_child_spans_unless_the_probe_says_otherwise_and_in_the_plan_of_an_operator_that_says_nothing(
    probe: MakeProbe,
) -> None:
    parsed = probe()
    policy = planning.target(parsed, parsed.spec.targets[0]).spans
    assert StagesAs.SPANS == policy.stages
    assert b"stages" not in msgspec.json.encode(policy)
    assert policy == msgspec.json.decode(msgspec.json.encode(policy), type=plan.SpanPolicy)


def test_a_pause_is_planned_in_ns_and_200_ms_by_default(probe: MakeProbe) -> None:
    parsed = probe(targets=[{"name": "cart", "pause": "1500ms"}, {"name": "db"}], objectives=[])
    assert [1_500_000_000, plan.DEFAULT_PAUSE_NS] == [
        planning.target(parsed, target).pause_ns for target in parsed.spec.targets
    ]
    assert plan.DEFAULT_PAUSE_NS == 250_000_000


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"ports": [443]}, True),
        ({"ports": [443, 8443], "role": "Client"}, True),
        ({"ports": [443, 80]}, False),
        ({"ports": ["https"]}, False),
        ({"ports": []}, False),
        ({"ports": [443], "tls": False}, False),
        ({"ports": [80], "tls": True}, True),
    ],
)
def test_tls_is_what_the_target_says_else_what_all_its_ports_say(
    probe: MakeProbe, fields: dict[str, Any], expected: bool
) -> None:
    parsed = probe(targets=[{"name": "cart", **fields}], objectives=[])
    assert planning.target(parsed, parsed.spec.targets[0]).tls is expected


def test_docs_list_the_ports_of_tls() -> None:
    rows = re.findall(r"(?m)^  \| ([0-9][0-9, ]+) \|", (ROOT / "docs" / "api.md").read_text())
    assert sorted(planning.TLS_PORTS) == sorted(int(port) for row in rows for port in row.split(","))


def test_hash_follows_the_definition_and_nothing_else(probe: MakeProbe) -> None:
    def hashed(target: str = "cart", **changes: object) -> str:
        objective = {"name": "o", "target": target, "threshold": "25ms", "goal": "99.9"} | changes
        parsed = probe(objectives=[objective])
        return planning.objectives(parsed)[0].hash

    same = [hashed(), hashed(name="p"), hashed(goal="99"), hashed(window="7d"), hashed(threshold="25000us")]
    same += [hashed(perspective="Server"), hashed(minEvents=1)]
    assert 1 == len(set(same))
    changed = [hashed(threshold="26ms"), hashed(errorsCountAsBad=False), hashed(perspective="Client"), hashed("db")]
    assert 5 == len({hashed(), *changed})


def test_perspective_is_the_targets_role_unless_said(probe: MakeProbe) -> None:
    objectives = [
        {"name": "a", "target": "cart", "threshold": "1ms", "goal": "99"},
        {"name": "b", "target": "cart", "threshold": "1ms", "goal": "99", "perspective": "Client"},
        {"name": "c", "target": "db", "threshold": "1ms", "goal": "99"},
    ]
    planned = planning.objectives(probe(objectives=objectives))
    assert [Role.SERVER, Role.CLIENT, Role.CLIENT] == [objective.perspective for objective in planned]
