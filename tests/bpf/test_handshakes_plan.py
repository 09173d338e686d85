"""Handshakes as an agent has them: of the plan's sockets only, and never its own."""

import os

import numpy as np
import pytest

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as PlanRole
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.signals.table import HANDSHAKES
from tests.support.ports import free_port
from tests.truth.handshaking import (
    CLIENT,
    MS,
    SERVER,
    S,
    dial,
    fails,
    listen,
    outcome,
)

pytestmark = pytest.mark.root


def test_beside_a_plan_only_its_targets_are_reported_and_join(session, ends, record, port):
    client, server = ends
    other = free_port()
    targets = [target("wanted", port, ("handshakes",)), target("plain", other, ())]
    plan = NodePlan(node="", generation=1, digest="", targets=tuple(targets), objectives=(), host=True)
    rules = compile_rules(plan, {}, session.rules)
    session.programs.apply(rules, idle_timeout_ns=S, own_tgid=0, owner_by_process=False)
    recorder = record(HANDSHAKES)
    for at in (port, other):
        with listen(server, at) as listener, dial(client, at) as made, listener.accept()[0] as accepted:
            made.sendall(b"request")
            accepted.sendall(accepted.recv(100))
            made.recv(100)
    fails(client, port)
    exchanges = session.records(4)
    records = recorder.records()
    wanted = {index for index, one in rules.sets.items() if "wanted" in one.targets}
    assert wanted == set(records["flow"]["target_set"])
    assert [("ok", CLIENT), ("ok", SERVER), ("refused", CLIENT)] == [(outcome(r), r["flow"]["role"]) for r in records]
    of_port = exchanges[np.isin(exchanges["target_set"], list(wanted))]
    assert set(of_port["sock_cookie"]) == set(records["flow"]["sock_cookie"][:2])


def test_the_agents_own_connections_are_no_evidence(session, ends, record, port):
    client, server = ends
    plan = NodePlan(
        node="", generation=1, digest="", targets=(target("wanted", port, ("handshakes",)),), objectives=(), host=True
    )
    rules = compile_rules(plan, {}, session.rules)
    session.programs.apply(rules, idle_timeout_ns=S, own_tgid=os.getpid(), owner_by_process=False)
    recorder = record(HANDSHAKES)
    with listen(server, port):
        dial(client, port).close()
        assert [SERVER] == recorder.records()["flow"]["role"].tolist()


def target(name: str, port: int, evidence: tuple[str, ...]) -> Target:
    spans = SpanPolicy(slower_than_ns=25 * MS, ratio=0.01, max_per_second=1000)
    return Target(
        id=name,
        namespace="default",
        probe="handshakes",
        probe_uid="",
        name=name,
        role=PlanRole.SERVER,
        thresholds_ns=(25 * MS,),
        setup_turns=0,
        spans=spans,
        ports=(port,),
        clients=True,
        evidence=evidence,
    )
