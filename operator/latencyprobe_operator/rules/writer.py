"""Writes PrometheusRules that differ, and deletes ours that no objective asks for. Nobody else's is touched.

Nothing is remembered as written that was not.
"""

import logging
from collections.abc import Mapping
from typing import Any, NamedTuple

from latencyprobe.slo.objective import Objective, objectives
from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster import owners
from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.cluster.writes import Writes, alive
from latencyprobe_operator.rules import documents
from latencyprobe_operator.rules.documents import Metadata

log = logging.getLogger(__name__)


class Problem(NamedTuple):
    """Why rules are not written, as a condition says it."""

    reason: str
    message: str


class _Written(NamedTuple):
    """What was written for a LatencyProbe: of which objectives, and the resource versions by name."""

    objectives: tuple[Objective, ...]
    versions: dict[str, str]


class RuleWriter:
    """The PrometheusRules of all LatencyProbes. `labels`: the administrator's; `problems`: why a LatencyProbe's are not
    as they should be."""

    def __init__(self, cluster: Cluster, writes: Writes, state: ClusterState, labels: Mapping[str, str]) -> None:
        self.problems: dict[Key, Problem] = {}
        self._cluster = cluster
        self._writes = writes
        self._state = state
        self._labels = labels
        self._written: dict[Key, _Written] = {}

    async def write(self, probes: Mapping[Key, LatencyProbe], there: Mapping[Key, Mapping[str, Metadata]]) -> None:
        """Write what differs from `there`, the metadata of our PrometheusRules by name; never into a namespace that is
        going away. Those of no known LatencyProbe are the garbage collector's."""
        self._written = {key: old for key, old in self._written.items() if key in probes}
        self.problems = {key: old for key, old in self.problems.items() if key in probes}

        async def one(key: Key) -> None:
            found, judged = there.get(key, {}), objectives(probes[key])
            versions = {name: metadata["resourceVersion"] for name, metadata in found.items()}
            if alive(self._state, key[0]) and self._written.get(key) != _Written(judged, versions):
                await self._mend(key, probes[key], judged, found)

        await self._writes.each(probes, one)

    async def _mend(
        self, key: Key, probe: LatencyProbe, judged: tuple[Objective, ...], found: Mapping[str, Metadata]
    ) -> None:
        """Write and delete what makes a LatencyProbe's PrometheusRules those that it should have."""
        wanted = {rule["metadata"]["name"]: rule for rule in documents.wanted(probe, self._labels)}
        before, versions = self.problems.pop(key, None), dict[str, str]()
        for name, rule in wanted.items():
            known = found.get(name) or await self._cluster.rule(key[0], name)
            if known is not None and owners.owner(known) != probe.name:
                self.problems[key] = _taken(name)
                if before != self.problems[key]:
                    log.warning("%s/%s: %s", *key, self.problems[key].message)
                continue
            if known is not None:
                rule["metadata"]["uid"] = known["uid"]
            await self._writes.attempt("rule", self._apply(key, rule, versions))
        gone = [
            await self._writes.attempt(
                "rule", self._cluster.delete_rule(key[0], name, old["uid"], old["resourceVersion"])
            )
            for name, old in found.items()
            if name not in wanted
        ]
        if versions.keys() == wanted.keys() and all(gone):
            self._written[key] = _Written(judged, versions)
        else:
            self._written.pop(key, None)

    async def _apply(self, key: Key, rule: Mapping[str, Any], versions: dict[str, str]) -> None:
        """Write one, and note its resource version."""
        try:
            versions[rule["metadata"]["name"]] = await self._cluster.write_rule(rule)
        except ApiError as error:
            self.problems[key] = Problem("WriteRefused", str(error))
            raise


def _taken(name: str) -> Problem:
    what = f"there is a PrometheusRule {name} that the operator has not written for this LatencyProbe"
    return Problem("NameTaken", f"{what}, and it stays as it is: delete it, or give the LatencyProbe another name")
