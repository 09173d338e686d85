"""Which agents know whose an address is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from latencyprobe.plan_stream import PlanLine
from latencyprobe_agent.directory.client import Directory as AgentsClient
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.plans import PlanFollower
from latencyprobe_operator.directory import answers as answers_
from latencyprobe_operator.directory import holders as holders_
from latencyprobe_operator.directory.holders import VALID_S, Holders
from tests.latencyprobe_operator.directory_world import Play, World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_each_node_is_named_once_with_its_addresses() -> None:
    holders = Holders(Clock())
    holders.answered("n1", ("a", "b"))
    holders.answered("n2", ("b",))
    assert holders.take(("a", "b", "c")) == {"n1": {"a", "b"}, "n2": {"b"}}
    assert holders.take(("a", "b")) == {}


@pytest.mark.parametrize("step_s", [0.1, 1.0, VALID_S / 2, VALID_S - 0.01, VALID_S + 0.01])
def test_whoever_may_still_know_is_remembered_whenever_that_was(step_s: float) -> None:
    """Whatever happens between: each look may end a span."""
    clock = Clock()
    holders = Holders(clock)
    for i in range(300):
        holders.answered("n1", (f"a{i}",))
        answered_s = clock.now_s
        while clock.now_s + step_s < answered_s + VALID_S:
            clock.now_s += step_s
            holders.take(())
        clock.now_s = answered_s + VALID_S * 0.999
        assert holders.take((f"a{i}",)) == {"n1": {f"a{i}"}}


def test_what_is_not_valid_any_more_is_forgotten() -> None:
    clock = Clock()
    holders = Holders(clock)
    holders.answered("n1", ("a",))
    clock.now_s = VALID_S
    holders.answered("n1", ("b",))
    clock.now_s = 2 * VALID_S
    assert holders.take(("a", "b")) == {"n1": {"b"}}
    holders.answered("n1", ("c",))
    clock.now_s = 5 * VALID_S
    assert holders.take(("c",)) == {}


def test_addresses_that_nobody_has_take_no_more_than_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders_, "ROOM", 2)
    holders = Holders(Clock())
    holders.answered("n1", (), ("x", "y", "z"))
    holders.answered("n2", ("a",), ("x",))
    assert holders.take(("x", "y", "z", "a")) == {"n1": {"x", "y"}, "n2": {"x", "a"}}


class Recorded(AgentsClient):
    """An agent's client, and the lines of its streams."""

    lines: ClassVar[list[PlanLine]] = []

    def plans(self, *, changes: bool = True) -> Iterator[PlanLine]:
        for line in super().plans(changes=changes):
            self.lines.append(line)
            yield line


def test_agent_follows_changes_of_its_plan_and_forgets_addresses_that_change_hands(
    play: Play, make: Any, tls_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long answers are valid, and whatever its plan's generation."""
    monkeypatch.setattr(answers_, "VALID_S", 3600.0)

    async def scene(it: World) -> None:
        (tmp_path / "token").write_text("token-n2")
        agent = Recorded(it.url, "n2", token_file=tmp_path / "token", ca_file=tls_dir / "tls.crt")
        peers = Peers(agent.identities)
        follower = PlanFollower(agent, "n2", tmp_path, on_forget=peers.forget)
        old = it.state.pod(("shop", "cart-1"))
        (address,) = old.addresses

        def owner() -> str:
            return "".join(identity.pod for identity in peers.resolve([address]).values())

        try:
            follower.start()
            await make.until(lambda: follower.latest == it.planner.plan_of("n2"))
            peers.start()
            await make.until(lambda: owner() == "cart-1")
            it.state.drop("pods", ("shop", "cart-1"))
            it.state.put("pods", make.pod("cart-2", addresses=(address, "10.0.0.9")))
            changes = it.state.take_changes()
            it.directory.streams.forget(changes.addresses)
            await make.until(lambda: owner() == "cart-2")
            for node in it.planner.update({("shop", "checkout"): make.probe()}, it.state, changes):
                it.directory.streams.publish({node})
            await make.until(lambda: follower.latest == it.planner.plan_of("n2"))
        finally:
            peers.stop()
            it.directory.close()
            await make.until(lambda: follower.problem)
            follower.stop()
        assert [line.plan is not None for line in agent.lines if line.plan or line.change] == [True, False]
        assert {address} == {one for line in agent.lines for one in line.forget}

    play(scene)
