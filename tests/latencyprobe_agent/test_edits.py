"""Every field of a LatencyProbe is edited while its exchanges are counted, all the way from the operator's planner to
report, live line and collector: nothing raises, and each objective counts what was its own, while it was in force."""

from collections.abc import Callable, Iterator
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe import spec
from latencyprobe_agent.config import Config
from latencyprobe_agent.guard import Guard
from latencyprobe_agent.kernel.evidence import EvidencePrograms
from latencyprobe_agent.kernel.http2 import FakeHttp2Programs, Http2Programs
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.background import FakeBackground
from latencyprobe_agent.loop.loop import Loop
from tests.latencyprobe_agent.edits_agent import Agent
from tests.latencyprobe_agent.edits_node import PODS, Kernel, Operator
from tests.latencyprobe_agent.edits_witness import definitions

GOLD = {"matchExpressions": [{"key": "tier", "operator": "In", "values": ["gold"]}]}
SPEC: dict[str, Any] = {
    "targets": [
        {"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}, **GOLD}, "ports": [8080]},
        {"name": "calls", "podSelector": {"matchLabels": {"app": "web"}}, "ports": [9000], "role": "Client"},
    ],
    "clients": {"podSelector": {"matchLabels": {"app": "web"}, **GOLD}},
    "objectives": [
        {"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99"},
        {"name": "callers", "target": "cart", "threshold": "50ms", "goal": "99", "perspective": "Client"},
        {"name": "outside", "target": "calls", "threshold": "25ms", "goal": "99"},
    ],
    "spans": {"slowerThan": "20ms", "ratio": "0.5"},
}
Edit = Callable[[dict[str, Any]], object]


def of(*path: str | int, **fields: Any) -> Edit:
    """Set fields of what is at `path` in a spec."""

    def edit(document: dict[str, Any]) -> None:
        at: Any = document
        for step in path:
            at = at[step] if isinstance(step, int) else at.setdefault(step, {})
        at.update(fields)

    return edit


def rename_the_target(document: dict[str, Any]) -> None:
    document["targets"][0]["name"] = "basket"
    for objective in document["objectives"][:2]:
        objective["target"] = "basket"


SWITCHED = msgspec.structs.asdict(spec.EvidenceSpec())
FLIPPED = {signal: {} if wanted is None else not wanted for signal, wanted in SWITCHED.items()}
SERVER, REQUIREMENT = ("targets", 0), ("podSelector", "matchExpressions", 0)
FAST, CALLERS = ("objectives", 0), ("objectives", 1)
EDITS: dict[str, Edit] = {
    "targets": of(targets=[SPEC["targets"][0]], objectives=SPEC["objectives"][:2]),
    "targets.name": rename_the_target,
    "targets.podSelector": of(*SERVER, podSelector={}),
    "targets.podSelector.matchLabels": of(*SERVER, "podSelector", matchLabels={}),
    "targets.podSelector.matchExpressions": of(*SERVER, "podSelector", matchExpressions=[]),
    "targets.podSelector.matchExpressions.key": of(*SERVER, *REQUIREMENT, key="app"),
    "targets.podSelector.matchExpressions.operator": of(*SERVER, *REQUIREMENT, operator="NotIn"),
    "targets.podSelector.matchExpressions.values": of(*SERVER, *REQUIREMENT, values=["silver"]),
    "targets.ports": of(*SERVER, ports=[8081]),
    "targets.role": of("targets", 1, role="Server"),
    "targets.setupTurns": of(*SERVER, setupTurns=2),
    "targets.pause": of(*SERVER, pause="5s"),
    "targets.tls": of(*SERVER, tls=True),
    "targets.peers": of(*SERVER, peers=True),
    "targets.protocol": of(*SERVER, protocol="HTTP2"),
    "clients": of(clients={}),
    "clients.scope": of("clients", scope="Cluster"),
    "clients.podSelector": of("clients", podSelector={}),
    "clients.podSelector.matchLabels": of("clients", "podSelector", matchLabels={"app": "cart"}),
    "clients.podSelector.matchExpressions": of("clients", "podSelector", matchExpressions=[]),
    "clients.podSelector.matchExpressions.key": of("clients", *REQUIREMENT, key="app"),
    "clients.podSelector.matchExpressions.operator": of("clients", *REQUIREMENT, operator="NotIn"),
    "clients.podSelector.matchExpressions.values": of("clients", *REQUIREMENT, values=["silver"]),
    "objectives": of(objectives=[{"name": "new", "target": "cart", "threshold": "50ms", "goal": "90"}]),
    "objectives.name": of(*FAST, name="quick"),
    "objectives.target": of(*FAST, target="calls"),
    "objectives.threshold": of(*FAST, threshold="40ms"),
    "objectives.goal": of(*FAST, goal="99.9"),
    "objectives.window": of(*FAST, window="7d"),
    "objectives.perspective": of(*FAST, perspective="Client"),
    "objectives.minEvents": of(*FAST, minEvents=1),
    "objectives.errorsCountAsBad": of(*CALLERS, errorsCountAsBad=False),
    "spans": of(spans={}),
    "spans.slowerThan": of("spans", slowerThan="1ms"),
    "spans.ratio": of("spans", ratio="1"),
    "spans.maxPerSecond": of("spans", maxPerSecond=1),
    "spans.stages": of("spans", stages="Events"),
    "evidence": of(evidence=FLIPPED),
    **{f"evidence.{signal}": of("evidence", **{signal: flipped}) for signal, flipped in FLIPPED.items()},
    "evidence.syscalls.slowerThan": of("evidence", syscalls={"slowerThan": "1ms"}),
    "evidence.syscalls.stacks": of("evidence", syscalls={"stacks": "None"}),
    "evidence.offcpu.slowerThan": of("evidence", offcpu={"slowerThan": "1ms"}),
    "suspend": of(suspend=True),
}


def fields(kind: Any, at: str = "") -> Iterator[str]:
    """Every field of the spec, by its path."""
    if isinstance(kind, msgspec.inspect.StructType):
        for field in kind.fields:
            yield at + field.encode_name
            yield from fields(field.type, f"{at}{field.encode_name}.")
    elif isinstance(kind, msgspec.inspect.VarTupleType):
        yield from fields(kind.item_type, at)
    elif isinstance(kind, msgspec.inspect.UnionType):
        for one in kind.types:
            yield from fields(one, at)


@pytest.fixture
def agent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_halves: Any) -> Iterator[Agent]:
    """An agent of node n1 that measures both LatencyProbes."""
    (tmp_path / "cgroup.controllers").touch()
    cgroups = {}
    for one in PODS:
        folder = tmp_path / "kubepods" / f"pod{one.uid}" / one.containers[0].id
        folder.mkdir(parents=True)
        cgroups[one.uid] = folder.stat().st_ino
    kernel, operator = Kernel(cgroups, make_halves), Operator()
    operator.edit(SPEC)
    monkeypatch.setattr(EvidencePrograms, "beside", lambda *_: FakePrograms())
    monkeypatch.setattr(Http2Programs, "beside", lambda *_: FakeHttp2Programs())
    guard = Guard()
    config, loads = Config(cgroup_root=tmp_path), FakeBackground()
    with Loop(kernel, config, operator, sampling=True, guard=guard, loads=loads) as loop:
        yield Agent(loop, guard, operator, kernel)


