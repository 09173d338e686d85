"""What a container nests is the container's: one series, whose counts never fall, whatever begins and ends in it."""

import numpy as np
import pytest

from latencyprobe.plan import Container, NodePlan, Pod, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.config import Config
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.resources import PodResources
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.counting import Counting
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import AgentStats, InForce, empty
from latencyprobe_agent.telemetry.metrics import Metrics
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.selfmetrics import SelfMetrics
from latencyprobe_agent.vocabulary.now import Now
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, ExchangeClass, Outcome, Role
from tests.support.otlp import metrics

POLICY = SpanPolicy(10**9, 0.0, 100)
ECHO = Target("d/p/echo", "d", "p", "", "echo", Perspective.SERVER, (), 0, POLICY, ports=(80,))
KIND, OTHER = Container("kind", "ab" * 32), Container("other", "cd" * 32)
POD = Pod("uid-1", "d", "kind-0", (), (KIND, OTHER), {"service.name": "kind", "k8s.pod.uid": "uid-1"})
PLAN = NodePlan("n1", 1, "", (ECHO,), (), pods=(POD,))
RULES = Rules(sets={1: TargetSet((ECHO.id,), (), 0, POLICY, "d/p")})
OUTERMOST, NESTED, BESIDE = 7, (71, 72, 73), 8


class Node:
    """A container that nests others, one beside it, and what is exported of them; `delta`: differences."""

    def __init__(self, *, delta: bool = False) -> None:
        self.outbox, self.delta = FakeOutbox(), delta
        self.kernel = FakePrograms()
        self._counting = Counting(self.kernel, 15.0, Now(0, 0))  # type: ignore[arg-type]  # a fake
        config = Config(metric_interval_s=1.0)
        own = SelfMetrics({"metrics": self.outbox}, None, config, standalone=False)
        self._listener = Metrics(self.outbox, own, config, None, start=Now(0, 0), delta=delta)
        self._resources: PodResources | None = None
        self._at_s = 0
        self.exist(OUTERMOST, BESIDE, *NESTED)

    def exist(self, *cgroups: int) -> None:
        """These are left of its cgroups."""
        path = {OUTERMOST: KIND, BESIDE: OTHER}
        found = {one: Cgroup("uid-1", path.get(one, KIND).id, f"/{path.get(one, KIND).name}") for one in cgroups}
        self._resources = PodResources(PLAN, found, self._resources)

    def count(self, owner: int, n: int) -> None:
        key = np.array((owner, 1, Role.SERVER), COUNTS_KEY).tobytes()
        row = self.kernel.rows.setdefault(key, np.zeros(1, COUNTS))
        row["outcomes"][:, Outcome.OK] += np.uint64(n)
        row["classes"][:, ExchangeClass.PINGPONG] += np.uint64(n)
        row["histogram"][:, 5] += np.uint64(n)

    def export(self, after_s: int = 1) -> list[tuple[str, int]]:
        """Return (container's name, its exchanges) of each series, some time later."""
        assert self._resources
        self._at_s += after_s
        now, in_force = Now(self._at_s * 10**9, 10**18), InForce(PLAN, RULES, self._resources)
        counts = self._counting.read(self._resources, now)
        self._listener.take(empty(now, in_force)._replace(counts=counts, stats=AgentStats()))
        return [
            (resource["k8s.container.name"], point.as_int)
            for resource, metric in metrics([self.outbox.bodies[-1]])
            if metric.name == "latencyprobe.exchanges"
            for point in metric.sum.data_points
        ]


@pytest.fixture
def node() -> Node:
    return Node()


def test_cgroups_that_a_container_nests_are_one_series_with_it(node: Node) -> None:
    for owner, n in zip((OUTERMOST, *NESTED, BESIDE), (1, 10, 100, 1000, 5), strict=True):
        node.count(owner, n)
    assert [("kind", 1111), ("other", 5)] == sorted(node.export())


@pytest.mark.parametrize("delta", [False, True])
def test_a_container_s_counter_does_not_fall_when_what_it_nests_ends(delta: bool) -> None:
    node = Node(delta=delta)
    node.count(NESTED[0], 10)
    node.count(NESTED[1], 100)
    told = [node.export()]
    node.exist(OUTERMOST, BESIDE, NESTED[1])
    told += [node.export(61), node.export(61)]
    assert 1 == len(node.kernel.rows), "the kernel's table has let it go"
    node.count(NESTED[1], 1)
    told += [node.export()]
    node.exist(OUTERMOST, BESIDE)
    told += [node.export(61), node.export(61), node.export(61)]
    assert not node.kernel.rows
    node.exist(OUTERMOST, BESIDE, NESTED[2])
    node.count(NESTED[2], 5)
    told += [node.export()]
    expected = [110, 0, 0, 1, 0, 0, 0, 5] if delta else [110, 110, 110, 111, 111, 111, 111, 116]
    assert [[("kind", n)] for n in expected] == told


def test_a_container_s_series_ends_with_it_and_what_it_counted_stays_in_the_node_s_sum(node: Node) -> None:
    node.count(NESTED[0], 10)
    node.count(OUTERMOST, 1)
    node.count(BESIDE, 5)
    node.export()
    node.exist(BESIDE)
    told = [node.export(61), node.export(61), node.export(61)]
    assert [("other", 5)] == told[-1]
    counts = node._counting.read(PodResources(PLAN, {}), Now(300 * 10**9, 10**18))
    assert 16 == counts.counts.values["outcomes"].sum()
    assert {BESIDE} == set(counts.living.keys["owner"].tolist())
