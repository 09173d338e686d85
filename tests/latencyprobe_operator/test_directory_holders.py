"""Which agents know whose an address is."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest

from latencyprobe.plan_stream import PlanLine
from latencyprobe_agent.directory.client import Directory as AgentsClient
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.plans import PlanFollower
from latencyprobe_operator.directory import holders as holders_
from latencyprobe_operator.directory import pacing as pacing_
from latencyprobe_operator.directory.holders import VALID_S, Holders
from tests.latencyprobe_operator.directory_world import Play, World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def valid_s() -> float:
    return VALID_S


def test_each_node_is_named_once_with_its_addresses() -> None:
    holders = Holders(valid_s, Clock())
    holders.answered("n1", ("a", "b"))
    holders.answered("n2", ("b",))
    assert holders.take(("a", "b", "c")) == {"n1": {"a", "b"}, "n2": {"b"}}
    assert holders.take(("a", "b")) == {}


@pytest.mark.parametrize("step_s", [0.1, 1.0, VALID_S / 2, VALID_S - 0.01, VALID_S + 0.01])
def test_whoever_may_still_know_is_remembered_whenever_that_was(step_s: float) -> None:
    """Whatever happens between: each look may end a span."""
    clock = Clock()
    holders = Holders(valid_s, clock)
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
    holders = Holders(valid_s, clock)
    holders.answered("n1", ("a",))
    clock.now_s = VALID_S
    holders.answered("n1", ("b",))
    clock.now_s = 2 * VALID_S
    assert holders.take(("a", "b")) == {"n1": {"b"}}
    holders.answered("n1", ("c",))
    clock.now_s = 5 * VALID_S
    assert holders.take(("c",)) == {}


@pytest.mark.parametrize("valids_s", [(60.0, 15.0), (15.0, 60.0), (60.0, 15.0, 15.0), (15.0, 60.0, 20.0)])
def test_whoever_may_still_know_is_remembered_while_answers_come_to_last_shorter_and_longer(
    valids_s: tuple[float, ...],
) -> None:
    """As a cluster shrinks and grows: an answer is valid for as long as it was given."""
    for step_s in (0.5, 7.0, 14.0):
        clock, now_valid_s, known = Clock(), [0.0], {}
        holders = Holders(lambda now_valid_s=now_valid_s: now_valid_s[0], clock)
        for i in range(400):
            clock.now_s += step_s
            now_valid_s[0] = valids_s[i // 50 % len(valids_s)]
            holders.answered("n1", (f"a{i}",))
            known[f"a{i}"] = clock.now_s + now_valid_s[0]
            valid = {address for address, until_s in known.items() if clock.now_s < until_s}
            assert valid <= holders._now.keys() | holders._before.keys()
            holders.take(())
        clock.now_s += 200.0
        holders.take(())
        assert not holders._now
        assert not holders._before, "nothing is kept for ever"


def test_addresses_that_nobody_has_take_no_more_than_their_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holders_, "ROOM", 2)
    holders = Holders(valid_s, Clock())
    assert not holders.answered("n1", (), ("x", "y", "z"))
    assert holders.answered("n2", ("a",), ("x",))
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
    monkeypatch.setattr(pacing_, "LONGEST_S", 3600.0)
    monkeypatch.setattr(pacing_, "STATUS_S", 3600.0)

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
