"""Three operators at once, as processes whose time is played: who has the Lease is killed, asked to end, frozen or cut
off from the API server, again and again. Writes of two never overlap, and no change is lost."""

import asyncio
import os
import random
import signal
from asyncio.subprocess import Process
from collections import Counter
from contextlib import AsyncExitStack
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest

from tests.latencyprobe_operator.operator_process import CART, NODE, played, process
from tests.latencyprobe_operator.played_api import PlayedApi
from tests.latencyprobe_operator.played_time import Clock
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

HANDOVERS = int(os.environ.get("HANDOVERS", "12"))
NAMES = ("one", "two", "three")
HOW = ("kill", "end", "freeze", "cut off")
LONGEST_S = 20.0
WRITES_S = 20.0  # lists, plans and evaluates; its first status comes with the first change


class Operators:
    """The three processes, by name, which is the token by which the API server knows them."""

    def __init__(self, folder: Path, tls_dir: Path, server: str, api: PlayedApi, clock: Clock) -> None:
        self._of: dict[str, tuple[AsyncExitStack, Process]] = {}
        self._folder, self._tls_dir, self._server = folder, tls_dir, server
        self._api, self._clock = api, clock

    async def start(self, name: str) -> None:
        (folder := self._folder / name).mkdir(exist_ok=True)
        wrapper = self._clock.new(folder / "clock")
        listen, stack = f"127.0.0.1:{free_port()}", AsyncExitStack()
        running = process(folder, self._tls_dir, self._server, listen, *wrapper, token=name)
        self._of[name] = stack, await stack.enter_async_context(running)

    async def stop(self, name: str) -> None:
        stack, _ = self._of.pop(name)
        self._clock.leave(self._folder / name / "clock")
        await stack.aclose()

    async def take_away(self, name: str, how: str) -> None:
        running = self._of[name][1]
        if how == "cut off":
            self._api.cut_off.add(name)
        elif how == "end":
            running.terminate()
            while running.returncode is None:
                await self._clock.step()
        else:
            running.send_signal(signal.SIGKILL if how == "kill" else signal.SIGSTOP)
            self._clock.leave(self._folder / name / "clock")

    async def bring_back(self, name: str, how: str) -> None:
        if how == "cut off":
            self._api.cut_off.discard(name)
        elif how == "freeze":
            self._clock.wait_again(self._folder / name / "clock")
            self._of[name][1].send_signal(signal.SIGCONT)
        else:
            await self.stop(name)
            await self.start(name)


class Pods:
    """Of the target there is one pod, then two, and so on up to seven, then one again: each turn is worth a status. And
    somebody takes the label from the node each time, which is written again."""

    def __init__(self, api: PlayedApi) -> None:
        self.count = 0
        self._api = api
        self.turn()

    def turn(self) -> None:
        if self.count == 7:
            for number in range(1, 8):
                self._api.drop("pods", "shop", f"cart-{number}")
            self.count = 0
        self.count += 1
        another = deepcopy(CART)
        another["metadata"] |= {"name": f"cart-{self.count}", "uid": f"u{self.count}"}
        self._api.put("pods", another)
        self._api.put("nodes", deepcopy(NODE))


def wrote(api: PlayedApi, who: str, since: int) -> bool:
    return any(write.who == who for write in api.audit[since:])


def test_of_three_operators_whose_lease_is_taken_away_again_and_again_two_never_write_at_once(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    seed = random.randrange(1 << 30)
    random.seed(seed)
    print(f"seed {seed}")
    clock = Clock()
    api = PlayedApi(clock, make.document())
    took_s: dict[str, list[float]] = {how: [] for how in HOW}

    async def hand_over(operators: Operators, pods: Pods, how: str) -> None:
        before = api.holder
        await operators.take_away(before, how)
        took_s[how].append(await clock.until(lambda: api.holder not in ("", before), "another has the Lease", 60))
        now, known = api.holder, len(api.audit)
        pods.turn()
        await clock.until(lambda: wrote(api, now, known), f"{now} writes after {before}", WRITES_S)
        await operators.bring_back(before, how)
        for _ in range(random.randrange(1, 20)):
            pods.turn()
            await clock.pass_s(1)

    def told() -> int:
        return int(api.statuses[-1]["status"]["pods"]) if api.statuses else 0

    async def scene() -> None:
        async with played(api) as server:
            operators, pods = Operators(tmp_path, tls_dir, server, api, clock), Pods(api)
            try:
                for name in NAMES:
                    await operators.start(name)
                await clock.until(lambda: told() == 1, "the first status", 60)
                for turn in range(HANDOVERS):
                    await hand_over(operators, pods, HOW[turn % len(HOW)])
                await clock.until(lambda: told() == pods.count, "the last change is told", 30)
            finally:
                for name in [*operators._of]:
                    await operators.stop(name)

    try:
        asyncio.run(scene())
    finally:
        for name in NAMES:
            print(name, (tmp_path / name / "log").read_text()[-3000:])
    by = Counter(write.who for write in api.audit)
    print(f"{clock.s:.0f} s, {len(api.audit)} writes: {dict(by)}; s until another had the Lease: {took_s}")
    assert [] == [write for write in api.audit if write.who != write.holder]
    assert len(by) > 1
    assert max(s for some in took_s.values() for s in some) <= LONGEST_S
