"""Whose an object is: ours with our label and a LatencyProbe that owns it, and nothing less."""

import pytest

from latencyprobe_operator.cluster.owners import MANAGED_BY, owner, reference


def test_object_that_we_write_is_its_latencyprobes() -> None:
    metadata = {"labels": {**MANAGED_BY, "release": "stack"}, "ownerReferences": [reference("checkout", "u1")]}
    assert owner(metadata) == "checkout"


@pytest.mark.parametrize("lacking", ["labels", "ownerReferences"])
def test_object_without_our_label_or_a_latencyprobe_is_somebody_elses(lacking: str) -> None:
    metadata = {"labels": MANAGED_BY, "ownerReferences": [reference("checkout", "u1")]}
    assert owner({k: v for k, v in metadata.items() if k != lacking}) is None
    helm = {**metadata, "labels": {"app.kubernetes.io/managed-by": "Helm"}}
    assert owner(helm) is None
    other = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "checkout", "uid": "u"}
    assert owner({**metadata, "ownerReferences": [other]}) is None
