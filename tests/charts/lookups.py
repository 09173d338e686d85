"""A played API server for what templates look up, where the real one would be too much: it has Secrets alone."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

# By group and version; Helm asks for the kinds of all that it renders. True: of a namespace.
KINDS = {
    "v1": {
        "Secret": True, "ConfigMap": True, "Service": True, "Pod": True, "ServiceAccount": True,
        "ResourceQuota": True, "PersistentVolumeClaim": True, "Namespace": False,
    },
    "admissionregistration.k8s.io/v1": {"ValidatingAdmissionPolicy": False, "ValidatingAdmissionPolicyBinding": False},
    "apps/v1": {"DaemonSet": True, "Deployment": True},
    "batch/v1": {"Job": True},
    "cert-manager.io/v1": {"Certificate": True},
    "coordination.k8s.io/v1": {"Lease": True},
    "latencyprobe.dev/v1alpha1": {"LatencyProbe": True},
    "networking.k8s.io/v1": {"NetworkPolicy": True},
    "rbac.authorization.k8s.io/v1": {
        "Role": True, "RoleBinding": True, "ClusterRole": False, "ClusterRoleBinding": False,
    },
}  # fmt: skip
NAMESPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kube-system"}}
NOT_FOUND = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "NotFound", "code": 404}


@contextmanager
def looked_up(secrets: dict[str, Any]) -> Iterator[str]:
    """Serve these Secrets, by name, as they are at each question; yields the address."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            found = _discovered(path) or (secrets.get(path.rpartition("/")[2]) if "/secrets/" in path else None)
            body = json.dumps(found or NOT_FOUND).encode()
            self.send_response(200 if found else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Stay silent."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def _discovered(path: str) -> dict[str, Any] | None:
    if path == "/api/v1/namespaces/kube-system":
        return NAMESPACE
    if path == "/version":
        return {"major": "1", "minor": "30", "gitVersion": "v1.30.0"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [name.split("/") for name in KINDS if "/" in name]
        versions = [(name, {"groupVersion": f"{name}/{version}", "version": version}) for name, version in groups]
        listed = [{"name": name, "versions": [one], "preferredVersion": one} for name, one in versions]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed}
    kinds = KINDS.get(name := path.removeprefix("/apis/").removeprefix("/api/"))
    if kinds is None:
        return None
    resources = [
        {"name": kind.lower() + "s", "kind": kind, "namespaced": namespaced, "verbs": ["get", "list"]}
        for kind, namespaced in kinds.items()
    ]
    return {"kind": "APIResourceList", "groupVersion": name, "resources": resources}
