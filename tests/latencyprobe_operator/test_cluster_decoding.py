"""The API server's JSON → trimmed objects."""

from typing import Any

import pytest

from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.objects import (
    Container,
    Kind,
    Namespace,
    Node,
    Pod,
    Service,
    Slice,
    SliceEndpoint,
    Taint,
    Trouble,
)
from tests.latencyprobe_operator.raw_pod import POD, encoded


def test_pod_keeps_what_planning_needs() -> None:
    expected = Pod(
        uid="u1",
        namespace="shop",
        name="cart-1",
        node="n1",
        labels={"app": "cart"},
        addresses=("10.0.0.1", "fd00::1"),
        containers=(
            Container("main", "a" * 64, "app:1", (("OTEL_SERVICE_NAME", "cart"),)),
            Container("restarting", "", "app:1"),
            Container("sidecar", "c" * 64, "proxy:1"),
            Container("debug", "e" * 64),
        ),
        ports=(("http", 8080),),
        numbers=(8080, 9090),
        attributes=(("service.name", "cart"),),
        owner_kind="ReplicaSet",
        owner_name="cart-7d9f",
    )
    assert decoding.pod(encoded(POD)) == expected


def test_init_container_is_known_while_it_runs_and_no_longer() -> None:
    def containers(state: dict[str, Any]) -> dict[str, str]:
        setup = {"name": "setup", "containerID": f"cri-o://{'d' * 64}", "state": state}
        status = {"phase": "Pending", "initContainerStatuses": [setup]}
        return {c.name: c.id for c in decoding.pod(encoded(POD | {"status": status})).containers}

    assert containers({"running": {}}) == {"main": "", "restarting": "", "setup": "d" * 64}
    assert containers({"terminated": {"exitCode": 0}}) == {"main": "", "restarting": ""}


def test_port_name_is_the_port_that_services_find_by_it() -> None:
    def ports(containers: list[Any], inits: list[Any]) -> tuple[tuple[tuple[str, int], ...], tuple[int, ...]]:
        pod = decoding.pod(
            encoded(POD | {"spec": {"nodeName": "n1", "containers": containers, "initContainers": inits}})
        )
        return pod.ports, pod.numbers

    def container(port: int, **fields: Any) -> dict[str, Any]:
        return {"name": f"c{port}", "ports": [{"name": "http", "containerPort": port, "protocol": "TCP"}], **fields}

    main, exporter, setup = container(8080), container(9131), container(7000, restartPolicy=None)
    sidecar = container(15001, restartPolicy="Always")
    assert ports([main, exporter], []) == ((("http", 8080),), (8080, 9131)), "the first container's"
    assert ports([main], [setup, sidecar]) == ((("http", 8080),), (8080, 15001)), "containers come before sidecars"
    assert ports([{"name": "c"}], [setup, sidecar]) == ((("http", 15001),), (15001,)), "what ends serves nobody"


def test_restarted_container_has_its_new_id() -> None:
    again = {"name": "main", "containerID": f"containerd://{'f' * 64}", "state": {"running": {}}, "restartCount": 1}
    again["lastState"] = {"terminated": {"exitCode": 1, "containerID": f"containerd://{'a' * 64}"}}
    pod = decoding.pod(encoded(POD | {"status": POD["status"] | {"containerStatuses": [again]}}))
    assert {c.name: c.id for c in pod.containers}["main"] == "f" * 64


def test_pods_of_one_workload_share_what_they_have_in_common() -> None:
    one, other = decoding.pod(encoded(POD)), decoding.pod(encoded(POD))
    assert one.labels is other.labels
    assert one.ports is other.ports


@pytest.mark.parametrize(("phase", "terminal"), [("Running", False), ("Succeeded", True), ("Failed", True)])
def test_pod_that_ended_is_terminal(phase: str, terminal: bool) -> None:
    assert decoding.pod(encoded(POD | {"status": {"phase": phase}})).terminal is terminal


