"""What one LatencyProbe means in a cluster."""

from typing import Any

import msgspec
import pytest

from latencyprobe.plan import Endpoint, Role
from latencyprobe_operator.cluster.objects import Namespace
from latencyprobe_operator.plan.targets import resolve


def targets(resolved: Any, node: str) -> Any:
    return resolved.parts[node].targets


def uids(target: Any) -> list[str]:
    return [p.uid for p in target.pods]


def test_named_port_is_resolved_in_each_pod(make: Any) -> None:
    old = make.pod("cart-1", ports=(("http", 8080),), numbers=(8080,))
    new = make.pod("cart-2", ports=(("http", 9090),), numbers=(9090,))
    (target,) = targets(resolve(make.probe(), make.state(old, new)), "n1")
    assert [(p.uid, p.ports) for p in target.pods] == [(old.uid, (8080,)), (new.uid, (9090,))]


def test_pod_without_the_named_port_is_left_out_instead_of_measured_on_every_port(make: Any) -> None:
    portless = make.pod("cart-1", ports=(), numbers=(5432,))
    resolved = resolve(make.probe(), make.state(portless))
    assert not any(t.pods for part in resolved.parts.values() for t in part.targets)
    assert [(c.pods, c.portless) for c in resolved.counts] == [(0, 1)]


def test_no_ports_mean_every_port(make: Any) -> None:
    probe = make.probe(targets=[{"name": "cart"}], objectives=[])
    (target,) = targets(resolve(probe, make.state(make.pod("cart-1"))), "n1")
    assert target.pods[0].ports == ()
    assert [e.port for e in target.endpoints] == [0]


def test_pods_that_ended_or_have_no_node_are_no_targets_but_terminating_ones_still_are(make: Any) -> None:
    pods = (
        make.pod("cart-done", terminal=True),
        make.pod("cart-pending", node=""),
        make.pod("cart-leaving", terminating=True),
    )
    (target,) = targets(resolve(make.probe(), make.state(*pods)), "n1")
    assert uids(target) == ["uid-shop-cart-leaving"]


def test_callers_of_the_namespace_are_planned_on_their_own_nodes_with_the_endpoints_they_dial(make: Any) -> None:
    cart, web = make.pod("cart-1", node="n1"), make.pod("web-1", node="n2")
    resolved = resolve(make.probe(), make.state(cart, web))
    (on_n2,) = targets(resolved, "n2")
    assert (on_n2.pods, on_n2.callers) == ((), (web.uid,))
    assert on_n2.endpoints == (Endpoint(cart.addresses[0], 8080),)
    assert resolved.nodes == {"n1", "n2"}


def test_a_pod_can_answer_for_one_target_and_call_for_another(make: Any) -> None:
    declared = [
        {"name": "cart", "ports": [8080]},
        {"name": "database", "ports": [5432], "role": "Client"},
        {"name": "users", "podSelector": {"matchLabels": {"app": "users"}}, "ports": [9090]},
    ]
    cart, users = make.pod("cart-1"), make.pod("users-1", labels={"app": "users"}, node="n2")
    on_n1 = {t.name: t for t in targets(resolve(make.probe(targets=declared), make.state(cart, users)), "n1")}
    assert [cart.uid in uids(on_n1[name]) for name in ("cart", "database")] == [True, True]
    assert (on_n1["database"].role, cart.uid in on_n1["users"].callers) == (Role.CLIENT, True)


def test_scope_none_plans_no_callers(make: Any) -> None:
    pods = make.pod("cart-1"), make.pod("web-1", node="n2")
    resolved = resolve(make.probe(clients={"scope": "None"}), make.state(*pods))
    assert resolved.nodes == {"n1"}
    assert targets(resolved, "n1")[0].endpoints == ()


def test_pods_of_other_namespaces_are_neither_targets_nor_callers(make: Any) -> None:
    theirs = make.pod("cart-1", namespace="bank", node="n3")
    resolved = resolve(make.probe(), make.state(make.pod("cart-1"), theirs, namespaces=("shop", "bank")))
    assert resolved.nodes == {"n1"}
    assert theirs.uid not in str(resolved.parts)


