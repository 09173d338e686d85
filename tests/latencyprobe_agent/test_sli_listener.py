"""sli/listener.py: turns become rows, of the time in which there was a plan."""

import numpy as np
from msgspec.structs import replace

from latencyprobe.plan import TargetPod
from latencyprobe.sli import SliRow
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import NO_COUNTS, Snapshot
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.measure.turn import InForce, Turn, empty
from latencyprobe_agent.sli.listener import SliRows
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY
from tests.latencyprobe_agent.slicer import NO_LOSS, UNIX_NS, objective
from tests.support.plans import plan_of, target

S = 10**9
PLAN = replace(plan_of(target(pods=(TargetPod("a", (80,)),))), objectives=(objective(),))
IN_FORCE = InForce(PLAN, compile_rules(PLAN, {"a": [1]}), FakeResources())


def counted(boot_s: int) -> Turn:
    """A turn with counts in which nothing happened, so long after boot."""
    counts = Snapshot(NO_COUNTS, NO_COUNTS, np.zeros(0, COUNTS_KEY), {}, NO_LOSS)
    return empty(Now(boot_s * S, UNIX_NS + boot_s * S), IN_FORCE)._replace(counts=counts)


def test_time_is_measured_from_the_first_plan_on() -> None:
    """However long the agent has waited for it."""
    delivered: list[SliRow] = []
    rows = SliRows(delivered.extend, 5.0, None)
    for boot_s in (600, 601, 607):
        rows.take(counted(boot_s))
    rows.close()
    assert 7_000 == sum(row.coverage.measured_ms for row in delivered)
