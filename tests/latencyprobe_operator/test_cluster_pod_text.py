"""How much is kept of what pods' authors write."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import ClusterState
from tests.latencyprobe_operator.raw_pod import POD, encoded


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
    assert kept < 10 * 60_000, "ports are the most of it"
    first = pods[0]
    assert first.attributes == (("team", "cart"),)
    assert first.left_out == ("labels", "ports above 108", "a0")
    assert (first.labels, first.unselectable) == ({}, True)
    assert {c.image for c in first.containers} == {"", "proxy:1"}
    assert len(first.numbers) == 108


def heavy(number: int, **spec: Any) -> bytes:
    """A pod with as many containers, ports and labels as are kept of each."""
    metadata = {"name": f"p{number}", "namespace": "evil", "uid": f"u{number}"}
    metadata |= {"labels": {f"l{i}-{number}": "v" * 100 for i in range(128)}}
    containers = [
        {
            "name": f"c{i}-{number}" + "x" * 50,
            "ports": [{"name": f"p{i}-{j}-{number}", "containerPort": 1 + i * 4 + j} for j in range(4)],
        }
        for i in range(70)
    ]
    return json.dumps({"metadata": metadata, "spec": {"containers": containers, **spec}, "status": {}}).encode()


def kept_bytes(documents: list[bytes], decode: Callable[[bytes], Any]) -> float:
    """How much is kept of each."""
    decode(documents[0])
    tracemalloc.start()
    found = [decode(document) for document in documents]
    kept = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    return kept / len(found)


@pytest.mark.long
def test_all_that_is_kept_of_a_pod_is_bounded() -> None:
    # 59,000, and a part of the table of interned strings where it just then grows
    assert kept_bytes([heavy(number, nodeName="n1") for number in range(200)], decoding.pod) < 80_000
    pod = decoding.pod(heavy(0, nodeName="n1"))
    assert len(pod.labels) == 128
    assert pod.left_out == ("containers above 68", "ports above 0")


@pytest.mark.parametrize("idle", ["not scheduled", "ended"])
def test_of_a_pod_that_does_not_run_hardly_anything_is_kept(idle: str) -> None:
    spec = {"nodeName": "n1"} if idle == "ended" else {}
    documents = [
        heavy(number, **spec).replace(b'"status": {}', b'"status": {"phase": "%s"}' % phase)
        for phase in [b"Failed" if idle == "ended" else b"Pending"]
        for number in range(200)
    ]
    assert kept_bytes(documents, decoding.pod) < 600
    assert decoding.pod(documents[0]) == Pod(
        "u0", "evil", "p0", node=spec.get("nodeName", ""), terminal=idle == "ended"
    )


def test_what_fits_is_kept_before_what_does_not() -> None:
    annotations = {"resource.opentelemetry.io/a": "x" * 2046, "resource.opentelemetry.io/b": "y" * 100}
    metadata = {**POD["metadata"], "annotations": annotations}
    pod = decoding.pod(json.dumps({**POD, "metadata": metadata}).encode())
    assert [name for name, _ in pod.attributes] == ["a"]
    assert pod.left_out == ("b", "image of container main", "OTEL_SERVICE_NAME of container main")
    assert (pod.labels, pod.unselectable) == ({"app": "cart"}, False)


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
