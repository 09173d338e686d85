"""Ten tenants with equal names and overlapping selectors: none gets a pod, address, count or word of another's.

All the way that a LatencyProbe takes: planner, plans, the kernel's rules, identities, statuses, reports.
"""

import os
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import pytest

from latencyprobe import plan as plan_
from latencyprobe.plan import AgentStatus, NodePlan, Role, TargetStatus
from latencyprobe.sli import Coverage, SliRow, SlowExchange
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_agent.measure.matches import ANY_ADDRESS, ANY_PORT, packed
from latencyprobe_agent.measure.rules import NO_RULES, Rules, compile_rules
from latencyprobe_agent.vocabulary.records import RuleSide
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.identities import identity, owner_of
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports import documents
from latencyprobe_operator.status import placement
from latencyprobe_operator.status.registry import Entry
from latencyprobe_operator.status.status import status
from tests.latencyprobe_agent.tenants_world import ALLOWED, NODES, TENANTS, World, canary

LATENCYPROBES = int(os.environ.get("LATENCYPROBES", "300"))  # at random; 100,000 are 10,000 of each tenant
NOW = 1_700_000_100


class Half(NamedTuple):
    """One end of a connection. `port`: the local one of a server, of a client what it dialled; `server`: who is it."""

    side: RuleSide
    address: str
    port: int
    server: Pod


def canaries(document: Any) -> set[bytes]:
    """Every canary in something that leaves the operator or the agent."""
    return set(re.findall(rb"canary\d", msgspec.json.encode(document)))


def own(tenant: str) -> set[bytes]:
    return {canary(tenant).encode()}


def check_targets(plan: NodePlan, world: World) -> None:
    """What targets name is their tenant's; callers of others are those that an administrator allows."""
    tenant_of = {pod.uid: pod.namespace for pod in world.state.pods()}
    owners = world.owners()
    for target in plan.targets:
        everybody = world.probes[target.namespace, target.probe].spec.clients.scope == "Cluster"
        named = [pod.uid for pod in target.pods] + [uid for group in target.replicas for uid in group.pods]
        assert {target.namespace} >= {tenant_of[uid] for uid in named}, target
        callers = {tenant_of[uid] for uid in target.callers}
        assert callers <= {target.namespace} or (everybody and target.namespace in ALLOWED), target
        ends = [*target.endpoints, *(end for group in target.replicas for end in group.endpoints or ())]
        foreign = [end for end in ends if target.namespace not in owners[end.address]]
        assert not foreign, f"{target.id}: {foreign}"
    for pod in plan.pods:
        assert canaries(pod) == own(pod.namespace)


def matched(rules: Rules, cgroup: int, half: Half) -> tuple[str, ...]:
    """The targets (ids) of a socket, as the kernel looks them up."""
    server_group, client_group = rules.scopes.get(cgroup, (0, 0))
    group = server_group if half.side is RuleSide.LOCAL else client_group
    addresses = [packed(half.address), ANY_ADDRESS] if half.side is RuleSide.PEER else [ANY_ADDRESS]
    keys = [(a, group, p, half.side) for a in addresses for p in (half.port, ANY_PORT)]
    index = next((rules.rules[key] for key in keys if group and key in rules.rules), 0)
    return rules.sets[index].targets if index else ()


def check_sockets(node: str, plan: NodePlan, rules: Rules, cgroups: Mapping[str, list[int]], world: World) -> int:
    """Whatever anybody dials: of a server's target only its tenant's servers are counted, and who calls them, if he is
    of the same tenant or an administrator allows it; of a client's target its tenant's pods. Returns how many halves
    are counted."""
    targets = {target.id: target for target in plan.targets}
    ends, counted = [*world.ends()], 0
    for pod in world.state.pods_on(node):
        halves = [Half(RuleSide.PEER, end.address, end.port, end.server) for end in ends]
        halves += [Half(RuleSide.LOCAL, "", end.port, pod) for end in ends if end.server is pod]
        for half in halves:
            for target in (targets[id_] for id_ in matched(rules, cgroups[pod.uid][0], half)):
                tenant, counted = target.namespace, counted + 1
                own_server = tenant == half.server.namespace
                allowed = tenant == pod.namespace or (half.side is RuleSide.PEER and tenant in ALLOWED)
                assert allowed, (target.id, pod, half)
                assert own_server or target.role is Role.CLIENT, (target.id, pod, half)
                assert tenant == pod.namespace or target.role is Role.SERVER, (target.id, pod, half)
    return counted


