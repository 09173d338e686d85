"""kopf: LatencyProbes into the registry. Settings and handlers only; the work is level-based and elsewhere.

Nothing here makes kopf add a finalizer: no timers, no daemons, no `on.delete`.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from latencyprobe_operator.cluster import aio  # isort: skip  # before kopf
import kopf

from latencyprobe.manifest import GROUP
from latencyprobe_operator.cluster.api import InPod
from latencyprobe_operator.status.registry import Registry

assert aio
FINALIZER = f"{GROUP}/never-set"


async def run(probes: Registry, take_signals: Callable[[], None]) -> None:
    """Run kopf until cancelled; it ends by itself when the API server refuses its credentials.

    It must not catch a signal, so `take_signals` takes them back: it would then wait 5 s for all tasks that are younger
    than itself, and these are the directory's connections.
    """
    older = asyncio.all_tasks()
    tasks = await kopf.spawn_tasks(registry=kopf_registry(probes), clusterwide=True, standalone=True)
    take_signals()
    await kopf.run_tasks(tasks, ignored=older)


def kopf_registry(probes: Registry) -> kopf.OperatorRegistry:
    """Return kopf's handlers, which write to `probes`."""
    registry = kopf.OperatorRegistry()

    @kopf.on.startup(registry=registry)
    def configure(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.peering.standalone = True
        settings.scanning.disabled = True
        settings.persistence.finalizer = FINALIZER
        settings.persistence.progress_storage = kopf.AnnotationsProgressStorage(prefix=GROUP)
        settings.persistence.diffbase_storage = kopf.AnnotationsDiffBaseStorage(prefix=GROUP)
        settings.posting.enabled = False
        settings.posting.reporting_component = f"{GROUP}/operator"
        settings.watching.connect_timeout = 10
        settings.watching.client_timeout = 600
        settings.watching.server_timeout = 540
        settings.watching.chunk_size = 500
        settings.networking.request_timeout = 30
        settings.networking.enforce_retry_after = True
        settings.queueing.worker_limit = 20
        settings.execution.max_workers = 2

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if (pod := InPod.detect()) is not None:
            return kopf.ConnectionInfo(server=pod.server, ca_path=pod.ca_file, token=pod.token)
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.create("latencyprobes", group=GROUP, registry=registry)
    @kopf.on.update("latencyprobes", group=GROUP, registry=registry)
    @kopf.on.resume("latencyprobes", group=GROUP, registry=registry)
    async def put(body: kopf.Body, **_: Any) -> None:
        entry = probes.put(body)
        if entry.error is not None:
            raise kopf.PermanentError(str(entry.error))

    @kopf.on.event("latencyprobes", group=GROUP, registry=registry)
    async def drop(event: kopf.RawEvent, namespace: str, name: str, uid: str, **_: Any) -> None:
        if event["type"] == "DELETED":
            probes.drop((namespace, name), uid)

    return registry
