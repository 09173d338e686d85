"""A pod as the API server tells of it."""

import json
from typing import Any

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