def test_pod_that_is_being_deleted_is_terminating() -> None:
    meta = POD["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert decoding.pod(encoded(POD | {"metadata": meta})).terminating is True


def test_node_shows_our_label_and_its_addresses() -> None:
    raw = {
        "metadata": {"name": "n1", "uid": "u", "labels": {"latencyprobe.dev/measure": "true"}},
        "status": {
            "addresses": [{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "n1"}]
        },
    }
    assert decoding.node(encoded(raw)) == Node("u", "n1", ("192.0.2.1",), measure=True)


def node_of(**status: Any) -> Node:
    metadata = {"name": "n1", "uid": "u", "labels": {"kubernetes.io/os": "windows"}}
    taints = [
        {"key": "dedicated", "value": "db", "effect": "NoSchedule"},
        {"key": "spare", "effect": "PreferNoSchedule"},
    ]
    return decoding.node(encoded({"metadata": metadata, "spec": {"taints": taints}, "status": status}))


def test_node_shows_what_keeps_pods_away() -> None:
    ready = {"type": "Ready", "status": "Unknown", "reason": "NodeStatusUnknown", "message": "it changes"}
    node = node_of(conditions=[{"type": "DiskPressure", "status": "True"}, ready])
    assert (node.taints, node.unready, node.system) == (
        (Taint("dedicated", "db", "NoSchedule"),),
        "NodeStatusUnknown",
        "windows",
    )
    assert node_of(conditions=[ready | {"status": "True", "reason": "KubeletReady"}]).unready == ""
    assert node_of().unready == "", "nothing is said"


def test_pod_of_the_agents_alone_is_asked_for_what_it_lacks() -> None:
    waiting = {"name": "agent", "image": "agent:1", "state": {"waiting": {"reason": "ErrImagePull"}}}
    labels = {"app.kubernetes.io/name": "latencyprobe", "app.kubernetes.io/component": "agent"}
    owner = {"kind": "DaemonSet", "name": "a", "controller": True}
    status = POD["status"] | {"containerStatuses": [waiting]}
    agents = POD["metadata"] | {"labels": labels, "ownerReferences": [owner]}
    others = [agents | {"labels": {"app": "cart"}}, agents | {"ownerReferences": []}]
    found = [decoding.pod(encoded(POD | {"metadata": meta, "status": status})) for meta in (agents, *others)]
    assert [pod.trouble for pod in found] == [Trouble(Kind.IMAGE, "agent:1"), None, None]


def test_service_has_only_addresses_that_the_api_server_allots() -> None:
    spec = {
        "clusterIPs": ["10.96.0.7", "fd00::7"],
        "externalIPs": ["198.51.100.1"],
        "ports": [{"name": "web", "port": 80}, {"name": "dns", "port": 53, "protocol": "UDP"}, {"port": 81}],
    }
    raw = {"metadata": {"name": "cart", "namespace": "shop"}, "spec": spec}
    assert decoding.service(encoded(raw)) == Service("shop", "cart", ("10.96.0.7", "fd00::7"), (("web", 80), ("", 81)))
    ingress = [{"ip": "203.0.113.9"}, {"hostname": "lb.example"}]
    balanced = decoding.service(encoded(raw | {"status": {"loadBalancer": {"ingress": ingress}}}))
    assert (balanced.addresses, balanced.balancers) == (("10.96.0.7", "fd00::7"), ("203.0.113.9",))
    headless = {"metadata": raw["metadata"], "spec": {"clusterIPs": ["None"]}}
    assert decoding.service(encoded(headless)).addresses == ()


def test_slice_keeps_entries_that_refer_to_pods() -> None:
    raw = {
        "metadata": {"name": "cart-x", "namespace": "shop", "labels": {"kubernetes.io/service-name": "cart"}},
        "ports": [{"name": "web", "port": 8080, "protocol": "TCP"}, {"name": "any", "port": None}],
        "endpoints": [
            {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "uid": "u1"}},
            {"addresses": ["10.0.0.2"]},
            {"addresses": ["10.0.0.3"], "targetRef": {"kind": "Node", "uid": "u2"}},
        ],
    }
    expected = Slice("shop", "cart-x", "cart", (("web", 8080),), (SliceEndpoint("u1", ("10.0.0.1",)),))
    assert decoding.slice_(encoded(raw)) == expected
    empty = raw | {"ports": None, "endpoints": None}
    assert decoding.slice_(encoded(empty)) == Slice("shop", "cart-x", "cart")


