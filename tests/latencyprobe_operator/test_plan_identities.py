"""Who owns an address: exact or unknown."""

import json
import random
from typing import Any

import msgspec
import pytest

from latencyprobe.plan import Identity
from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.objects import Node, Service
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.identities import agents_at, identity, node_of_pod, nodes_at, owner_of


def who(address: str, state: ClusterState) -> Identity:
    return identity(address, owner_of(address, state))


def test_pod_address_names_pod_workload_and_node(make: Any) -> None:
    pod = make.pod("cart-1", owner_kind="StatefulSet", owner_name="cart", addresses=("10.0.0.1",))
    expected = Identity("10.0.0.1", "shop", "cart-1", pod.uid, "cart", "cart", "n1")
    assert who("10.0.0.1", make.state(pod)) == expected


def test_service_address_names_the_service(make: Any) -> None:
    expected = Identity("10.96.0.7", "shop", service="cart")
    assert who("10.96.0.7", make.state(make.service("cart"))) == expected


def test_node_address_names_no_host_network_pod(make: Any) -> None:
    state = make.state(make.pod("cart-1", host_network=True, addresses=("192.0.2.1",)))
    state.put("nodes", Node("uid-n1", "n1", ("192.0.2.1",)))
    assert who("192.0.2.1", state) == Identity("192.0.2.1", node="n1")


def test_reused_address_is_never_given_to_its_old_owner(make: Any) -> None:
    old = make.pod("old-1", addresses=("10.0.0.1",))
    state = make.state(old)
    state.put("pods", msgspec.structs.replace(old, terminal=True))
    assert who("10.0.0.1", state) == Identity("10.0.0.1")
    state.put("pods", make.pod("new-1", addresses=("10.0.0.1",)))
    assert who("10.0.0.1", state).pod == "new-1"
    state.drop("pods", ("shop", "old-1"))
    assert who("10.0.0.1", state).pod == "new-1"
    state.drop("pods", ("shop", "new-1"))
    assert who("10.0.0.1", state) == Identity("10.0.0.1")


def test_address_that_two_live_pods_claim_names_none_but_a_terminating_one_gives_way(make: Any) -> None:
    first, second = (make.pod(name, addresses=("10.0.0.1",)) for name in ("a-1", "b-1"))
    state = make.state(first, second)
    assert who("10.0.0.1", state) == Identity("10.0.0.1")
    state.put("pods", msgspec.structs.replace(first, terminating=True))
    assert who("10.0.0.1", state).pod == "b-1"


def service(name: str, *, balancers: tuple[str, ...] = (), **spec: Any) -> Service:
    """A Service as the API server has it."""
    ingress = [{"ip": address} for address in balancers]
    whole = {"metadata": {"name": name, "namespace": "shop"}, "spec": {"ports": [{"name": "web", "port": 80}], **spec}}
    return decoding.service(json.dumps(whole | {"status": {"loadBalancer": {"ingress": ingress}}}).encode())


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", Identity("10.0.0.1", "shop", "cart-1", "uid-shop-cart-1", "cart-1", "cart-1", "n1")),
        ("10.96.0.7", Identity("10.96.0.7", "shop", service="cluster-ip")),
        ("10.96.0.8", Identity("10.96.0.8", "shop", service="node-port")),
        ("10.96.0.9", Identity("10.96.0.9", "shop", service="balanced")),
        ("203.0.113.9", Identity("203.0.113.9", "shop", service="balanced")),
        ("203.0.113.10", Identity("203.0.113.10")),  # two Services share it
        ("192.0.2.1", Identity("192.0.2.1", node="n1")),  # a NodePort's, a load balancer's and the host's own
        ("192.0.2.2", Identity("192.0.2.2")),  # two nodes say that it is theirs
        ("198.51.100.1", Identity("198.51.100.1")),  # an author's externalIPs
        ("8.8.8.8", Identity("8.8.8.8")),
    ],
)
def test_every_kind_of_peer_is_exact_or_unknown(make: Any, address: str, expected: Identity) -> None:
    shared = ("203.0.113.10",)
    external = ["198.51.100.1", "10.0.0.1", "192.0.2.1"]
    state = make.state(
        make.pod("cart-1", addresses=("10.0.0.1",)),
        make.pod("host-1", host_network=True, addresses=("192.0.2.1",)),
        service("cluster-ip", clusterIPs=["10.96.0.7"], externalIPs=external),
        service("headless", clusterIPs=["None"]),
        service("node-port", type="NodePort", clusterIPs=["10.96.0.8"]),
        service("balanced", type="LoadBalancer", clusterIPs=["10.96.0.9"], balancers=("203.0.113.9", *shared)),
        service("sharing", type="LoadBalancer", clusterIPs=["10.96.0.10"], balancers=("192.0.2.1", *shared)),
        service("elsewhere", type="ExternalName", externalName="db.example", clusterIPs=None),
        Node("uid-n1", "n1", ("192.0.2.1", "192.0.2.2")),
        Node("uid-n2", "n2", ("192.0.2.2",)),
    )
    assert who(address, state) == expected


