"""OpenTelemetry resource attributes of a pod, as the semantic conventions for Kubernetes ask.

Pure. Source: semantic conventions 1.44, "Service attributes from Kubernetes"; annotations come before owners, a
workload's own `OTEL_*` variables before everything.
"""

import re
from collections.abc import Mapping
from urllib.parse import unquote

from latencyprobe_operator.cluster.objects import Container, Pod

_OWNER_ATTRIBUTES = {
    "Deployment": "k8s.deployment.name",
    "ReplicaSet": "k8s.replicaset.name",
    "StatefulSet": "k8s.statefulset.name",
    "DaemonSet": "k8s.daemonset.name",
    "CronJob": "k8s.cronjob.name",
    "Job": "k8s.job.name",
}
# The first of each must be there: kubernetes.io, "Recommended Labels", and what was usual before them.
_APPLICATION_LABELS = (("app.kubernetes.io/name", "app.kubernetes.io/instance"), ("app",), ("k8s-app",))
# A CronJob's Jobs end in the minutes since 1970. The range is 2020 to 2060: a date such as 20260131 is none.
_CRON_SUFFIX = re.compile(r"^(.+)-(\d{8})$")
_CRON_MINUTES = range(26_297_280, 47_335_680)
# What says who somebody is, where he runs and who has measured him. Prometheus makes one label of `k8s.pod.name`,
# `K8s_pod_name` and `k8s..pod.name`, or of these two of them.
_OURS = re.compile(r"[^a-z0-9]*(k8s|container|host|telemetry|latencyprobe)([^a-z0-9]|$)", re.IGNORECASE)


def owners(pod: Pod) -> dict[str, str]:
    """Return the pod's owners by kind, the highest first: a ReplicaSet's Deployment and a Job's CronJob come from the
    names that their controllers give."""
    kind, name = pod.owner_kind, pod.owner_name
    found = {}
    if kind == "ReplicaSet":
        deployment = name.removesuffix(f"-{pod.labels.get('pod-template-hash', '')}")
        if deployment not in (name, ""):
            found["Deployment"] = deployment
    elif kind == "Job":
        cron = _CRON_SUFFIX.match(name)
        if cron and int(cron[2]) in _CRON_MINUTES:
            found["CronJob"] = cron[1]
    if kind in _OWNER_ATTRIBUTES:
        found[kind] = name
    return found


def workload(pod: Pod) -> str:
    """Return the name that a person knows the pod's workload by."""
    return next(iter(owners(pod).values()), pod.name)


def replica_group(pod: Pod) -> tuple[str, ...] | None:
    """Return what a pod has in common with its replicas; None for a pod that has none.

    That is its application by Kubernetes' recommended labels or `app`: a primary and its standbys are often two
    StatefulSets. Else it is kind and name of what runs the pod.
    """
    for labels in _APPLICATION_LABELS:
        if labels[0] in pod.labels:
            return tuple(pod.labels.get(label, "") for label in labels)
    return next(iter(owners(pod).items()), (pod.owner_kind, pod.owner_name) if pod.owner_kind else None)


def attributes(pod: Pod) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Return the pod's attributes, and by container name those in which its containers differ.

    What identifies the pod is set by us alone: no annotation or variable of the workload replaces it, or adds to it.
    """
    facts = {
        "k8s.namespace.name": pod.namespace,
        "k8s.pod.name": pod.name,
        "k8s.pod.uid": pod.uid,
        "k8s.node.name": pod.node,
        **{_OWNER_ATTRIBUTES[kind]: name for kind, name in owners(pod).items()},
    }
    if pod.addresses:
        facts["k8s.pod.ip"] = pod.addresses[0]
    declared = {name: value for name, value in pod.attributes if not _OURS.match(name)}
    given = {"service.name": workload(pod), "service.namespace": pod.namespace, **declared}
    own = {c.name: _of_container(c, "service.version" in given) for c in pod.containers}
    common = dict(set.intersection(*(set(a.items()) for a in own.values()))) if own else {}
    shared = {**given, **common, **facts}
    differing = {name: {k: v for k, v in a.items() if k not in common} for name, a in own.items()}
    return dict(sorted(shared.items())), {name: dict(sorted(a.items())) for name, a in differing.items() if a}


def service_name(pod: Pod) -> str:
    """Return the pod's `service.name`; of containers that differ, the first one's. Asked for at each look-up of an
    address, so that nothing else of what pods say is looked at."""
    env = dict(pod.containers[0].env) if pod.containers else {}
    own = env.get("OTEL_SERVICE_NAME") or _declared(env, "service.name").get("service.name")
    return own or dict(pod.attributes).get("service.name") or workload(pod)


def _of_container(container: Container, versioned: bool) -> dict[str, str]:
    env = dict(container.env)
    own = {} if versioned else _version(container.image)
    own |= _declared(env)
    if "OTEL_SERVICE_NAME" in env:
        own["service.name"] = env["OTEL_SERVICE_NAME"]
    return own


def _declared(env: Mapping[str, str], about: str = "") -> dict[str, str]:
    """Return what the workload's variable says of its resource. `about`: only what has this in it."""
    own = {}
    for pair in env.get("OTEL_RESOURCE_ATTRIBUTES", "").split(","):
        if about in pair:
            key, equals, value = pair.partition("=")
            name = key.strip()
            if equals and name and not _OURS.match(name) and not value.strip().startswith("$("):
                own[name] = unquote(value.strip())
    return own


def _version(image: str) -> dict[str, str]:
    """Return `service.version`: tag@digest, digest or tag, as far as the image names them."""
    name, _, digest = image.partition("@")
    tag = name.rpartition("/")[2].partition(":")[2]
    version = "@".join(part for part in (tag, digest) if part)
    return {"service.version": version} if version else {}
