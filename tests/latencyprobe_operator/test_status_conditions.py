"""Conditions: what a person reads in `kubectl describe latencyprobe`."""

from typing import Any

import msgspec
from msgspec.structs import replace

from latencyprobe.errors import SpecError
from latencyprobe.plan import TargetStatus
from latencyprobe.variants import USER_STACKS
from latencyprobe_operator.cluster.objects import Kind, Trouble
from latencyprobe_operator.plan.agents import STARTING_S
from latencyprobe_operator.status.conditions import Condition, invalid
from latencyprobe_operator.status.placement import Placement


def of(planned: Any, now_s: float, **kw: Any) -> dict[str, Condition]:
    placement = Placement(planned.state, "lp-agents", ())
    found = planned.conditions(now_s, placement, **kw)
    return {condition.type: condition for condition in found}


def short(planned: Any, now_s: float, **kw: Any) -> dict[str, tuple[str, str]]:
    return {name: (c.status, c.reason) for name, c in of(planned, now_s, **kw).items()}


def test_everything_is_true_when_the_agent_measures_traffic(planned: Any) -> None:
    planned.report("n1", 5, seen=7)
    assert short(planned, 6) == {
        "Accepted": ("True", "Accepted"),
        "ProbesReady": ("True", "AgentsReady"),
        "Measuring": ("True", "Measuring"),
        "Ready": ("True", "Ready"),
    }


def test_agents_without_traffic_are_ready_and_report_no_traffic(planned: Any) -> None:
    planned.report("n1", 5)
    found = short(planned, 6)
    assert (found["Ready"], found["Measuring"]) == (("True", "Ready"), ("False", "NoTraffic"))


def test_agent_that_does_not_come_is_first_awaited_then_missing(planned: Any) -> None:
    assert short(planned, STARTING_S - 1)["ProbesReady"] == ("Unknown", "AgentStarting")
    assert short(planned, STARTING_S + 1)["ProbesReady"] == ("False", "AgentMissing")


def test_agent_that_fell_silent_is_missing_at_once(planned: Any) -> None:
    planned.report("n1", 5)
    assert short(planned, 40)["ProbesReady"] == ("True", "AgentsReady")
    assert short(planned, 55)["ProbesReady"] == ("False", "AgentMissing")


def test_agent_that_was_turned_away_is_named_so(planned: Any, make: Any) -> None:
    planned.agents.refused("n1", "the token belongs to node n2, not to n1")
    planned.state.put("pods", make.pod("agent-x", namespace="lp-agents", owner_kind="DaemonSet"))
    found = of(planned, STARTING_S + 1)["ProbesReady"]
    assert (found.reason, "belongs to node n2" in found.message) == ("DirectoryRefused", True)


def test_an_agent_that_does_not_run_was_not_turned_away(planned: Any, make: Any) -> None:
    planned.agents.refused("n1", "the token belongs to node n2, not to n1")
    trouble = Trouble(Kind.IMAGE, "agent:1 (ErrImagePull)")
    planned.state.put("pods", make.pod("agent-x", namespace="lp-agents", owner_kind="DaemonSet", trouble=trouble))
    assert of(planned, STARTING_S + 1)["ProbesReady"].reason == "AgentImage"


def test_part_of_an_agent_that_raises_is_named_while_the_rest_measures(planned: Any) -> None:
    planned.report("n1", 5, seen=7, failing={"metrics": "ValueError: x not in tuple"})
    found = of(planned, 6)
    assert (found["Ready"].status, found["PartFailing"].status) == ("True", "True")
    assert found["PartFailing"].message.startswith("agent on n1: metrics fails: ValueError: x not in tuple")
    planned.report("n1", 7, seen=9)
    assert "PartFailing" not in of(planned, 8)


def test_agent_that_counts_alone_because_it_crashed_is_told(planned: Any) -> None:
    planned.report("n1", 5, safe_mode="it crashed 2 times within an hour, and its log says how")
    found = of(planned, 6)
    assert (found["Ready"].status, found["SafeMode"].status) == ("True", "True")
    assert "agent on n1 makes reports, but no spans" in found["SafeMode"].message
    assert found["SafeMode"].message.endswith("it crashed 2 times within an hour, and its log says how")


def test_latencyprobe_that_asks_for_more_spans_than_its_nodes_make_is_told_so(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}, spans={"maxPerSecond": 5000})
    planned.report("n1", 5, spans_per_second=2000)
    found = of(planned, 6)
    assert (found["Ready"].status, found["SpansLimited"].status) == ("True", "True")
    assert found["SpansLimited"].message == (
        "spec.spans.maxPerSecond is 5000, but the agent on n1 makes 2000 spans a second for all LatencyProbes "
        "together: raise agent.spansPerSecond in the chart, or lower maxPerSecond"
    )
    for enough in (5000, None):  # None: nothing is exported
        planned.report("n1", 7, spans_per_second=enough)
        assert "SpansLimited" not in of(planned, 8)


