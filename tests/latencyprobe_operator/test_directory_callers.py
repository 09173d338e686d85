"""Which agents may call."""

import asyncio
from typing import Any

import pytest

from latencyprobe_operator.cluster.calls import Reviewed
from latencyprobe_operator.directory.auth import NODE_CLAIM, Authenticator, FakeReviewer
from latencyprobe_operator.directory.callers import AT_ONCE, Callers
from latencyprobe_operator.directory.limits import Refused
from tests.latencyprobe_operator.directory_world import AGENT


class World:
    """Callers of a cluster that must measure on n1, with a token of each of two nodes' agents."""

    def __init__(self, make: Any) -> None:
        self.planned = make.planned(make.pod("cart-1"))
        self.reviewer = FakeReviewer({f"token-{n}": Reviewed(AGENT, extra={NODE_CLAIM: [n]}) for n in ("n1", "n2")})
        auth = Authenticator(self.reviewer, "agents", "agent", lambda *_: "")
        agents_at = {"10.0.0.1": {"n1"}, "10.0.0.2": {"n2"}}
        self.callers = Callers(
            auth, self.planned.planner, self.planned.agents, lambda source: agents_at.get(source, frozenset())
        )

    def status(self, token: str, node: str = "", source: str = "10.0.0.1") -> tuple[str, int]:
        """The caller's node, or the status of the refusal."""
        try:
            return self.run(token, node, source), 200
        except Refused as refused:
            return "", refused.status

    def run(self, token: str, node: str, source: str) -> str:
        async def call() -> str:
            return (await self.callers.agent(token, node, source)).node

        return asyncio.run(call())


@pytest.fixture
def world(make: Any) -> World:
    return World(make)


def test_agent_is_let_in_for_its_own_node_only(world: World) -> None:
    assert [world.status("token-n1", node) for node in ("", "n1", "n2")] == [("n1", 200), ("n1", 200), ("", 403)]


def test_refused_agent_of_an_expected_node_is_remembered_for_its_status(world: World) -> None:
    assert world.status("token-n2", "n1") == ("", 403)
    assert "n2" in world.planned.agents.refusals["n1"]


@pytest.mark.parametrize("token", ["", "token-n2", "guessed"])
@pytest.mark.parametrize("source", ["", "10.0.0.2", "192.0.2.9"])
def test_who_calls_from_elsewhere_gives_a_node_no_reason(world: World, token: str, source: str) -> None:
    assert world.status(token, "n1", source)[1] in (401, 403)
    assert world.planned.agents.refusals == {}


@pytest.mark.parametrize(("token", "node"), [("token-n1", "n3"), ("token-n1", "")])
def test_refusal_for_a_node_that_need_not_measure_is_not_kept(world: World, token: str, node: str) -> None:
    world.status(token, node)
    assert world.planned.agents.refusals == {}


def test_api_server_that_is_away_is_no_fault_of_the_agent(world: World) -> None:
    world.reviewer.away = True
    assert world.status("token-n1", "n1") == ("", 503)
    assert world.planned.agents.refusals == {}


def test_agent_that_asks_too_often_is_slowed_down_and_no_other(world: World) -> None:
    assert {world.status("token-n1") for _ in range(AT_ONCE + 50)} == {("n1", 200), ("", 429)}
    assert world.status("token-n2") == ("n2", 200)
