import threading
from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import AgentStatus, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import SliRow
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.loop.agent import Agent, Audience
from latencyprobe_agent.loop.control import Control, LocalControl
from tests.support.waiting import wait_until

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (), 0, POLICY, ports=(80,))
WEB = Target("shop/p/web", "shop", "p", "uid", "web", Perspective.SERVER, (), 0, POLICY, ports=(81,))
DEADLINE_S = 30
PLAN = NodePlan("n1", 4, "", (CART, WEB), (), host=True)
NOBODY = Audience(lambda start: nullcontext(()))


class Operator(Control):
    """A patient control that remembers what is reported."""

    patient = True
    peers: Peers | None = None
    remote_join: RemoteJoinPost | None = None

    def __init__(self) -> None:
        self.reports: list[AgentStatus] = []
        self.stopped = False

    def start(self) -> None:
        pass

    def plan(self) -> NodePlan | None:
        return PLAN

    def plan_age_s(self) -> float:
        return 0.0

    def take(self, rows: Sequence[SliRow]) -> None:
        pass

    def report(self, status: AgentStatus) -> None:
        self.reports.append(status)

    def stop(self, timeout_s: float) -> None:
        self.stopped = True


def test_where_nothing_can_be_measured_the_agent_stays_says_why_and_tries_again(tmp_path: Path) -> None:
    operator = Operator()
    agent = Agent(Config(bpf_dir=tmp_path, instance="i", retry_load_s=0.05, tick_s=0.01), operator, NOBODY)
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_until(lambda: len(operator.reports) >= 3)
    assert agent.health.alive
    assert not agent.health.measuring
    agent.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert operator.stopped
    status = operator.reports[0]
    assert status.reason in ("ObjectUnreadable", "MissingCapability")
    assert status.error
    assert (status.instance, status.generation, status.targets) == ("i", 0, ())


def test_standalone_it_does_not_wait(tmp_path: Path) -> None:
    control = LocalControl(PLAN, lambda rows: None)
    with pytest.raises(Unsupported):
        Agent(Config(bpf_dir=tmp_path), control, NOBODY).run()
