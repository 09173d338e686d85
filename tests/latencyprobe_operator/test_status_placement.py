"""Why a node has no agent, as the owner of a LatencyProbe reads it."""

from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe_operator.cluster.objects import Container, Kind, Node, Pod, Taint, Trouble
from latencyprobe_operator.config import Toleration
from latencyprobe_operator.plan.agents import STARTING_S
from latencyprobe_operator.status.conditions import Condition
from latencyprobe_operator.status.placement import Placement

AGENTS = "lp-agents"
CORDONED = Taint("node.kubernetes.io/unschedulable", "", "NoSchedule")
DEDICATED = Taint("dedicated", "db", "NoSchedule")
NODE = Node("uid-n1", "n1", measure=True)


def agent(make: Any, name: str = "agent-x", *, node: str = "n1", **fields: Any) -> Pod:
    found: Pod = make.pod(name, namespace=AGENTS, node=node, owner_kind="DaemonSet", owner_name="agent", **fields)
    return found


def ready(planned: Any, now_s: float, *tolerations: Toleration) -> Condition:
    placement = Placement(planned.state, AGENTS, tolerations)
    found = planned.conditions(now_s, placement)
    return next(one for one in found if one.type == "ProbesReady")


def missing(planned: Any, *tolerations: Toleration) -> tuple[str, str]:
    found = ready(planned, STARTING_S + 1, *tolerations)
    assert found.status == "False"
    return found.reason, found.message.removeprefix("no agent reports from n1: ")


def test_taint_that_the_chart_does_not_tolerate_is_named_with_the_remedy(planned: Any) -> None:
    planned.state.put("nodes", replace(NODE, taints=(DEDICATED, CORDONED)))
    expected = "the node's taint dedicated=db:NoSchedule keeps agents away: add a toleration to agent.tolerations"
    assert missing(planned) == ("NodeTainted", expected)
    assert missing(planned, Toleration("dedicated", "Exists"))[0] == "AgentMissing"


def test_cordon_is_never_blamed(planned: Any, make: Any) -> None:
    planned.state.put("nodes", replace(NODE, taints=(CORDONED,)))
    planned.report("n1", 5)
    assert ready(planned, 6).status == "True"
    planned.state.put("pods", agent(make, trouble=Trouble(Kind.CRASH, "exit code 1 (Error)")))
    assert missing(planned)[0] == "AgentCrashing"


def test_node_that_is_not_ready_is_named_before_anything_else(planned: Any, make: Any) -> None:
    planned.state.put("nodes", replace(NODE, unready="KubeletNotReady", taints=(DEDICATED,)))
    planned.state.put("pods", agent(make, trouble=Trouble(Kind.CRASH, "exit code 1 (Error)")))
    expected = "the node is not ready (KubeletNotReady): kubectl describe node n1"
    assert missing(planned) == ("NodeNotReady", expected)


def test_node_of_another_system_is_named(planned: Any) -> None:
    planned.state.put("nodes", replace(NODE, system="windows"))
    reason, text = missing(planned)
    assert (reason, "keep target pods on Linux nodes" in text) == ("NodeNotLinux", True)


@pytest.mark.parametrize(
    ("trouble", "reason", "said"),
    [
        (Trouble(Kind.IMAGE, "agent:1"), "AgentImage", "image agent:1 cannot be pulled: check agent.image.*"),
        (Trouble(Kind.CRASH, "exit code 1 (Error)"), "AgentCrashing", "kubectl logs -n lp-agents agent-x --previous"),
        (Trouble(Kind.START, "CreateContainerConfigError"), "AgentNotStarted", "(CreateContainerConfigError)"),
        (Trouble(Kind.ENDED, "Evicted"), "AgentEnded", "kubectl describe pod -n lp-agents agent-x"),
        (Trouble(Kind.UNSCHEDULABLE, "0/2 nodes: x"), "AgentUnschedulable", "(0/2 nodes: x): make room"),
    ],
)
def test_what_keeps_the_agents_pod_from_running_is_told(
    planned: Any, make: Any, trouble: Trouble, reason: str, said: str
) -> None:
    waits = trouble.kind is Kind.UNSCHEDULABLE
    planned.state.put("pods", agent(make, node="" if waits else "n1", meant_for="n1", trouble=trouble))
    found, text = missing(planned)
    assert (found, said in text) == (reason, True), text