def test_pod_that_is_made_again_under_its_name_and_address_is_another(make: Any) -> None:
    old = make.pod("cart-0", uid="u1", owner_kind="StatefulSet", owner_name="cart", addresses=("10.0.0.1",))
    state = make.state(old)
    state.take_changes()
    state.put("pods", msgspec.structs.replace(old, uid="u2"))
    assert who("10.0.0.1", state).uid == "u2"
    assert state.take_changes().addresses == {"10.0.0.1"}, "who knows the old one is told"
    assert node_of_pod(state, "shop", "cart-0", "u1") == ""


def test_addresses_that_pass_from_pod_to_pod_never_name_one_that_has_none(make: Any) -> None:
    """Random pods come, end, and give their few addresses on; a list of who lives is the witness."""
    chance, state, living = random.Random(14), make.state(), {}
    for number in range(5000):
        name = f"pod-{chance.randrange(12)}"
        known = living.get(name)
        act = chance.choice(("make", "end", "terminate", "drop"))
        if act == "make" and known is None:
            living[name] = make.pod(name, uid=f"u{number}", addresses=(f"10.0.0.{chance.randrange(4)}",))
        elif known is not None and act != "make":
            living[name] = msgspec.structs.replace(known, terminating=True, terminal=act == "end")
        if act == "drop" and known is not None:
            del living[name]
            state.drop("pods", ("shop", name))
        elif name in living:
            state.put("pods", living[name])
        for address in (f"10.0.0.{last}" for last in range(4)):
            have = [pod for pod in living.values() if address in pod.addresses and not pod.terminal]
            sure = [pod for pod in have if not pod.terminating] or have
            assert who(address, state).uid == (sure[0].uid if len(sure) == 1 else "")


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


def test_agents_call_from_their_pods_and_from_behind_their_nodes(make: Any) -> None:
    agent = make.pod("agent-x", "agents", node="n1", addresses=("10.0.0.1",))
    state = make.state(agent, make.pod("cart-1", node="n1", addresses=("10.0.0.2",)))
    state.put("nodes", Node("uid-n2", "n2", ("192.0.2.2",)))
    found = {a: agents_at(state, "agents", a) for a in ("10.0.0.1", "10.0.0.2", "192.0.2.2", "192.0.2.9", "")}
    assert found == {"10.0.0.1": {"n1"}, "10.0.0.2": set(), "192.0.2.2": {"n2"}, "192.0.2.9": set(), "": set()}


def test_node_of_a_pod_needs_its_uid(make: Any) -> None:
    state = make.state(make.pod("cart-1", uid="u1"))
    assert [node_of_pod(state, "shop", "cart-1", uid) for uid in ("u1", "u0", "")] == ["n1", "", ""]
    assert node_of_pod(state, "bank", "cart-1", "u1") == ""