def check_identities(world: World) -> None:
    """An address names its only pod or nobody; a node's names no pod."""
    for address, tenants in world.owners().items():
        found = identity(address, owner_of(address, world.state))
        assert found.namespace in {"", *tenants}
        assert canaries(found) <= own(found.namespace) if found.namespace else not canaries(found)
        assert found.pod == "" or address not in NODES.values()


def check_statuses(world: World, planner: Planner) -> None:
    """A tenant's status has figures of its own targets alone, though all have the same names."""
    agents = Agents()
    for node in NODES:
        plan = planner.plan_of(node)
        seen = tuple(TargetStatus(t.id, 1, {canary(t.namespace): 1}, {}) for t in plan.targets)
        said = AgentStatus("i", "b", "0", plan.generation, {}, "", seen, {})
        agents.reported(node, said, plan, 0.0)
    for key, probe in world.probes.items():
        resolved = planner.resolved[key]
        states = agents.states(resolved.nodes, planner.plan_of, 1.0)
        entry = Entry(probe.uid, 1, probe)
        parts = {"states": states, "agents": agents, "placement": placement.Placement(world.state, "agents", ())}
        told = status(entry, resolved, figures=(), previous=None, now="", **parts)
        assert canaries(told) <= own(key[0]), told


@pytest.mark.long
def test_ten_tenants_never_get_a_pod_an_address_or_a_count_of_another() -> None:
    seed = int(os.environ.get("SEED", random.randrange(1 << 30)))
    print(f"seed {seed}")
    world, planner = World(seed), Planner(1, b"k" * 32)
    rules: dict[str, Rules] = dict.fromkeys(NODES, NO_RULES)
    halves = Counter[str]()
    for turn in range(LATENCYPROBES):
        world.change()
        changed = planner.update(dict(world.probes), world.state, world.state.take_changes())
        cgroups = {pod.uid: [number] for number, pod in enumerate(world.state.pods(), 1)}
        for node in NODES:
            plan = planner.plan_of(node)
            rules[node] = compile_rules(plan, cgroups, rules[node])
            if node in changed:
                check_targets(plan, world)
                halves[node] += check_sockets(node, plan, rules[node], cgroups, world)
        if turn % 10 == 0:
            check_identities(world)
            check_statuses(world, planner)
    print(f"{LATENCYPROBES} LatencyProbes, {halves.total()} halves counted")
    assert halves.total() > 100 * LATENCYPROBES, "there was something to see"


def rows(probe: Any) -> Iterable[SliRow]:
    """What an agent counts for a tenant: with its canary wherever there is a name."""
    mark = canary(probe.namespace)
    slow = SlowExchange(mark, NOW * 10**9, 50_000_000, {"process": 50_000_000}, f"{mark}/web")
    for objective in objectives(probe):
        yield SliRow(
            *objective.key,
            minute=NOW // 60 * 60 - 60,
            good=1000 + TENANTS.index(probe.namespace),
            bad=1,
            coverage=Coverage(seen=2000, measured_ms=60_000, expected_ms=60_000),
            slowest=(slow,),
            peers={f"{mark}/web": 1},
            waited_ns={f"{mark}/db:5432": 10},
        )


def test_reports_of_ten_tenants_with_equal_names_have_their_own_counts_and_names(tmp_path: Path) -> None:
    world = World(1)
    while len(world.probes) < 2 * len(TENANTS):
        world.change()
    probes = [*world.probes.values()]
    assert len({objective.key.objective for probe in probes for objective in objectives(probe)}) == 1
    with SqliteStore(tmp_path / "sli.db", clock=lambda: NOW) as store:
        store.add(row for probe in probes for row in rows(probe))
        documents.define(store, probes)
        for tenant, owners in documents.by_namespace(probes).items():
            report = documents.evaluate(store, owners, NOW).report
            assert canaries(report) == own(tenant)
            assert {1001 + TENANTS.index(tenant)} == {result["events"] for result in report["results"]}
            assert len(report["results"]) == 2


def test_the_oracle_sees_a_target_that_names_a_foreign_pod() -> None:
    world, planner = World(1), Planner(1)
    while not world.probes:
        world.change()
    planner.update(dict(world.probes), world.state, world.state.take_changes())
    plan = next(planner.plan_of(node) for node in NODES if planner.plan_of(node).targets)
    target = plan.targets[0]
    foreign = next(pod.uid for pod in world.state.pods() if pod.namespace != target.namespace)
    leaky = msgspec.structs.replace(target, pods=(plan_.TargetPod(uid=foreign, ports=()),))
    try:
        check_targets(msgspec.structs.replace(plan, targets=(leaky,)), world)
    except AssertionError:
        return
    raise AssertionError("a foreign pod went unseen")
