"""The API server's JSON → trimmed objects."""

import json
import tracemalloc
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
from latencyprobe_operator.cluster.state import ClusterState

POD: dict[str, Any] = {
    "metadata": {
        "name": "cart-1",
        "namespace": "shop",
        "uid": "u1",
        "labels": {"app": "cart"},
        "annotations": {"resource.opentelemetry.io/service.name": "cart", "other": "x" * 5000},
        "ownerReferences": [
            {"kind": "Thing", "name": "t", "apiVersion": "v1", "uid": "o0"},
            {"kind": "ReplicaSet", "name": "cart-7d9f", "apiVersion": "apps/v1", "uid": "o1", "controller": True},
        ],
        "managedFields": [{"manager": "kubelet", "fieldsV1": {"f:status": {}}}],
    },
    "spec": {
        "nodeName": "n1",
        "initContainers": [{"name": "sidecar", "image": "proxy:1", "restartPolicy": "Always"}, {"name": "setup"}],
        "containers": [
            {
                "name": "main",
                "image": "app:1",
                "ports": [
                    {"name": "http", "containerPort": 8080, "protocol": "TCP"},
                    {"name": "dns", "containerPort": 53, "protocol": "UDP"},
                    {"containerPort": 9090},
                ],
                "env": [
                    {"name": "OTEL_SERVICE_NAME", "value": "cart"},
                    {"name": "OTEL_RESOURCE_ATTRIBUTES", "value": "$(OTHER)"},
                    {"name": "PASSWORD", "value": "secret"},
                    {"name": "FROM", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
                ],
            },
            {"name": "restarting", "image": "app:1"},
        ],
    },
    "status": {
        "phase": "Running",
        "podIPs": [{"ip": "10.0.0.1"}, {"ip": "fd00::1"}],
        "containerStatuses": [
            {"name": "main", "containerID": f"containerd://{'a' * 64}", "state": {"running": {"startedAt": "now"}}},
            {"name": "restarting", "containerID": f"containerd://{'b' * 64}", "state": {"terminated": {"exitCode": 1}}},
        ],
        "initContainerStatuses": [
            {"name": "sidecar", "containerID": f"containerd://{'c' * 64}", "state": {"running": {}}},
            {"name": "setup", "containerID": f"containerd://{'d' * 64}", "state": {"terminated": {"exitCode": 0}}},
        ],
        "ephemeralContainerStatuses": [
            {"name": "debug", "containerID": f"containerd://{'e' * 64}", "state": {"running": {}}}
        ],
    },
}


def encoded(document: dict[str, Any]) -> bytes:
    return json.dumps(document).encode()


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


def test_restarted_container_has_its_new_id() -> None:
    again = {"name": "main", "containerID": f"containerd://{'f' * 64}", "state": {"running": {}}, "restartCount": 1}
    again["lastState"] = {"terminated": {"exitCode": 1, "containerID": f"containerd://{'a' * 64}"}}
    pod = decoding.pod(encoded(POD | {"status": POD["status"] | {"containerStatuses": [again]}}))
    assert {c.name: c.id for c in pod.containers}["main"] == "f" * 64


def test_pods_of_one_workload_share_what_they_have_in_common() -> None:
    one, other = decoding.pod(encoded(POD)), decoding.pod(encoded(POD))
    assert one.labels is other.labels
    assert one.ports is other.ports


def huge(number: int) -> bytes:
    """A pod of 1.2 MiB, nearly all of it what its author chose."""
    metadata, spec = dict(POD["metadata"]), dict(POD["spec"])
    text = f"{number:06}" + "x" * 40_000
    metadata["name"], metadata["uid"] = f"cart-{number}", f"u{number}"
    metadata["labels"] = {f"l{n}-{number}": "v" * 60 for n in range(2000)}
    metadata["annotations"] = {f"resource.opentelemetry.io/a{n}": text for n in range(6)} | {
        "resource.opentelemetry.io/team": "cart"
    }
    container = {"name": "main", "image": text, "env": [{"name": "OTEL_SERVICE_NAME", "value": text}]}
    ports = [{"name": f"p{n}", "containerPort": n + 1} for n in range(5000)]
    spec["containers"] = [container | {"ports": ports}, *({"name": f"c{n}", "image": text} for n in range(10))]
    return json.dumps({**POD, "metadata": metadata, "spec": spec}).encode()


def test_pods_that_say_too_much_cost_no_more_than_others_and_what_is_left_out_is_named() -> None:
    documents = [huge(number) for number in range(10)]
    assert min(map(len, documents)) > 900_000
    decoding.pod(documents[0])
    tracemalloc.start()
    pods = [decoding.pod(document) for document in documents]
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    assert kept < 10 * 60_000, "256 ports are the most of it"
    first = pods[0]
    assert first.attributes == (("team", "cart"),)
    assert first.left_out == ("labels", "ports above 256", "a0")
    assert (first.labels, first.unselectable) == ({}, True)
    assert {c.image for c in first.containers} == {"", "proxy:1"}
    assert len(first.numbers) == 256


def test_what_fits_is_kept_before_what_does_not() -> None:
    annotations = {"resource.opentelemetry.io/a": "x" * 2046, "resource.opentelemetry.io/b": "y" * 100}
    metadata = {**POD["metadata"], "annotations": annotations}
    pod = decoding.pod(json.dumps({**POD, "metadata": metadata}).encode())
    assert [name for name, _ in pod.attributes] == ["a"]
    assert pod.left_out == ("b", "image of container main", "OTEL_SERVICE_NAME of container main")
    assert (pod.labels, pod.unselectable) == ({"app": "cart"}, False)


@pytest.mark.parametrize(("phase", "terminal"), [("Running", False), ("Succeeded", True), ("Failed", True)])
def test_pod_that_ended_is_terminal(phase: str, terminal: bool) -> None:
    assert decoding.pod(encoded(POD | {"status": {"phase": phase}})).terminal is terminal


def test_pod_that_is_being_deleted_is_terminating() -> None:
    meta = POD["metadata"] | {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    assert decoding.pod(encoded(POD | {"metadata": meta})).terminating is True


def test_pod_takes_at_most_1400_bytes_with_its_indices() -> None:
    count, state = 2000, ClusterState()
    documents = []
    for i in range(count):
        status = POD["status"] | {"podIPs": [{"ip": f"10.{i >> 8}.{i & 255}.1"}], "ephemeralContainerStatuses": []}
        meta = POD["metadata"] | {"name": f"cart-7d9f-{i:05}", "uid": f"{i:036}", "namespace": f"shop-{i % 50}"}
        documents.append(encoded(POD | {"metadata": meta, "status": status}))
    tracemalloc.start()
    for document in documents:
        state.put("pods", decoding.pod(document))
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    print(f"{used / count:.0f} B per pod")
    assert used / count <= 1400


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


def test_namespace_allows_cluster_scope_by_its_label_alone() -> None:
    raw: dict[str, Any] = {"metadata": {"name": "shop", "labels": {"latencyprobe.dev/cluster-scope": "allowed"}}}
    assert decoding.namespace(encoded(raw)) == Namespace("shop", cluster_scope=True)
    raw["metadata"]["labels"]["latencyprobe.dev/cluster-scope"] = "yes"
    assert decoding.namespace(encoded(raw)).cluster_scope is False
