"""The Lease of an API server that takes its time, in played time, which passes when nobody has anything left to do."""

import asyncio
import json
import random
import selectors
from collections.abc import Callable, Coroutine, Iterator, Mapping
from copy import deepcopy
from typing import Any, NoReturn, Self

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster.api import ApiError
from latencyprobe_operator.cluster.election import Claim, Lease


class PlayedTime(selectors.SelectSelector):
    """The selector of an event loop, and its clock."""

    s = 1000.0

    def __call__(self) -> float:
        return self.s

    def select(self, timeout: float | None = None) -> Any:
        self.s += timeout or 0.0
        return super().select(0)


def play(scene: Callable[[PlayedTime], Coroutine[Any, Any, None]]) -> None:
    time = PlayedTime()
    loop = asyncio.SelectorEventLoop(time)
    loop.time = time  # type: ignore[method-assign]
    try:
        loop.run_until_complete(scene(time))
    finally:
        loop.close()


class Slow:
    """An API server with one Lease. `delays_s`: until it has carried a call out, and from then until its answer is
    here; what nobody waits for any more it carries out too."""

    def __init__(self, delays_s: Iterator[float], spec: Mapping[str, Any]) -> None:
        self.lease: dict[str, Any] = {"metadata": {"resourceVersion": 1}, "spec": dict(spec)}
        self._delays_s = delays_s
        self._tasks: set[asyncio.Task[bytes]] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def call(self, method: str, _path: str, *, body: Any = None, timeout_s: float) -> bytes:
        task = asyncio.create_task(self._answer(method, deepcopy(body)))
        self._tasks.add(task)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(task)
        except TimeoutError as error:
            raise ClusterError("no answer in time") from error

    async def _answer(self, method: str, body: Any) -> bytes:
        await asyncio.sleep(next(self._delays_s))
        version = self.lease["metadata"]["resourceVersion"]
        conflict = method == "PUT" and body["metadata"]["resourceVersion"] != version
        if method == "PUT" and not conflict:
            self.lease = {**body, "metadata": {"resourceVersion": version + 1}}
        answer = json.dumps(self.lease).encode()
        await asyncio.sleep(next(self._delays_s))
        if conflict:
            raise ApiError(409, "conflict")
        return answer

    async def settle(self) -> None:
        await asyncio.gather(*self._tasks, return_exceptions=True)


def kept(api: Slow, claim: Claim) -> asyncio.Task[NoReturn]:
    async def connect() -> Any:
        return api

    return asyncio.create_task(Lease(connect, claim)._keep())


async def lease_is_ours(claim: Claim) -> None:
    while not claim.term:  # noqa: ASYNC110 - played time
        await asyncio.sleep(0.1)


async def ended(*tasks: asyncio.Task[NoReturn]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def for_ever(delay_s: float) -> Iterator[float]:
    while True:
        yield delay_s / 2


@pytest.mark.parametrize("call_s", [0.0, 0.5, 1.0, 1.5, 1.9])
def test_an_api_server_that_takes_nearly_2_s_for_a_call_lets_us_write_all_the_time(call_s: float) -> None:
    async def scene(time: PlayedTime) -> None:
        api, claim = Slow(for_ever(call_s), {}), Claim("ops", "me", clock=time)
        keeping = kept(api, claim)
        await asyncio.sleep(2 * call_s + 0.1)
        for _ in range(600):
            assert claim.left_s(1) > 0, f"at {time.s}"
            await asyncio.sleep(0.1)
        await ended(keeping)
        await api.settle()

    play(scene)


def test_where_one_look_gets_no_answer_the_next_one_has_the_lease_within_20_s() -> None:
    async def scene(time: PlayedTime) -> None:
        delays_s = iter([0.0, 0.0] * 16 + [60.0, 0.0] + [0.0] * 100)  # the look at which it would have run out
        spec = {"holderIdentity": "dead", "leaseDurationSeconds": 15}
        api, claim = Slow(delays_s, spec), Claim("ops", "me", clock=time)
        keeping = kept(api, claim)
        began_s = time.s
        await lease_is_ours(claim)
        assert 17 < time.s - began_s < 20
        await ended(keeping)

    play(scene)


@given(st.integers(0, 2**32 - 1), st.sampled_from([0.5, 1.5, 3.0]))
def test_however_slow_the_api_server_is_no_two_may_write_at_once(seed: int, most_s: float) -> None:
    chance = random.Random(seed)

    def delays_s() -> Iterator[float]:
        while True:
            yield chance.uniform(0, most_s) if chance.random() < 0.9 else chance.uniform(0, 30)

    async def scene(time: PlayedTime) -> None:
        api = Slow(delays_s(), {"holderIdentity": "dead", "leaseDurationSeconds": 15})
        claims = [Claim("ops", name, clock=time) for name in ("one", "two", "three")]
        keeping = [kept(api, claim) for claim in claims]
        for _ in range(600):
            await asyncio.sleep(0.25)
            assert sum(claim.left_s(claim.term) > 0 for claim in claims) <= 1
        await ended(*keeping)
        await api.settle()

    play(scene)