def test_every_field_of_the_spec_has_an_edit() -> None:
    assert set(fields(msgspec.inspect.type_info(spec.LatencyProbeSpec))) == EDITS.keys()


@pytest.mark.long
@pytest.mark.parametrize("load_between", [False, True], ids=["between turns", "under load"])
@pytest.mark.parametrize("field", EDITS)
def test_an_edit_under_load_lets_every_objective_count_what_is_its_own(
    agent: Agent, field: str, load_between: bool
) -> None:
    edited = deepcopy(SPEC)
    EDITS[field](edited)
    before, redefined = agent.plan, set()
    agent.turn()
    for document in (edited, SPEC, edited):
        earlier = definitions(agent.plan).keys()
        agent.edit(document, load_between)
        assert (agent.plan.digest == before.digest) == (document is SPEC), "it changes the plan"
        redefined |= earlier ^ definitions(agent.plan).keys() if load_between else set()
        for _ in range(2):
            agent.turn()
            counted, exported = agent.counted(), agent.exported()
            certain = agent.witness.since.keys() - redefined  # of others a moment is neither before nor after
            assert {at: counted[at] for at in certain} == {at: agent.witness.ever[at] for at in certain}
            assert {at: exported[at[0]] for at in certain} == {at: agent.witness.since[at] for at in certain}
            assert exported.keys() <= {objective.id for objective in agent.plan.objectives}
            assert {f"shop/neighbour/{name}" for name in ("near", "far")} <= {name for name, _ in certain}
    agent.end()
    assert all(agent.witness.ever[at] == agent.counted()[at] for at in agent.witness.ever.keys() - redefined)
