"""Plan streams: the plan at once and after changes, heartbeats between, one stream per node."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import pytest

from latencyprobe.plan import Ask, Identity, RemoteJoinMessage
from latencyprobe.plan_stream import PlanLine, applied
from latencyprobe_operator.directory import streams as streams_
from latencyprobe_operator.directory.auth import Caller
from latencyprobe_operator.directory.limits import Refused
from latencyprobe_operator.directory.pacing import Pacing
from latencyprobe_operator.directory.streams import PlanStreams
from latencyprobe_operator.plan.targets import finished


class Reader:
    """An agent that reads its stream, or does not."""

    def __init__(self, streams: PlanStreams, node: str, valid_s: float = 60.0, *, changes: bool = False) -> None:
        self.lines: list[PlanLine] = []
        self.reads = self.reads_long = True
        self.begun = 0  # long lines
        caller = Caller(node, time.monotonic() + valid_s)
        self.task = asyncio.create_task(streams.follow(caller, self.write, changes=changes))

    async def write(self, data: bytes) -> None:
        long = len(data) > streams_.LONG
        self.begun += long
        while not self.reads or (long and not self.reads_long):  # noqa: ASYNC110 - tests set either at will
            await asyncio.sleep(0.01)
        self.lines.append(msgspec.json.decode(data, type=PlanLine))


# pods that no plan tells of each other
ALONE = [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"], "peers": True}]


class World:
    """Open streams of the plans of one LatencyProbe with a pod on n1 and one on n2."""

    def __init__(self, make: Any) -> None:
        self.make = make
        pods = make.pod("cart-1"), make.pod("cart-2", node="n2")
        self.planned = make.planned(*pods, clients={"scope": "None"}, targets=ALONE)
        self.streams = PlanStreams(self.planned.planner, lambda _: {"n2"})
        self.streams.open()

    async def reader(self, node: str, **fields: Any) -> Reader:
        reader = Reader(self.streams, node, **fields)
        await self.make.until(lambda: reader.lines)
        return reader


Play = Callable[[Callable[[World], Awaitable[None]]], None]


@pytest.fixture
def play(make: Any) -> Play:
    def run(scene: Callable[[World], Awaitable[None]]) -> None:
        async def whole() -> None:
            world = World(make)
            await scene(world)
            world.streams.close()

        asyncio.run(whole())

    return run


async def ended(reader: Reader) -> bool:
    async with asyncio.timeout(10):
        await reader.task
    return True


def test_only_the_stream_whose_plan_changed_gets_it_again(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        one, other = [await world.reader(node) for node in ("n1", "n2")]
        world.planned.state.put("pods", make.pod("cart-3", node="n1"))
        world.streams.publish(world.planned.plan(world.planned.probe))
        await make.until(lambda: len(one.lines) == 2)
        assert one.lines[1].plan == world.planned.planner.plan_of("n1")
        assert len(other.lines) == 1

    play(scene)


def test_agent_that_takes_changes_gets_what_changed(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        reader = await world.reader("n1", changes=True)
        first = world.planned.planner.plan_of("n1")
        world.planned.state.put("pods", make.pod("cart-3", node="n1"))
        world.streams.publish(world.planned.plan(world.planned.probe))
        await make.until(lambda: len(reader.lines) == 2)
        (_, line), second = reader.lines, world.planned.planner.plan_of("n1")
        assert line.plan is None
        assert line.change is not None
        assert [pod.name for pod in line.change.pods] == ["cart-3"]
        assert applied(first, line.change) == second

    play(scene)


@pytest.mark.parametrize("changes", [False, True], ids=["whole plans", "changes"])
def test_plan_that_went_and_came_back_unseen_is_told_by_its_number(play: Play, make: Any, *, changes: bool) -> None:
    async def scene(world: World) -> None:
        reader = await world.reader("n1", changes=changes)
        first = world.planned.planner.plan_of("n1")
        for probes in ((), (world.planned.probe,)):  # the stream has no turn between
            world.streams.publish(world.planned.plan(*probes))
        last = world.planned.planner.plan_of("n1")
        assert (last.digest, last.generation > first.generation) == (first.digest, True)
        await make.until(lambda: len(reader.lines) == 2)
        line = reader.lines[1]
        assert last == (applied(first, line.change) if line.change is not None else line.plan)

    play(scene)


def test_new_pairing_key_comes_with_a_whole_plan(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        reader = await world.reader("n1", changes=True)
        world.planned.planner.use_pair_key(b"n" * 32)
        world.streams.publish(world.planned.plan(world.planned.probe))
        await make.until(lambda: len(reader.lines) == 2)
        assert reader.lines[1].plan == world.planned.planner.plan_of("n1")

    play(scene)


def test_quiet_stream_has_heartbeats_without_a_plan(play: Play, make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_, "HEARTBEAT_S", 0.02)

    async def scene(world: World) -> None:
        reader = await world.reader("n1")
        await make.until(lambda: len(reader.lines) >= 3)
        assert [line.plan is None for line in reader.lines[:3]] == [False, True, True]

    play(scene)


def test_newer_stream_of_a_node_ends_the_older_one(play: Play) -> None:
    async def scene(world: World) -> None:
        older = await world.reader("n1")
        newer = await world.reader("n1")
        assert await ended(older)
        assert list(world.streams.of) == ["n1"]
        assert not newer.task.done()

    play(scene)


def test_stream_ends_with_its_token(play: Play) -> None:
    async def scene(world: World) -> None:
        assert await ended(await world.reader("n1", valid_s=0.05))
        assert world.streams.of == {}

    play(scene)


def test_agents_know_when_to_come_back_to_another_operator_and_that_the_end_of_a_token_is_theirs_alone(
    play: Play,
) -> None:
    async def scene(world: World) -> None:
        world.streams.pacing = Pacing(lambda: 3_000)
        reader = await world.reader("n1", valid_s=0.05)
        assert await ended(reader)
        assert (reader.lines[0].return_s, reader.lines[0].status_s) == (30.0, 50.0)
        assert reader.lines[-1] == PlanLine()
        other = await world.reader("n2")
        world.streams.close()
        assert await ended(other)
        assert {(line.return_s, line.status_s) for line in other.lines} == {(30.0, 50.0)}

    play(scene)


def test_agent_that_does_not_read_loses_its_stream(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_, "WRITE_TIMEOUT_S", 0.01)

    async def scene(world: World) -> None:
        reader = await world.reader("n1")
        reader.reads = False
        world.streams.publish(frozenset({"n1"}))
        with pytest.raises(TimeoutError):
            await ended(reader)
        assert world.streams.of == {}

    play(scene)


def test_of_long_lines_few_are_in_memory_at_once_and_who_waits_hears_that_all_is_well(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams_, "HEARTBEAT_S", 0.05)
    monkeypatch.setattr(streams_, "LONG", 1 << 10)

    async def scene() -> None:
        nodes = [f"n{number}" for number in range(streams_.LONG_AT_ONCE + 4)]
        pods = [make.pod(f"cart-{number}", node=node) for number, node in enumerate(nodes)]
        streams = PlanStreams(make.planned(*pods).planner, lambda _: set())
        streams.open()
        readers = [Reader(streams, node) for node in nodes]
        for reader in readers:
            reader.reads_long = False
        first, waiting = readers[: streams_.LONG_AT_ONCE], readers[streams_.LONG_AT_ONCE :]
        await make.until(lambda: all(len(reader.lines) > 2 for reader in waiting))
        assert not any(line.plan for reader in waiting for line in reader.lines), "they wait for their turn"
        assert not any(reader.lines for reader in first)
        for reader in first[:2]:
            reader.task.cancel()  # the connection has ended
        await make.until(lambda: sum(reader.begun for reader in readers) == streams_.LONG_AT_ONCE + 2)
        for reader in waiting:
            reader.reads_long = True
        for reader in first:
            reader.task.cancel()
        await make.until(lambda: all(any(line.plan for line in reader.lines) for reader in waiting))
        streams.close()

    asyncio.run(scene())


def test_questions_for_a_node_come_with_its_stream(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        await world.reader("n1")
        asked = await world.reader("n2")
        finished(world.streams.switchboard.ask("n1", (Ask(("ab" * 16,), "10.96.0.7"),)))
        await make.until(lambda: len(asked.lines) == 2)
        assert asked.lines[1] == PlanLine(remote_join=RemoteJoinMessage((Ask(("ab" * 16,)),)))

    play(scene)


def test_only_who_knows_an_address_is_told_to_forget_it_once(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        one, other = [await world.reader(node) for node in ("n1", "n2")]
        assert world.streams.answered("n1", (Identity("10.0.0.1", pod="cart-1"), Identity("192.0.2.9")))
        world.streams.forget({"10.0.0.1", "10.0.0.2"})
        world.streams.forget({"10.0.0.1", "192.0.2.9"})
        await make.until(lambda: len(one.lines) == 2)
        assert one.lines[1] == PlanLine(forget=("10.0.0.1", "192.0.2.9"))
        world.streams.forget({"10.0.0.1"})
        finished(world.streams.switchboard.ask("n1", (Ask(("ab" * 16,), "10.96.0.7"),)))
        await make.until(lambda: len(other.lines) == 2)
        assert (len(one.lines), other.lines[1].forget) == (2, ())

    play(scene)


def test_new_stream_is_not_told_what_its_agent_forgets_anyway(play: Play, make: Any) -> None:
    async def scene(world: World) -> None:
        older = await world.reader("n1")
        older.reads = False
        world.streams.answered("n1", (Identity("10.0.0.1", pod="cart-1"),))
        world.streams.forget({"10.0.0.1"})
        newer = await world.reader("n1")
        assert newer.lines[0].forget == ()

    play(scene)


def test_no_more_streams_begin_than_are_planned_for(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(streams_, "MAX_STREAMS", 1)

    async def scene(world: World) -> None:
        await world.reader("n1")
        world.streams.admit("n1")
        with pytest.raises(Refused) as refused:
            world.streams.admit("n2")
        assert refused.value.status == 503

    play(scene)
