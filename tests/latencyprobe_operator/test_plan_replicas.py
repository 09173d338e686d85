"""Which pods of a target are replicas of each other, and what of them a node's plan has."""

from typing import Any

import pytest

from latencyprobe.plan import Endpoint, Replicas
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.targets import resolve

STATEFUL = {"owner_kind": "StatefulSet", "owner_name": "cart"}


def endpoints(*pods: Pod) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(address, 8080) for pod in pods for address in pod.addresses)


def found(make: Any, *items: Any, **spec_fields: Any) -> dict[str, tuple[Replicas, ...]]:
    """Replicas by node."""
    resolved = resolve(make.probe(**{"clients": {"scope": "None"}, **spec_fields}), make.state(*items))
    return {node: part.targets[0].replicas for node, part in resolved.parts.items()}


def test_each_node_has_its_own_replicas_and_the_addresses_of_all(make: Any) -> None:
    one, two = make.pod("cart-1", **STATEFUL), make.pod("cart-2", node="n2", **STATEFUL)
    assert {
        "n1": (Replicas((one.uid,), endpoints(one, two)),),
        "n2": (Replicas((two.uid,), endpoints(one, two)),),
    } == found(make, one, two)


def test_nodes_with_callers_have_these_addresses_once(make: Any) -> None:
    one, two = make.pod("cart-1", **STATEFUL), make.pod("cart-2", **STATEFUL)
    assert {"n1": (Replicas((one.uid, two.uid)),)} == found(make, one, two, clients={"scope": "Namespace"})
    alone = make.pod("cart-3", labels={"app": "cart", "app.kubernetes.io/name": "other"})
    assert {"n1": (Replicas((one.uid, two.uid), endpoints(one, two)),)} == found(
        make, one, two, alone, clients={"scope": "Namespace"}
    )


def test_addresses_of_services_that_stand_for_them_belong_to_them(make: Any) -> None:
    one, two = make.pod("cart-1", **STATEFUL), make.pod("cart-2", **STATEFUL)
    on_n1 = found(make, one, two, make.service("cart", port=80), make.slice_of("cart", one))["n1"]
    assert (*endpoints(one, two), Endpoint("10.96.0.7", 80, "cart")) == on_n1[0].endpoints


def test_pods_of_two_replica_sets_of_one_deployment_are_replicas(make: Any) -> None:
    def of(version: str) -> dict[str, Any]:
        labels = {"app": "cart", "pod-template-hash": version}
        return {"labels": labels, "owner_kind": "ReplicaSet", "owner_name": f"cart-{version}"}

    old, new = make.pod("cart-1", **of("abc")), make.pod("cart-2", **of("def"))
    assert {"n1": (Replicas((old.uid, new.uid), endpoints(old, new)),)} == found(make, old, new)


def test_a_controller_of_any_kind_has_replicas(make: Any) -> None:
    database = {"owner_kind": "Cluster", "owner_name": "orders", "labels": {}}
    one, two = make.pod("cart-1", **database), make.pod("cart-2", **database)
    everything = [{"name": "all", "ports": [8080]}]
    assert [Replicas((one.uid, two.uid), endpoints(one, two))] == [
        *found(make, one, two, targets=everything, objectives=[])["n1"]
    ]


@pytest.mark.parametrize("of", [{"owner_kind": "StatefulSet", "owner_name": "standby"}, {}], ids=["another", "none"])
def test_pods_of_one_application_are_replicas_whatever_controller_runs_them(make: Any, of: dict[str, str]) -> None:
    """A primary and its standby."""
    one, two = make.pod("cart-1", **STATEFUL), make.pod("cart-2", **of)
    assert [Replicas((one.uid, two.uid), endpoints(one, two))] == [*found(make, one, two)["n1"]]


def test_pods_of_different_workloads_that_call_each_other_are_no_replicas(make: Any) -> None:
    """A target of the whole namespace would measure nothing else."""
    cart, web = make.pod("cart-1", **STATEFUL), make.pod("web-1", labels={"app": "web"}, **STATEFUL)
    everything = [{"name": "all", "ports": [8080]}]
    assert {"n1": ()} == found(make, cart, web, targets=everything, objectives=[])


@pytest.mark.parametrize(
    "fields",
    [
        {**STATEFUL, "host_network": True},
        {**STATEFUL, "terminal": True},
        {**STATEFUL, "labels": {"app": "other"}},
    ],
    ids=["in the host's network", "ended", "not of the target"],
)
def test_what_is_no_replica(make: Any, fields: dict[str, Any]) -> None:
    assert () == found(make, make.pod("cart-1", **STATEFUL), make.pod("cart-2", **fields))["n1"]


def test_a_target_that_counts_peers_has_no_replicas(make: Any) -> None:
    pods = make.pod("cart-1", **STATEFUL), make.pod("cart-2", **STATEFUL)
    targets = [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"], "peers": True}]
    assert {"n1": ()} == found(make, *pods, targets=targets)


def test_replicas_of_pods_that_dial_are_known_by_the_dialled_ports(make: Any) -> None:
    one, two = make.pod("cart-1", **STATEFUL), make.pod("cart-2", **STATEFUL)
    dialling = [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": [5432], "role": "Client"}]
    (replicas,) = found(make, one, two, targets=dialling, objectives=[])["n1"]
    assert {(*one.addresses, 5432), (*two.addresses, 5432)} == {(e.address, e.port) for e in replicas.endpoints}
