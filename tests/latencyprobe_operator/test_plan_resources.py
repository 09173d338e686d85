"""Resource attributes of pods."""

from typing import Any

import pytest

from latencyprobe_operator.cluster.objects import Container
from latencyprobe_operator.plan.resources import attributes, service_name, workload


def owned(make: Any, kind: str, name: str, **fields: Any) -> Any:
    return make.pod("cart-7d9f-x2", owner_kind=kind, owner_name=name, **fields)


@pytest.mark.parametrize(
    ("kind", "name", "labels", "expected"),
    [
        ("ReplicaSet", "cart-7d9f", {"pod-template-hash": "7d9f"}, "cart"),
        ("ReplicaSet", "cart-7d9f", {}, "cart-7d9f"),
        ("StatefulSet", "db", {}, "db"),
        ("DaemonSet", "proxy", {}, "proxy"),
        ("Job", "backup-29384756", {}, "backup"),
        ("Job", "import-20260131", {}, "import-20260131"),
        ("Rollout", "cart", {}, "cart-7d9f-x2"),
        ("", "", {}, "cart-7d9f-x2"),
    ],
)  # fmt: skip
def test_workload_is_the_highest_owner_that_is_known(
    make: Any, kind: str, name: str, labels: dict[str, str], expected: str
) -> None:
    assert workload(owned(make, kind, name, labels=labels)) == expected


def test_kubernetes_facts_and_owner_names_are_always_there(make: Any) -> None:
    shared, differing = attributes(owned(make, "ReplicaSet", "cart-7d9f", labels={"pod-template-hash": "7d9f"}))
    expected = {
        "k8s.deployment.name": "cart",
        "k8s.namespace.name": "shop",
        "k8s.node.name": "n1",
        "k8s.pod.name": "cart-7d9f-x2",
        "k8s.replicaset.name": "cart-7d9f",
        "service.name": "cart",
        "service.namespace": "shop",
        "service.version": "1.2",
    }
    assert {k: shared[k] for k in expected} == expected
    assert differing == {}


def test_annotations_come_before_owners_and_variables_before_annotations(make: Any) -> None:
    annotated = owned(make, "StatefulSet", "db", attributes=(("service.name", "annotated"), ("team", "blue")))
    assert service_name(annotated) == "annotated"
    assert attributes(annotated)[0]["team"] == "blue"
    env = (("OTEL_RESOURCE_ATTRIBUTES", "service.name=inner,region=north%20west"), ("OTEL_SERVICE_NAME", "outer"))
    configured = owned(
        make,
        "StatefulSet",
        "db",
        attributes=(("service.name", "annotated"),),
        containers=(Container("main", "c1", "", env),),
    )
    shared, _ = attributes(configured)
    assert (shared["service.name"], shared["region"]) == ("outer", "north west")


IDENTIFYING = [
    *("k8s.pod.name", "k8s.pod.uid", "k8s.namespace.name", "k8s.node.name", "k8s.deployment.name", "k8s.cluster.name"),
    *("k8s.container.name", "container.id", "host.name", "telemetry.sdk.name", "latencyprobe.probe.namespace"),
    *("K8s.Pod.Name", "k8s_pod_name", "k8s..pod.name", "_k8s.pod.name", "k8s/pod/name"),  # one label of Prometheus
]


@pytest.mark.parametrize("name", IDENTIFYING)
def test_workload_cannot_claim_to_be_another_pod(make: Any, name: str) -> None:
    env = (("OTEL_RESOURCE_ATTRIBUTES", f" {name} =theirs,team=blue"),)
    containers = Container("main", "c1", "", env), Container("proxy", "c2", "")
    lying = make.pod("cart-1", attributes=((name, "theirs"), ("tier", "web")), containers=containers)
    honest = make.pod("cart-1", attributes=(("tier", "web"),), containers=(containers[1],))
    shared, differing = attributes(lying)
    assert shared == attributes(honest)[0]
    assert differing == {"main": {"team": "blue"}}


def test_workload_says_itself_which_service_it_is(make: Any) -> None:
    """As the conventions have it, its instance too; and `hostess.name` is nothing that identifies anybody."""
    names = ("hostess.name", "service.instance.id", "service.name", "service.namespace")
    shared, _ = attributes(make.pod("cart-1", attributes=tuple((name, "own") for name in names)))
    assert {name: shared[name] for name in names} == dict.fromkeys(names, "own")


@pytest.mark.parametrize("annotated", [(), (("service.name", "annotated"),)])
@pytest.mark.parametrize("others", [0, 1])
@pytest.mark.parametrize(
    "env",
    [
        *[(), (("OTEL_SERVICE_NAME", "outer"),)],
        (("OTEL_RESOURCE_ATTRIBUTES", "my.service.name=x, service.name = in%20ner ,service.name.y=z"),),
        (("OTEL_RESOURCE_ATTRIBUTES", "service.name=inner"), ("OTEL_SERVICE_NAME", "outer")),
        (("OTEL_RESOURCE_ATTRIBUTES", "service.name=$(NAME),a=b"),),
    ],
)
def test_a_look_up_names_the_service_as_the_first_containers_spans_do(
    make: Any, env: tuple[tuple[str, str], ...], others: int, annotated: tuple[tuple[str, str], ...]
) -> None:
    """Without looking at the others."""
    containers = [Container("main", "c1", "", env), *[Container("proxy", "c2")] * others]
    found = make.pod("cart-1", attributes=annotated, containers=tuple(containers))
    shared, differing = attributes(found)
    assert service_name(found) == {**shared, **differing.get("main", {})}["service.name"]


def test_containers_that_differ_keep_their_own_name_and_version(make: Any) -> None:
    both = (
        Container("main", "c1", "app:1", (("OTEL_SERVICE_NAME", "app"),)),
        Container("proxy", "c2", "proxy:2"),
    )
    shared, differing = attributes(make.pod("cart-1", containers=both))
    assert shared["service.name"] == "cart-1"
    assert "service.version" not in shared
    assert differing == {
        "main": {"service.name": "app", "service.version": "1"},
        "proxy": {"service.version": "2"},
    }


@pytest.mark.parametrize(
    ("image", "version"),
    [
        ("registry.example:5000/shop/app:1.2", "1.2"),
        ("registry.example:5000/shop/app", None),
        ("app@sha256:ab", "sha256:ab"),
        ("app:1.2@sha256:ab", "1.2@sha256:ab"),
    ],
)
def test_version_is_what_the_image_names(make: Any, image: str, version: str | None) -> None:
    shared, _ = attributes(make.pod("cart-1", containers=(Container("main", "c1", image),)))
    assert shared.get("service.version") == version