def test_cluster_scope_is_refused_without_the_namespace_label(make: Any) -> None:
    resolved = resolve(make.probe(clients={"scope": "Cluster"}), make.state(make.pod("cart-1")))
    assert resolved.refusal is not None
    assert resolved.refusal[0] == "ClusterScopeNotAllowed"
    assert resolved.parts == {}
    assert resolved.nodes == frozenset()


def test_cluster_scope_plans_callers_everywhere_and_expects_every_node(make: Any) -> None:
    caller = make.pod("web-1", namespace="bank", node="n2")
    cluster = make.state(make.pod("cart-1"), caller, Namespace("shop", cluster_scope=True))
    resolved = resolve(make.probe(clients={"scope": "Cluster"}), cluster)
    assert resolved.nodes == {"n1", "n2", "n3"}
    assert targets(resolved, "n2")[0].callers == (caller.uid,)


def test_suspended_probe_means_nothing(make: Any) -> None:
    resolved = resolve(make.probe(suspend=True), make.state(make.pod("cart-1")))
    assert (resolved.parts, resolved.nodes) == ({}, frozenset())


def test_service_address_enters_through_a_slice_that_names_a_selected_pod(make: Any) -> None:
    cart = make.pod("cart-1")
    cluster = make.state(cart, make.service("cart", port=80), make.slice_of("cart", cart))
    (target,) = targets(resolve(make.probe(), cluster), "n1")
    assert Endpoint("10.96.0.7", 80, "cart") in target.endpoints


def test_service_address_of_another_pod_or_port_stays_out(make: Any) -> None:
    cart, web = make.pod("cart-1"), make.pod("web-1")
    other_pod = make.slice_of("web", web)
    other_port = make.slice_of("cart", cart, port=9999)
    cluster = make.state(
        cart, web, make.service("web"), make.service("cart", address="10.96.0.8"), other_pod, other_port
    )
    (target,) = targets(resolve(make.probe(), cluster), "n1")
    assert {e.address for e in target.endpoints} == set(cart.addresses)


def test_hand_made_slice_with_our_pod_and_a_foreign_address_stays_out(make: Any) -> None:
    cart = make.pod("cart-1")
    forged = make.slice_of("cart", msgspec.structs.replace(cart, addresses=("10.9.9.9",)))
    (target,) = targets(resolve(make.probe(), make.state(cart, make.service("cart"), forged)), "n1")
    assert {e.address for e in target.endpoints} == set(cart.addresses)


def test_host_network_pod_is_dialled_only_at_ports_that_it_declares(make: Any) -> None:
    shared = make.pod("cart-1", host_network=True, addresses=("192.0.2.1",), numbers=(8080,))
    every_port = make.probe(targets=[{"name": "cart", "ports": []}], objectives=[])
    undeclared = make.probe(targets=[{"name": "cart", "ports": [10250]}], objectives=[])
    assert [e.port for e in targets(resolve(every_port, make.state(shared)), "n1")[0].endpoints] == [8080]
    assert targets(resolve(undeclared, make.state(shared)), "n1")[0].endpoints == ()


def test_client_role_has_ports_that_its_pods_dial_and_no_callers(make: Any) -> None:
    dialling = make.probe(
        targets=[{"name": "web", "role": "Client", "podSelector": {"matchLabels": {"app": "web"}}, "ports": [6379]}],
        objectives=[{"name": "fast", "target": "web", "threshold": "5ms", "goal": "99"}],
    )
    resolved = resolve(dialling, make.state(make.pod("web-1"), make.pod("cart-1", node="n2")))
    (target,) = targets(resolved, "n1")
    assert (target.role, target.pods[0].ports, target.callers, target.endpoints) == (Role.CLIENT, (6379,), (), ())
    assert resolved.nodes == {"n1"}
    assert [o.perspective for o in resolved.parts["n1"].objectives] == [Role.CLIENT]


@pytest.mark.parametrize(("perspective", "node"), [("Server", "n1"), ("Client", "n2")])
def test_objective_is_counted_where_its_perspective_is(make: Any, perspective: str, node: str) -> None:
    objective = {"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99", "perspective": perspective}
    probe = make.probe(objectives=[objective], clients={"podSelector": {"matchLabels": {"app": "web"}}})
    resolved = resolve(probe, make.state(make.pod("cart-1", node="n1"), make.pod("web-1", node="n2")))
    assert [n for n, part in sorted(resolved.parts.items()) if part.objectives] == [node]
