"""app.py for an hour without its API server, and through what else may befall that: by played time, as a process."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest

from latencyprobe import parsing
from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import ObjectiveKey, objectives
from tests.latencyprobe_operator.conftest import agent_status
from tests.latencyprobe_operator.operator_process import CART, plan, played, post, process, ready, trusting
from tests.latencyprobe_operator.played_api import PlayedApi
from tests.latencyprobe_operator.played_time import Clock
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

AWAY_S = float(os.environ.get("AWAY_S", "600"))
SILENT_S = 140.0  # until an agent and a probe of the kubelet are told
EVALUATED_S = 65.0  # between two evaluations, with a turn of the loop
BACK_S = 35.0  # half a minute between two attempts at most
DEAF_S = 150.0  # until a watch that is silent is given up, and all is listed


class Scene:
    """The operator under a played API server, and the agent of n1, which reports and counts as time passes."""

    def __init__(self, clock: Clock, api: PlayedApi, session: aiohttp.ClientSession, url: str) -> None:
        self.clock, self.api, self.session, self.url = clock, api, session, url
        self.counted = 0
        self._sequence, self._until = 0, int(clock.unix_s())

    async def plan(self) -> dict[str, Any]:
        return await self.clock.while_it_passes(plan(self.session, self.url))

    async def readiness(self) -> str:
        async def read() -> str:
            async with self.session.get(f"{self.url}/readyz") as answer:
                return f"{answer.status} {await answer.text()}"

        return await self.clock.while_it_passes(read())

    async def agent(self, key: ObjectiveKey, generation: int) -> None:
        """Report, and hand over ten events of this minute; all the time since the last call was measured."""

        async def say() -> int:
            async with self.session.post(
                f"{self.url}/v1/nodes/n1/status", json=msgspec.to_builtins(agent_status(generation))
            ) as answer:
                return answer.status

        assert await self.clock.while_it_passes(say()) == 204
        now = int(self.clock.unix_s())
        seconds = Counter(at // 60 * 60 for at in range(self._until, now))
        rows = [SliRow(*key, minute, coverage=Coverage(measured_ms=1000 * s)) for minute, s in seconds.items()]
        rows.append(SliRow(*key, now // 60 * 60, good=10, histogram={40: 10}, coverage=Coverage(seen=10)))
        answer = await self.clock.while_it_passes(post(self.session, self.url, self._sequence, *rows))
        assert answer[0] == 200, answer
        self._until = now
        self._sequence += 1
        self.counted += 10

    async def until(self, condition: Callable[[], Any], what: str, most_s: float = 60.0) -> float:
        return await self.clock.until(condition, what, most_s)

    async def pods_of_plan(self) -> set[str]:
        return {one["name"] for one in (await self.plan()).get("pods", ())}

    def add_pod(self, number: int) -> None:
        """Another target pod on n1."""
        pod = deepcopy(CART)
        pod["metadata"] |= {"name": f"cart-{number}", "uid": f"u{number}"}
        pod["status"] |= {"podIPs": [{"ip": f"10.0.0.{number + 4}"}]}
        self.api.put("pods", pod)

    def conditions(self) -> dict[str, tuple[str, str]]:
        told = self.api.statuses[-1]["status"]["conditions"] if self.api.statuses else ()
        return {one["type"]: (one["status"], one["reason"]) for one in told}


@asynccontextmanager
async def scene(folder: Path, tls_dir: Path, document: dict[str, Any], step_s: float) -> AsyncIterator[Scene]:
    """An operator that has planned and told its first status."""
    clock = Clock(step_s)
    api = PlayedApi(clock, document)
    api.put("pods", deepcopy(CART))
    listen = f"127.0.0.1:{free_port()}"
    try:
        async with played(api) as server, trusting(tls_dir) as session:
            wrapper = clock.new(folder / "clock")
            async with process(folder, tls_dir, server, listen, *wrapper) as running:
                it = Scene(clock, api, session, f"https://{listen}")
                await it.until(lambda: api.statuses, "the first status")
                assert await ready(session, it.url)
                yield it
                assert running.returncode is None
    finally:
        print((folder / "log").read_text()[-10_000:])


def test_hour_without_the_api_server_costs_no_plan_and_no_count_and_is_told_meanwhile(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    document = make.document()
    (objective,) = objectives(parsing.parse(document))

    async def play() -> None:
        async with scene(tmp_path, tls_dir, document, step_s=1.0) as it:
            api, before = it.api, await it.plan()
            await it.agent(objective.key, before["generation"])
            await it.until(lambda: it.conditions().get("ProbesReady", ("",))[0] == "True", "the agent is ready")
            api.failing = "hangs"
            api.end_watches()
            began_s = it.clock.s
            await it.clock.pass_s(15)
            written = len(api.audit)
            while it.clock.s < began_s + AWAY_S:
                await it.clock.pass_s(29)
                await it.agent(objective.key, before["generation"])
                said = await it.readiness()
                assert said.startswith("200 ok")
                assert ("silent for" in said) == (it.clock.s - began_s > SILENT_S) or it.clock.s - began_s < SILENT_S
                assert await it.plan() == before
            assert len(api.audit) == written, "nothing is written"
            it.add_pod(2)
            api.failing = 0
            took_s = await it.until(lambda: len(api.audit) > written, "it writes again", BACK_S)
            while await it.readiness() != "200 ok":
                await it.clock.step()
            print(f"{AWAY_S:.0f} s away: written again after {took_s} s, all known again at {it.clock.s - began_s} s")
            assert {"cart-1", "cart-2"} == await it.pods_of_plan()
            await it.until(lambda: total(api) == it.counted, f"{it.counted} events, {total(api)} in the report", 200)
            (result,) = api.reports[-1]["results"]
            latest = 100 * (1 - EVALUATED_S / AWAY_S)  # it is judged up to so long after the agent's last word
            assert float(result["coverage"]["ratio"].rstrip("%")) > latest, result

    asyncio.run(play())


def total(api: PlayedApi) -> int:
    return int(api.reports[-1]["results"][0]["events"]) if api.reports else 0


async def statuses_of(it: Scene, status: int) -> None:
    it.api.failing = status
    it.api.end_watches()
    await it.clock.pass_s(120)
    it.add_pod(2)
    it.api.failing = 0


async def watches_that_are_gone(it: Scene) -> None:
    it.add_pod(2)
    it.api.forget()


async def half_open(it: Scene) -> None:
    it.api.end_watches(half_open=True)
    it.add_pod(2)


STORMS: dict[str, tuple[Callable[[Scene], Any], float]] = {  # what happens, and for how long it may go unnoticed
    "too many requests": (lambda it: statuses_of(it, 429), BACK_S),
    "internal errors": (lambda it: statuses_of(it, 500), BACK_S),
    "an expired token": (lambda it: statuses_of(it, 401), BACK_S),
    "compaction": (watches_that_are_gone, 5.0),
    "half-open connections": (half_open, DEAF_S),
}


@pytest.mark.parametrize("storm", STORMS)
def test_after_a_storm_of_the_api_server_a_new_pod_is_planned_and_told_of(
    make: Any, tmp_path: Path, tls_dir: Path, storm: str
) -> None:
    happen, most_s = STORMS[storm]

    async def play() -> None:
        async with scene(tmp_path, tls_dir, make.document(), step_s=0.25) as it:
            await happen(it)
            began_s = it.clock.s
            while await it.pods_of_plan() != {"cart-1", "cart-2"}:
                assert it.clock.s - began_s < most_s, storm
                await it.clock.step()
            planned_s = it.clock.s - began_s
            told_s = await it.until(lambda: it.api.statuses[-1]["status"]["pods"] == 2, "it is told")
            print(f"{storm}: planned {planned_s} s after it, told {told_s} s later; {dict(it.api.failed)}")
            assert await it.readiness() == "200 ok"

    asyncio.run(play())


def test_etcd_that_was_restored_from_a_snapshot_is_followed_with_all_that_came_back(
    make: Any, tmp_path: Path, tls_dir: Path
) -> None:
    document = make.document()
    edited = document | {"metadata": document["metadata"] | {"generation": 2}}
    edited["spec"] = document["spec"] | {"suspend": True}

    async def play() -> None:
        async with scene(tmp_path, tls_dir, document, step_s=0.25) as it:
            snapshot = it.api.saved()
            for number in range(2, 9):  # so that versions of afterwards are still below those of before
                it.add_pod(number)
            it.api.put("latencyprobes", edited)
            await it.until(lambda: it.conditions()["Ready"][1] == "Suspended", "the edit is followed", 90)
            it.api.restore(snapshot)
            it.add_pod(2)
            began_s = it.clock.s
            while await it.pods_of_plan() != {"cart-1", "cart-2"}:
                assert it.clock.s - began_s < DEAF_S, "it follows what was restored"
                await it.clock.step()
            print(f"followed {it.clock.s - began_s} s after the restore")
            await it.until(lambda: it.conditions()["Ready"][1] != "Suspended", "its status is of the older spec")

    asyncio.run(play())
