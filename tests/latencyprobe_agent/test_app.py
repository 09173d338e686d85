import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import AgentStatus, NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe.sli import SliRow
from latencyprobe_agent.app import Agent, Export, target_statuses
from latencyprobe_agent.config import Config
from latencyprobe_agent.control import Control, LocalControl
from latencyprobe_agent.identity.peers import Peers
from latencyprobe_agent.identity.recall import RecallPost
from latencyprobe_agent.kernel.records import COUNTS_KEY, ExchangeClass, Role
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measuring import Moment

POLICY = SpanPolicy(1, 1.0, 100)
CART = Target("shop/p/cart", "shop", "p", "uid", "cart", Perspective.SERVER, (), 0, POLICY, ports=(80,))
WEB = Target("shop/p/web", "shop", "p", "uid", "web", Perspective.SERVER, (), 0, POLICY, ports=(81,))
DEADLINE_S = 30
PLAN = NodePlan("n1", 4, "", (CART, WEB), (), host=True)


class Operator(Control):
    """A patient control that remembers what it is told."""

    patient = True
    peers: Peers | None = None
    recall: RecallPost | None = None

    def __init__(self) -> None:
        self.told: list[AgentStatus] = []
        self.stopped = False

    def start(self) -> None:
        pass

    def plan(self) -> NodePlan | None:
        return PLAN

    def plan_age_s(self) -> float:
        return 0.0

    def take(self, rows: Sequence[SliRow]) -> None:
        pass

    def tell(self, status: AgentStatus) -> None:
        self.told.append(status)

    def stop(self, timeout_s: float) -> None:
        self.stopped = True


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_where_nothing_can_be_measured_the_agent_stays_says_why_and_tries_again(tmp_path: Path) -> None:
    operator = Operator()
    agent = Agent(Config(bpf_dir=tmp_path, instance="i", retry_load_s=0.05, tick_s=0.01), operator, Export())
    thread = threading.Thread(target=agent.run)
    thread.start()
    wait_for(lambda: len(operator.told) >= 3)
    assert agent.health.alive
    assert not agent.health.measuring
    agent.stop()
    thread.join(DEADLINE_S)
    assert not thread.is_alive()
    assert operator.stopped
    status = operator.told[0]
    assert status.reason in ("ObjectUnreadable", "MissingCapability")
    assert status.error
    assert (status.instance, status.generation, status.targets) == ("i", 0, ())


def test_standalone_it_does_not_wait(tmp_path: Path) -> None:
    control = LocalControl(PLAN, lambda rows: None)
    with pytest.raises(Unsupported):
        Agent(Config(bpf_dir=tmp_path), control, Export()).run()


def test_a_target_s_status_adds_up_its_sets_and_roles() -> None:
    keys, totals = np.zeros(3, COUNTS_KEY), np.zeros(3, COUNTS)
    keys["target_set"] = 1, 1, 2
    keys["role"] = Role.SERVER, Role.CLIENT, Role.SERVER
    totals["classes"][:, ExchangeClass.PINGPONG] = 10, 20, 40
    totals["classes"][2, ExchangeClass.PIPELINED] = 3
    totals["lost_records"] = 0, 0, 7
    sets = {1: TargetSet((CART.id,), (), 0, POLICY, "shop/p"), 2: TargetSet((CART.id, WEB.id), (), 0, POLICY, "shop/p")}
    cart, web = target_statuses(Moment(PLAN, Rules(sets=sets), keys, totals, len(keys), {}, 0, 0))
    assert (cart.id, cart.seen, cart.classes) == (CART.id, 73, {"pingpong": 70, "pipelined": 3})
    assert (web.seen, web.classes, web.lost) == (43, {"pingpong": 40, "pipelined": 3}, {"ring_full": 7})
