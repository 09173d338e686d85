"""`latencyprobe operator --cleanup`: after uninstalling, nothing that the operator made outside the chart stays behind.

The chart runs it once everything is deleted, a person may run it by hand. The Lease says whether a release is
installed, since no operator sets a label without it: while there is one, nothing is touched. So a clean-up that comes
late takes nothing from the next release.
"""

import asyncio
import logging
import time
from collections.abc import Callable

from latencyprobe.errors import ClusterError, LatencyProbeError
from latencyprobe_operator.cluster import election
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.config import Namespaces

log = logging.getLogger(__name__)

TIMEOUT_S = 150.0  # an agent has 15 s to end; the chart's Job may take 180 s
_POLL_S = 1.0
_NUDGE_S = 5.0  # a CRD without objects goes within a second
_SELECTOR = "app.kubernetes.io/name=latencyprobe,app.kubernetes.io/component="
_CRDS = {
    f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}": name
    for name in ("latencyprobes.latencyprobe.dev", "latencyreports.latencyprobe.dev")
}


async def run(namespaces: Namespaces) -> None:
    """Take the labels away and wait until pods, claims, CRDs and the agents' namespace are gone.

    Raises LatencyProbeError when a release is installed, ClusterError when something stays.
    """
    async with await Api.connect() as api:
        await sweep(Cluster(api), namespaces)
    log.info("no node label and nothing of the release is left")


async def sweep(cluster: Cluster, namespaces: Namespaces, *, clock: Callable[[], float] = time.monotonic) -> None:
    """As `run`, with a connection. Raises ClusterError when something stays after TIMEOUT_S."""
    said, end, nudge = "", clock() + TIMEOUT_S, clock() + _NUDGE_S
    while left := await _left(cluster, namespaces):
        if clock() > end:
            why = "a node that does not answer or a finalizer keeps it"
            raise ClusterError(f"after {TIMEOUT_S:.0f} s there is still {left}: {why}")
        if left != said:
            log.info("waiting for %s", left)
        said = left
        if clock() > nudge:
            nudge = clock() + _NUDGE_S
            await _nudge(cluster)
        await asyncio.sleep(_POLL_S)


async def _left(cluster: Cluster, namespaces: Namespaces) -> str:
    """Take every label away; return what is still there, in words. A call that fails is among them."""
    own, agents = (f"/api/v1/namespaces/{name}" for name in namespaces)
    going = _CRDS | {agents: namespaces.agents}
    try:
        await _no_release(cluster, namespaces.own)
        left = {"operator pod": await cluster.names(f"{own}/pods", f"{_SELECTOR}operator")}  # first: it may label yet
        nodes = await cluster.labelled_nodes()
        for name, uid in nodes:
            await _no_release(cluster, namespaces.own)
            await cluster.label_node(name, uid, measure=False)
        left["label of node"] = [name for name, _ in nodes]
        left["agent pod"] = await cluster.names(f"{agents}/pods", f"{_SELECTOR}agent")
        left["volume claim"] = await cluster.names(f"{own}/persistentvolumeclaims", f"{_SELECTOR}operator")
        left["a deletion of"] = [name for path, name in going.items() if await _is_going(cluster, path)]
    except ClusterError as error:
        return str(error)
    return "; ".join(f"{what} {', '.join(names[:5])}" for what, names in left.items() if names)


async def _nudge(cluster: Cluster) -> None:
    """Have the API server look again at CRDs that do not go.

    One that is deleted while it is being made now and then stays until a resync, minutes later: when the first attempt
    fails, `crd_finalizer.go` (Kubernetes 1.36) takes the conflict with what it wrote itself for somebody else's change,
    and waits for the event of that.
    """
    for path, name in _CRDS.items():
        try:
            if await _is_going(cluster, path):
                await cluster.nudge(path)
        except ClusterError as error:
            log.warning("%s could not be nudged: %s", name, error)


async def _no_release(cluster: Cluster, namespace: str) -> None:
    """Raise LatencyProbeError when a release is installed in the namespace."""
    lease = await cluster.metadata(f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases/{election.NAME}")
    if lease is not None and "deletionTimestamp" not in lease:
        owner = f"LatencyProbe is installed in namespace {namespace}, and its operator owns the node labels"
        raise LatencyProbeError(f"{owner}: uninstall it first")


async def _is_going(cluster: Cluster, path: str) -> bool:
    """Return whether an object is being deleted; one that is kept is not."""
    return "deletionTimestamp" in (await cluster.metadata(path) or {})