def test_of_a_service_some_ports_are_kept_and_of_one_without_an_address_none() -> None:
    ports = [{"name": f"p{number}", "port": number + 1} for number in range(30_000)]
    raw = {"metadata": {"name": "s", "namespace": "evil"}, "spec": {"clusterIPs": ["10.96.0.7"], "ports": ports}}
    found = decoding.service(encoded(raw))
    assert (len(found.ports), found.left_out) == (256, 30_000 - 256)
    raw["spec"]["clusterIPs"] = ["None"]
    assert decoding.service(encoded(raw)) == Service("evil", "s")


def test_what_cannot_be_a_pods_is_not_kept_of_a_slice() -> None:
    labels = {"kubernetes.io/service-name": "s"}
    many = {"addresses": [f"10.0.0.{n}" for n in range(100)], "targetRef": {"kind": "Pod", "uid": "u1"}}
    one = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "uid": "u1"}}
    odd = {"addresses": ["10.0.0.1"], "targetRef": {"kind": "Pod", "uid": "u" * 100_000}}
    ports = [{"name": f"p{number}", "port": number + 1} for number in range(1_000)]
    raw = {"metadata": {"name": "x", "namespace": "evil", "labels": labels}, "endpoints": [many, one, odd]}
    assert decoding.slice_(encoded(raw)).endpoints == (SliceEndpoint("u1", ("10.0.0.1",)),)
    assert len(decoding.slice_(encoded(raw | {"ports": ports})).ports) == 256
    for of_nobody in ({}, labels | {"service.kubernetes.io/headless": ""}):
        metadata = raw["metadata"] | {"labels": of_nobody}
        found = decoding.slice_(encoded(raw | {"metadata": metadata, "ports": ports}))
        assert (found.endpoints, found.ports) == ((), ())


def test_whatever_has_addresses_has_them_in_the_form_in_which_they_are_looked_up() -> None:
    status = POD["status"] | {"podIPs": [{"ip": "10.0.0.01"}, {"ip": "FD00:0::1"}]}
    assert decoding.pod(encoded(POD | {"status": status})).addresses == ("10.0.0.1", "fd00::1")
    assert node_of(addresses=[{"type": "InternalIP", "address": "192.0.02.1"}]).addresses == ("192.0.2.1",)
    raw = {
        "metadata": {"name": "cart", "namespace": "shop"},
        "spec": {"clusterIPs": ["10.96.011.012", "fd00:10:96:0:0:0:0:7"]},
        "status": {"loadBalancer": {"ingress": [{"ip": "203.0.113.009"}]}},
    }
    service = decoding.service(encoded(raw))
    assert (service.addresses, service.balancers) == (("10.96.11.12", "fd00:10:96::7"), ("203.0.113.9",))


def test_an_endpoint_with_an_address_that_is_none_is_not_kept_without_it() -> None:
    ref = {"kind": "Pod", "uid": "u1"}
    stored = (["cart.example"], ["10.0.0.1", "x"], ["10.0.0.01"])
    endpoints = [{"addresses": addresses, "targetRef": ref} for addresses in stored]
    labels = {"kubernetes.io/service-name": "cart"}
    raw = {"metadata": {"name": "cart-x", "namespace": "shop", "labels": labels}, "endpoints": endpoints}
    assert decoding.slice_(encoded(raw)).endpoints == (SliceEndpoint("u1", ("10.0.0.1",)),)


def test_namespace_allows_cluster_scope_by_its_label_alone() -> None:
    raw: dict[str, Any] = {"metadata": {"name": "shop", "labels": {"latencyprobe.dev/cluster-scope": "allowed"}}}
    assert decoding.namespace(encoded(raw)) == Namespace("shop", cluster_scope=True)
    raw["metadata"]["labels"]["latencyprobe.dev/cluster-scope"] = "yes"
    assert decoding.namespace(encoded(raw)).cluster_scope is False
