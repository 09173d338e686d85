"""kopf: what happens to LatencyProbes, as it happens. It only looks: nothing of it writes to the API server, as nobody
would ask it whether the Lease is ours.

It runs in a thread of its own, since at its end it cancels whatever else there is in its event loop; and it ends when
the API server refuses its credentials.
"""

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any, NoReturn

from latencyprobe_operator.cluster import aio  # isort: skip  # before kopf
import kopf
from kopf._cogs.structs.references import Insights  # nothing public says what kopf watches

from latencyprobe.api import GROUP
from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import Backoff, InPod
from latencyprobe_operator.cluster.loops import until_one_ends
from latencyprobe_operator.cluster.own_loop import OwnLoop

assert aio
NAME = "kopf"
FINALIZER = f"{GROUP}/never-set"
CHUNK = 10  # LatencyProbes of a list that are in memory at once, as Python's own dicts: 100 MB of the largest
_STEADY_S = 60.0  # who ran for so long ended for a reason of its own

Take = Callable[[str | None, dict[str, Any]], None]  # an event's type, and the LatencyProbe


def watching(take: Take, failed: Callable[[str, Exception], None]) -> OwnLoop:
    """Return kopf's thread. It calls back in the event loop of who asks here: `take` with what happens, and `failed`
    with what ended kopf, which then begins anew after a growing delay."""
    ours = asyncio.get_running_loop()

    def tell(*event: Any) -> None:
        ours.call_soon_threadsafe(take, *event)

    async def again_and_again() -> NoReturn:
        backoff = Backoff()
        while True:
            began = time.monotonic()
            error = await _ended(tell)
            ours.call_soon_threadsafe(failed, NAME, error)
            if time.monotonic() - began > _STEADY_S:
                backoff.reset()
            await backoff.wait(error)

    logging.getLogger("kopf._core.reactor.running").setLevel(logging.ERROR)  # it warns of not being in the main thread
    return OwnLoop(NAME, again_and_again)


async def _ended(take: Take) -> Exception:
    """Run kopf until it ends by itself, or has nothing to watch; returns why."""
    insights = Insights()
    ours = {"registry": kopf_registry(take), "settings": settings(), "insights": insights}
    try:
        await until_one_ends(_kind_is_served(insights), kopf.operator(**ours, clusterwide=True, standalone=True))
    except Exception as error:
        return error
    return ClusterError("kopf has ended by itself")


async def _kind_is_served(insights: Insights) -> None:
    """Raise ClusterError when kopf has found no LatencyProbes to watch: it would not look for them again."""
    await insights.ready_resources.wait()
    if not insights.watched_resources:
        raise ClusterError("the API server serves no LatencyProbes: their CRD is gone, or not served yet")
    await asyncio.Event().wait()


def settings() -> kopf.OperatorSettings:
    """Return kopf's settings."""
    ours = kopf.OperatorSettings()
    ours.peering.standalone = True
    ours.scanning.disabled = True
    ours.persistence.finalizer = FINALIZER
    ours.posting.enabled = False
    ours.posting.reporting_component = f"{GROUP}/operator"
    ours.process.ultimate_exiting_timeout = None  # it would kill this process 10 minutes after its own end
    ours.watching.connect_timeout = 10
    ours.watching.client_timeout = 600
    ours.watching.server_timeout = 540
    ours.watching.chunk_size = CHUNK
    ours.networking.request_timeout = 30
    ours.networking.enforce_retry_after = True
    ours.execution.max_workers = 2
    return ours


def kopf_registry(take: Take) -> kopf.OperatorRegistry:
    """Return kopf's handlers, which pass on events. Only `on.event`: for all others kopf writes annotations."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**kwargs: Any) -> kopf.ConnectionInfo | None:
        if (pod := InPod.detect()) is not None:
            return kopf.ConnectionInfo(server=pod.server, ca_path=pod.ca_file, token=pod.token)
        return kopf.login_with_kubeconfig(**kwargs)

    @kopf.on.event("latencyprobes", group=GROUP, registry=registry)
    async def happened(event: kopf.RawEvent, **_: Any) -> None:
        take(event["type"], dict(event["object"]))

    return registry
