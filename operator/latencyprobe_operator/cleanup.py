"""`latencyprobe operator --cleanup`: nothing that the operator made outside the chart stays behind.

The chart runs it before uninstalling, a person may run it by hand. It takes the Lease even from a live operator, which
then stops, and keeps it until `KEEP_S` after the end: long enough for Helm to delete the Deployment.
"""

import asyncio
import logging

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.election import Lease
from latencyprobe_operator.config import Config

log = logging.getLogger(__name__)

AGENT_SELECTOR = "app.kubernetes.io/component=agent"
TIMEOUT_S = 150.0  # an agent has 30 s to end; the chart's Job may take 180 s
KEEP_S = 120
_POLL_S = 1.0


async def run(config: Config) -> None:
    """Take the labels away and wait until no agent is left. Raises ClusterError when some stay."""
    async with await Api.connect() as api:
        cluster = Cluster(api)
        lease = Lease(api, config.namespace, f"cleanup-{config.identity}", seize=True)
        await lease.acquire()
        holding = asyncio.create_task(lease.hold())
        try:
            async with asyncio.timeout(TIMEOUT_S):
                while left := await _sweep(cluster, config.agent_namespace):
                    log.info("waiting for %s", left)
                    await asyncio.sleep(_POLL_S)
        except TimeoutError as error:
            raise ClusterError(f"{left} did not go within {TIMEOUT_S:.0f} s: look at that node") from error
        finally:
            holding.cancel()
            await asyncio.gather(holding, return_exceptions=True)
            await lease.release(after_s=KEEP_S)
    log.info("no node label and no agent is left")


async def _sweep(cluster: Cluster, agent_namespace: str) -> str:
    """Take every label away; returns what is still there, in words."""
    nodes = await cluster.labelled_nodes()
    for name, uid in nodes:
        await cluster.label_node(name, uid, measure=False)
    pods = await cluster.pods(agent_namespace, AGENT_SELECTOR)
    parts = [("node labels", [name for name, _ in nodes]), ("agent pods", pods)]
    return "; ".join(f"{what} {', '.join(names[:5])}" for what, names in parts if names)
