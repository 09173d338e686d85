"""Who owns an address: exact or unknown."""

from typing import Any

import msgspec

from latencyprobe.plan import Identity
from latencyprobe_operator.cluster.objects import Node
from latencyprobe_operator.plan.agents import Agents
from latencyprobe_operator.plan.identities import identify, node_of_pod, nodes_at


def test_pod_address_names_pod_workload_and_node(make: Any) -> None:
    pod = make.pod("cart-1", owner_kind="StatefulSet", owner_name="cart", addresses=("10.0.0.1",))
    expected = Identity("10.0.0.1", "shop", "cart-1", pod.uid, "cart", "cart", "n1")
    assert identify("10.0.0.1", make.state(pod), Agents()) == expected


def test_service_address_names_the_service(make: Any) -> None:
    expected = Identity("10.96.0.7", "shop", service="cart")
    assert identify("10.96.0.7", make.state(make.service("cart")), Agents()) == expected


def test_node_address_names_no_host_network_pod(make: Any) -> None:
    state = make.state(make.pod("cart-1", host_network=True, addresses=("192.0.2.1",)))
    state.put("nodes", Node("uid-n1", "n1", ("192.0.2.1",)))
    assert identify("192.0.2.1", state, Agents()) == Identity("192.0.2.1", node="n1")


def test_reused_address_is_never_given_to_its_old_owner(make: Any) -> None:
    old = make.pod("old-1", addresses=("10.0.0.1",))
    state = make.state(old)
    state.put("pods", msgspec.structs.replace(old, terminal=True))
    assert identify("10.0.0.1", state, Agents()) == Identity("10.0.0.1")
    state.put("pods", make.pod("new-1", addresses=("10.0.0.1",)))
    assert identify("10.0.0.1", state, Agents()).pod == "new-1"
    state.drop("pods", ("shop", "old-1"))
    assert identify("10.0.0.1", state, Agents()).pod == "new-1"
    state.drop("pods", ("shop", "new-1"))
    assert identify("10.0.0.1", state, Agents()) == Identity("10.0.0.1")


def test_address_that_two_live_pods_claim_names_none_but_a_terminating_one_gives_way(make: Any) -> None:
    first, second = (make.pod(name, addresses=("10.0.0.1",)) for name in ("a-1", "b-1"))
    state = make.state(first, second)
    assert identify("10.0.0.1", state, Agents()) == Identity("10.0.0.1")
    state.put("pods", msgspec.structs.replace(first, terminating=True))
    assert identify("10.0.0.1", state, Agents()).pod == "b-1"


def test_nodes_behind_an_address_are_those_of_the_pods_that_may_have_answered(make: Any) -> None:
    pods = [make.pod(f"cart-{i}", node=f"n{i}", addresses=(f"10.0.0.{i}",)) for i in (1, 2)]
    state = make.state(*pods, make.service("cart"), make.slice_of("cart", *pods))
    state.put("nodes", Node("uid-n3", "n3", ("192.0.2.3",)))
    found = {address: nodes_at(address, state) for address in ("10.0.0.1", "10.96.0.7", "192.0.2.3", "192.0.2.9")}
    assert found == {
        "10.0.0.1": {"n1"},
        "10.96.0.7": {"n1", "n2"},
        "192.0.2.3": {"n3"},
        "192.0.2.9": set(),
    }


def test_node_of_a_pod_needs_its_uid(make: Any) -> None:
    state = make.state(make.pod("cart-1", uid="u1"))
    assert [node_of_pod(state, "shop", "cart-1", uid) for uid in ("u1", "u0", "")] == ["n1", "", ""]
    assert node_of_pod(state, "bank", "cart-1", "u1") == ""