def test_latencyprobe_whose_spans_others_took_is_told_so(planned: Any) -> None:
    planned.report("n1", 5, spans_per_second=2000, spans_limited=("shop/checkout", "shop/other"))
    message = of(planned, 6)["SpansLimited"].message
    assert "on n1 makes 2000 spans a second for all LatencyProbes together and left out some of these" in message
    assert "raise agent.spansPerSecond in the chart" in message
    planned.report("n1", 7, spans_per_second=2000, spans_limited=("shop/other",))
    assert "SpansLimited" not in of(planned, 8)


def test_target_that_a_node_has_no_room_for_is_named_with_the_remedy(planned: Any) -> None:
    cart = TargetStatus("shop/checkout/cart", 0, {}, {}, refused="there is no room: name fewer ports")
    planned.report("n1", 5, targets=(msgspec.structs.replace(cart, id="shop/other/cart"),))
    assert of(planned, 6)["Ready"].status == "True"
    planned.report("n1", 7, targets=(cart,))
    found = of(planned, 8)
    assert (found["Ready"].status, found["Ready"].reason) == ("False", "TargetRefused")
    assert found["ProbesReady"].message == (
        "agent on n1: target cart is not measured: there is no room: name fewer ports"
    )


def test_a_namespace_with_more_targets_than_a_status_has_room_for_is_told_and_nobody_else(planned: Any) -> None:
    planned.report("n1", 5, seen=7, untold={"evil": 900})
    assert "StatusLimited" not in of(planned, 6)
    planned.report("n1", 7, seen=7, untold={"shop": 900})
    found = of(planned, 8)
    assert found["Ready"].status == "True"
    assert found["StatusLimited"].message == (
        "the agent on n1 says nothing of 900 targets of this namespace, which has most there, as a status has no room "
        "for them: whether they see traffic, and which are refused, is not known; let fewer targets select pods there"
    )


def test_targets_that_a_status_has_no_room_for_may_see_traffic(planned: Any) -> None:
    planned.report("n1", 5, targets=(), untold={"evil": 900})
    assert of(planned, 6)["Measuring"].reason == "NoTraffic"
    planned.report("n1", 7, targets=(), untold={"shop": 900})
    found = of(planned, 8)
    assert (found["Measuring"].status, found["Measuring"].reason) == ("Unknown", "StatusLimited")
    planned.report("n1", 9, untold={"shop": 900})
    assert of(planned, 10)["Measuring"].reason == "NoTraffic", "it is told of all of its own"


def test_what_a_pod_says_too_much_of_is_named(make: Any) -> None:
    wordy = make.pod("cart-1", left_out=("team", "image of container main"))
    planned = make.planned(wordy, make.pod("cart-2", labels={}, unselectable=True), clients={"scope": "None"})
    planned.report("n1", 5, seen=7)
    found = of(planned, 6)
    assert found["Ready"].status == "True"
    assert found["TextLeftOut"].message == (
        "not measured, as they have more than 128 labels, or 16384 bytes of them: cart-2; attributes are left out of "
        "cart-1, such as team, image of container main of cart-1: a pod's annotations resource.opentelemetry.io/*, "
        "OTEL_* variables and images have room for 2048 bytes"
    )


def test_what_a_namespace_has_too_much_of_is_told_to_it(make: Any) -> None:
    planned = make.planned(make.pod("cart-1"), replace(make.service("cart"), left_out=7), clients={"scope": "None"})
    planned.state.room.left_out["shop"] = {("pods", f"p{number}") for number in range(12)}
    planned.state.put("pods", make.pod("cart-2"))
    planned.plan(planned.probe)
    planned.report("n1", 5, seen=7)
    assert of(planned, 6)["TextLeftOut"].message == (
        "callers are measured at the first 256 ports alone of Service cart; 12 or more pods, Services and "
        "EndpointSlices of this namespace are not known, as others of it take all of the operator's memory that it may "
        "have: delete what is not needed, or raise operator.resources.limits.memory in the chart"
    )


def test_agents_own_reason_and_error_are_shown(planned: Any) -> None:
    planned.report("n1", 5, error="no BTF: build the kernel with CONFIG_DEBUG_INFO_BTF", reason="KernelUnsupported")
    found = of(planned, 6)
    assert [c.reason for c in found.values()] == ["Accepted", *["KernelUnsupported"] * 3]
    assert "CONFIG_DEBUG_INFO_BTF" in found["ProbesReady"].message


