"""Why an agent's pod does not run: statuses as kubelets and schedulers write them."""

import json
from typing import Any

import pytest

from latencyprobe_operator.cluster.objects import Kind, Trouble
from latencyprobe_operator.cluster.trouble import TEXT, is_agent, trouble

LABELS = {"app.kubernetes.io/name": "latencyprobe", "app.kubernetes.io/component": "agent", "pod-template-hash": "1"}
CRASHED = {"terminated": {"exitCode": 137, "reason": "OOMKilled", "finishedAt": "2026-01-01T00:00:00Z"}}


def of(status: dict[str, Any], **spec: Any) -> tuple[str, Trouble | None]:
    return trouble(json.dumps({"metadata": {"name": "a"}, "spec": spec, "status": status}).encode())


def container(state: dict[str, Any], **fields: Any) -> dict[str, Any]:
    one = {"name": "agent", "image": "registry.example/latencyprobe/agent:0.1.0", "ready": False, "state": state}
    return {"phase": "Pending", "containerStatuses": [one | fields]}


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (container({"running": {"startedAt": "now"}}, ready=True), None),
        (container({"waiting": {"reason": "ContainerCreating"}}), None),
        ({"phase": "Pending"}, None),
        (
            container({"waiting": {"reason": "ErrImagePull", "message": "not found"}}),
            Trouble(Kind.IMAGE, "registry.example/latencyprobe/agent:0.1.0"),
        ),
        (
            container({"waiting": {"reason": "CreateContainerConfigError"}}),
            Trouble(Kind.START, "CreateContainerConfigError"),
        ),
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, Trouble(Kind.ENDED, "Evicted")),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "message": "0/2 nodes: Insufficient memory."}]},
            Trouble(Kind.UNSCHEDULABLE, "0/2 nodes: Insufficient memory."),
        ),
    ],
)
def test_status_says_what_keeps_an_agent_from_running(status: dict[str, Any], expected: Trouble | None) -> None:
    assert of(status)[1] == expected


def test_image_that_is_tried_again_is_the_same_trouble() -> None:
    tried = [of(container({"waiting": {"reason": r}}))[1] for r in ("ErrImagePull", "ImagePullBackOff")]
    assert tried[0] == tried[1]


def test_crash_is_told_at_every_step_of_trying_again() -> None:
    steps = (
        container(CRASHED),
        container({"waiting": {"reason": "CrashLoopBackOff"}}, lastState=CRASHED),
        container({"running": {}}, lastState=CRASHED),
    )
    assert {of(step)[1] for step in steps} == {Trouble(Kind.CRASH, "exit code 137 (OOMKilled)")}


def test_crash_of_long_ago_is_none() -> None:
    assert of(container({"running": {}}, ready=True, lastState=CRASHED))[1] is None


def test_long_words_are_cut() -> None:
    scheduled = {"type": "PodScheduled", "status": "False", "message": "x" * 5000}
    found = of({"conditions": [scheduled]})[1]
    assert found is not None
    assert len(found.text) == TEXT


def test_pod_that_waits_for_a_node_says_for_which() -> None:
    fields = [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{"matchFields": fields}]}}
    assert of({}, affinity={"nodeAffinity": required})[0] == "n1"
    assert of({}, affinity={"nodeAffinity": {}})[0] == of({})[0] == ""


def test_agents_are_known_by_their_owner_and_labels() -> None:
    assert is_agent("DaemonSet", LABELS)
    assert not is_agent("Deployment", LABELS)
    assert not is_agent("DaemonSet", LABELS | {"app.kubernetes.io/component": "operator"})