def test_agent_that_runs_without_a_word_and_one_that_is_being_made_are_told_apart(planned: Any, make: Any) -> None:
    planned.state.put("pods", agent(make))
    assert missing(planned)[0] == "AgentSilent"
    planned.state.put("pods", agent(make, containers=(Container("agent"),)))
    assert "its agent's pod is being started" in missing(planned)[1]
    planned.state.put("pods", agent(make, terminating=True))
    assert missing(planned)[0] == "AgentEnded"


def test_agent_that_was_told_to_end_is_not_ready_though_it_still_reports(planned: Any, make: Any) -> None:
    planned.report("n1", 5)
    planned.state.put("pods", agent(make))
    assert ready(planned, 6).status == "True"
    planned.state.put("pods", agent(make, terminating=True))
    found = ready(planned, 6)
    assert (found.status, found.reason, found.message) == ("Unknown", "AgentStarting", "waiting for the agent on n1")
    planned.state.put("pods", agent(make, "agent-y"))
    assert ready(planned, 6).status == "True"


def test_new_agent_beside_one_that_ends_is_the_one_that_counts(planned: Any, make: Any) -> None:
    for names in (("agent-a", "agent-b"), ("agent-b", "agent-a")):
        for name in names:
            gone = name == "agent-a"
            planned.state.put(
                "pods", agent(make, name, terminating=gone, trouble=None if gone else Trouble(Kind.IMAGE, ""))
            )
        assert missing(planned)[0] == "AgentImage"
        for name in names:
            planned.state.drop("pods", (AGENTS, name))


def test_pods_that_only_look_like_agents_explain_nothing(planned: Any, make: Any) -> None:
    trouble = Trouble(Kind.IMAGE, "evil")
    planned.state.put("pods", replace(agent(make, trouble=trouble), namespace="bank"))
    assert missing(planned)[0] == "AgentMissing"


def test_label_that_could_not_be_written_is_named(planned: Any) -> None:
    planned.state.put("nodes", replace(NODE, measure=False))
    assert missing(planned)[0] == "NodeNotLabelled"


def test_nodes_are_gathered_by_reason_the_commonest_first(make: Any) -> None:
    pods = [make.pod(f"cart-{n}", node=f"n{n}") for n in (1, 2, 3)]
    planned = make.planned(*pods, clients={"scope": "None"})
    for name in ("n2", "n3"):
        planned.state.put("nodes", Node(f"uid-{name}", name, measure=True, taints=(DEDICATED,)))
    planned.state.put("nodes", replace(NODE, unready="KubeletNotReady"))
    found = ready(planned, STARTING_S + 1)
    assert found.reason == "NodeTainted"
    assert found.message == (
        "no agent reports from n2, n3: the node's taint dedicated=db:NoSchedule keeps agents away: add a toleration to "
        "agent.tolerations; no agent reports from n1: the node is not ready (KubeletNotReady): kubectl describe node n1"
    )


def test_what_waiting_does_not_mend_is_told_before_the_agent_is_late(planned: Any) -> None:
    assert ready(planned, 5).message == "waiting for the agent on n1"
    planned.state.put("nodes", replace(NODE, taints=(DEDICATED,)))
    found = ready(planned, 5)
    assert (found.status, found.reason) == ("Unknown", "AgentStarting")
    assert found.message.startswith("waiting for the agent on n1; n1: the node's taint dedicated=db:NoSchedule")


def test_scaled_to_zero_asks_for_no_agent_and_back_waits_for_one_again(planned: Any, make: Any) -> None:
    planned.report("n1", 5)
    planned.state.drop("pods", ("shop", "cart-1"))
    planned.plan(planned.probe)
    assert planned.planner.nodes == frozenset(), "its label goes, and with it the agent"
    found = ready(planned, 6)
    assert (found.status, found.reason) == ("False", "NoMatchingPods")
    planned.state.put("pods", make.pod("cart-2", node="n2"))
    planned.plan(planned.probe)
    assert (ready(planned, 10).reason, planned.planner.nodes) == ("AgentStarting", {"n2"})
    planned.report("n2", 11)
    assert ready(planned, 12).status == "True"


def test_drained_node_is_not_asked_for_an_agent(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), make.pod("cart-2", node="n2"), clients={"scope": "None"})
    for node in ("n1", "n2"):
        planned.report(node, 5)
    planned.state.put("nodes", replace(NODE, taints=(CORDONED,)))
    planned.state.drop("pods", ("shop", "cart-1"))
    planned.plan(planned.probe)
    assert planned.planner.nodes == {"n2"}
    assert ready(planned, 6).status == "True"