def test_new_plan_on_its_way_does_not_make_a_ready_agent_unready_for_long(planned: Any) -> None:
    planned.report("n1", 5)
    planned.planner.use_pair_key(b"n" * 32)
    planned.plan(planned.probe)
    planned.agents.planned(frozenset({"n1"}), frozenset({"n1"}), 20)
    planned.agents.of["n1"] = msgspec.structs.replace(planned.agents.of["n1"], reported_s=40)
    assert short(planned, 21)["ProbesReady"] == ("True", "AgentsReady")
    assert short(planned, 41)["ProbesReady"] == ("Unknown", "AgentStarting")


def test_agent_that_measures_others_but_not_this_latencyprobe_yet_is_starting(planned: Any) -> None:
    planned.report("n1", 5)
    planned.agents.applied["n1"] = msgspec.structs.replace(planned.planner.plan_of("n1"), targets=())
    assert short(planned, 6)["ProbesReady"] == ("Unknown", "AgentStarting")
    planned.report("n1", 7)
    assert short(planned, 8)["ProbesReady"] == ("True", "AgentsReady")


def test_selector_without_pods_names_the_remedy(make: Any) -> None:
    found = of(make.planned(make.pod("web-1"), clients={"scope": "None"}), 1)["ProbesReady"]
    assert found.reason == "NoMatchingPods"
    assert "podSelector" in found.message


def test_pods_without_the_named_port_are_reported(make: Any) -> None:
    found = of(make.planned(make.pod("cart-1", ports=()), clients={"scope": "None"}), 1)["ProbesReady"]
    assert found.reason == "NoMatchingPods"
    assert "named ports" in found.message


def test_suspended_is_ready_and_measures_nothing(make: Any) -> None:
    found = short(make.planned(make.pod("cart-1"), suspend=True), 1)
    assert found["Ready"] == ("True", "Suspended")
    assert found["Measuring"] == ("False", "Suspended")


def test_scope_that_is_not_allowed_stalls(make: Any) -> None:
    found = short(make.planned(make.pod("cart-1"), clients={"scope": "Cluster"}), 1)
    assert found["Accepted"] == ("False", "ClusterScopeNotAllowed")
    assert found["Stalled"] == ("True", "ClusterScopeNotAllowed")


def test_spec_that_our_parser_refuses_stalls_with_the_field() -> None:
    found = invalid(SpecError("spec.targets[0].ports[0]", "0 is below 1"))
    assert {c.reason for c in found} == {"InvalidSpec"}
    assert {c.type: c.status for c in found}["Stalled"] == "True"
    assert all("spec.targets[0].ports[0]" in c.message for c in found)


def test_nodes_that_cannot_tell_what_holds_up_containers_are_named(planned: Any) -> None:
    unsupported = {"pressure.throttled": "cgroup2", **dict.fromkeys(("pressure.cpu", "pressure.io"), "unsupported")}
    planned.report("n1", 5, seen=7, variants=unsupported)
    found = of(planned, 6)
    assert (found["Ready"].status, found["PressureUnknown"].status) == ("True", "True")
    assert found["PressureUnknown"].message == (
        "agent on n1 cannot tell how long containers were waiting for I/O; waiting for a CPU: `latencyprobe doctor` "
        "says why"
    )
    planned.report("n1", 7, seen=9, variants={"pressure.throttled": "cgroup2", "pressure.cpu": "psi"})
    assert "PressureUnknown" not in of(planned, 8)


def test_nodes_that_may_not_look_into_processes_are_named_to_who_asks_for_their_stacks(make: Any) -> None:
    lacking = {USER_STACKS: "unsupported"}
    for stacks, missing in (("User", True), ("Kernel", False)):
        planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}, evidence={"syscalls": {"stacks": stacks}})
        planned.report("n1", 5, seen=7, variants=lacking)
        assert ("UserStacksMissing" in of(planned, 6)) is missing
    planned = make.planned(make.pod("cart-1"), clients={"scope": "None"}, evidence={"syscalls": {"stacks": "User"}})
    planned.report("n1", 5, seen=7, variants=lacking)
    assert of(planned, 6)["UserStacksMissing"].message == (
        "agent on n1 may not look into processes, so waits have the kernel's stack alone: set agent.userStacks=true in "
        "the chart, or spec.evidence.syscalls.stacks to Kernel"
    )
    planned.report("n1", 7, seen=9)
    assert "UserStacksMissing" not in of(planned, 8)


def test_pods_whose_node_is_gone_are_not_measured(planned: Any) -> None:
    planned.report("n1", 5, seen=7)
    planned.state.drop("nodes", ("", "n1"))
    planned.plan(planned.probe)
    found = short(planned, 6)
    assert {found[kind] for kind in ("ProbesReady", "Measuring", "Ready")} == {("False", "NodeGone")}
    assert of(planned, 6)["Ready"].message == "no agent reports from n1: there is no such node any more"
