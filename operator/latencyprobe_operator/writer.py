"""Carries out the writes that `reconcile.py` and `reports.py` find needed, and counts them.

`app.py`'s loops call it. A write that fails is logged and asked for again by the level that needs it: nothing is
remembered as written that was not.
"""

import logging
from collections import Counter
from collections.abc import Awaitable, Mapping

from latencyprobe.errors import ClusterError
from latencyprobe_operator import reconcile
from latencyprobe_operator.cluster import Cluster
from latencyprobe_operator.objects import Key
from latencyprobe_operator.registry import Registry
from latencyprobe_operator.reports import Document, differs
from latencyprobe_operator.state import ClusterState

log = logging.getLogger(__name__)


class Writer:
    """Writes to the API server. `counts`: by kind and result (ok, error)."""

    def __init__(self, cluster: Cluster) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self._cluster = cluster
        self._reports: dict[str, Document] = {}

    async def labels(self, wanted: frozenset[str], state: ClusterState) -> bool:
        """Make exactly the wanted nodes carry our label; returns whether all writes worked."""
        worked = True
        for change in reconcile.label_changes(wanted, state.nodes()):
            worked &= await self._write("label", self._cluster.label_node(*change))
        return worked

    async def statuses(self, desired: Mapping[Key, reconcile.Status], registry: Registry, state: ClusterState) -> None:
        """Write the statuses that changed, and the events that the changes are worth."""
        for key in reconcile.status_writes(desired, registry.written):
            if key not in registry.entries:
                continue  # deleted while others were written
            uid, old, new = registry.entries[key].uid, registry.written.get(key), desired[key]
            if await self._write("status", self._cluster.write_status(*key, uid, new)):
                registry.written[key] = new
                for event in reconcile.transitions(new, old) if _alive(state, key[0]) else ():
                    about = {"namespace": key[0], "name": key[1], "uid": uid}
                    await self._write("event", self._cluster.post_event(about, *event))

    async def reports(self, reports: Mapping[str, Document], state: ClusterState) -> None:
        """Write the reports that say something new, never into a namespace that is going away."""
        self._reports = {namespace: old for namespace, old in self._reports.items() if namespace in reports}
        for namespace, report in reports.items():
            if not _alive(state, namespace) or not differs(report, self._reports.get(namespace)):
                continue
            if await self._write("report", self._cluster.write_report(namespace, report)):
                self._reports[namespace] = report

    async def _write(self, kind: str, call: Awaitable[None]) -> bool:
        try:
            await call
        except ClusterError as error:
            self.counts[kind, "error"] += 1
            log.warning("%s", error)
            return False
        self.counts[kind, "ok"] += 1
        return True


def _alive(state: ClusterState, namespace: str) -> bool:
    """Return whether a namespace still takes new objects."""
    known = state.namespace(namespace)
    return known is not None and not known.terminating
