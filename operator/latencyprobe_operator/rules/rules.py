"""The PrometheusRules of all LatencyProbes, brought up to date when one was edited and once a minute."""

import logging
from collections.abc import Callable, Mapping

from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.calls import Cluster
from latencyprobe_operator.cluster.loops import Trigger
from latencyprobe_operator.cluster.objects import Key
from latencyprobe_operator.rules import documents
from latencyprobe_operator.rules.writer import Problem, RuleWriter

log = logging.getLogger(__name__)

LOOK_S = 60.0  # what others have done to rules is noticed within it, and that there is such a kind now
SETTLE_S = 3.0  # of a burst of edits
UNKNOWN = Problem(
    "PrometheusRuleUnknown",
    "there is no kind PrometheusRule (monitoring.coreos.com/v1): install the Prometheus Operator, or set "
    "slo.prometheusRules.enabled=false in the chart",
)


class Rules:
    """A loop. `probes`: all valid LatencyProbes; `edited` makes a turn due; `told` is set when something else is to be
    said about rules."""

    name = "rules"

    def __init__(
        self,
        cluster: Cluster,
        writer: RuleWriter,
        *,
        probes: Callable[[], Mapping[Key, LatencyProbe]],
        edited: Trigger,
        told: Trigger,
    ) -> None:
        self._cluster = cluster
        self._writer = writer
        self._probes = probes
        self._edited = edited
        self._told = told
        self._of_all: Problem | None = None

    def problem(self, key: Key) -> Problem | None:
        """Return why a LatencyProbe's rules are not as they should be; None while they are, as far as we know."""
        return self._of_all or self._writer.problems.get(key)

    async def due(self, *, failed: bool) -> None:
        """Wait for an edit, or for as long as nobody looks at what others do."""
        await self._edited.wait(LOOK_S, settle_s=SETTLE_S)

    async def turn(self) -> None:
        """Look at what is there, and write what differs. Where that cannot be, every LatencyProbe says why."""
        before = self._of_all, self._writer.problems
        try:
            there = documents.by_probe(await self._cluster.rules())
        except ApiError as error:
            if error.status not in (403, 404):
                raise
            self._of_all = UNKNOWN if error.status == 404 else _forbidden(error)
            if self._of_all != before[0]:
                log.warning("no rules are written: %s", self._of_all.message)
        else:
            if self._of_all is not None:
                log.info("rules are written from now on")
            self._of_all = None
            await self._writer.write(self._probes(), there)
        if before != (self._of_all, self._writer.problems):
            self._told.set()


def _forbidden(error: ApiError) -> Problem:
    return Problem("ListRefused", f"{error}; the chart gives this right with slo.prometheusRules.enabled=true")
