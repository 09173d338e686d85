"""Who may write: one holder at a time, and none that lost it, whatever happens to the API server or to our own loop."""

import asyncio
import logging
import threading
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from latencyprobe_operator.cluster import election
from latencyprobe_operator.cluster.api import Api
from latencyprobe_operator.cluster.election import Claim, Lease
from latencyprobe_operator.cluster.own_loop import OwnLoop

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"


class FakeLease:
    """The Lease as an API server keeps it, with the conflict on a stale version."""

    def __init__(self, spec: dict[str, Any] | None = None, exists: bool = True) -> None:
        self.version = 1
        self.lease = (
            {"metadata": {"name": election.NAME, "resourceVersion": "1"}, "spec": spec or {}} if exists else None
        )
        self.away, self.away_for = False, 0
        self.reads = 0

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity", "")) if self.lease else ""

    async def get(self, _: web.Request) -> web.Response:
        self.reads += 1
        self.away_for -= (held_up := self.away_for > 0)
        if self.away or held_up:
            raise web.HTTPServiceUnavailable
        return web.json_response(self.lease) if self.lease else web.json_response({"message": "none"}, status=404)

    async def put(self, request: web.Request) -> web.Response:
        body = await request.json()
        if self.away:
            raise web.HTTPServiceUnavailable
        if body.get("metadata", {}).get("resourceVersion") != str(self.version):
            return web.json_response({"message": "conflict"}, status=409)
        return self._store(body)

    async def post(self, request: web.Request) -> web.Response:
        return self._store(await request.json())

    def take(self, holder: str) -> None:
        """Another process writes itself into the Lease."""
        assert self.lease
        spec = self.lease["spec"]
        times = spec.get("leaseTransitions", 0) + 1
        self._store({**self.lease, "spec": {**spec, "holderIdentity": holder, "leaseTransitions": times}})

    def _store(self, body: dict[str, Any]) -> web.Response:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return web.json_response(body)

    def routes(self) -> list[web.RouteDef]:
        one = f"{PATH}/{election.NAME}"
        return [web.get(one, self.get), web.put(one, self.put), web.post(PATH, self.post)]


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


def play(make: Any, fake: FakeLease, scene: Callable[[Api, Claim, Clock], Awaitable[None]]) -> None:
    """Run a scene of one claim that the fake API server answers."""

    async def whole() -> None:
        clock = Clock()
        async with make.served(fake.routes()) as api:
            await scene(api, Claim("ops", "me", clock=clock), clock)

    asyncio.run(whole())


@pytest.mark.parametrize("fake", [FakeLease(), FakeLease(exists=False), FakeLease({"holderIdentity": ""})])
def test_free_lease_is_taken_and_renewed(make: Any, fake: FakeLease) -> None:
    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        for _ in range(3):
            await claim.attempt(api)
            assert (fake.holder, claim.term, claim.left_s(1)) == ("me", 1, election.RENEW_DEADLINE_S)
            clock.now += 3

    play(make, fake, scene)


def test_lease_that_is_not_there_and_may_not_be_made_is_told_with_what_to_do(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def forbid(_: web.Request) -> web.Response:
        return web.json_response({"message": 'cannot create resource "leases"'}, status=403)

    fake = FakeLease(exists=False)
    fake.post = forbid  # type: ignore[method-assign] # as the chart's rights have it

    async def scene(api: Api, claim: Claim, _: Clock) -> None:
        await claim.attempt(api)
        assert claim.term == 0
        assert 'cannot create resource "leases"; it is not there, and the chart makes it: apply' in caplog.text
        assert "resource.exclusions" in caplog.text

    play(make, fake, scene)


def test_live_holder_keeps_others_waiting_until_its_lease_runs_out_by_our_clock(make: Any) -> None:
    fake = FakeLease(
        {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2000-01-01T00:00:00.000000Z"}
    )

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        clock.now += 14
        await claim.attempt(api)
        assert (claim.term, fake.holder) == (0, "other")
        clock.now += 2
        await claim.attempt(api)
        assert (claim.term, fake.holder) == (1, "me")

    play(make, fake, scene)


def test_time_that_another_took_is_over_and_the_next_is_another_one(make: Any) -> None:
    fake = FakeLease()

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        fake.take("other")
        assert claim.left_s(1) > 0, "nobody else may write yet, whoever is in it"
        await claim.attempt(api)
        assert (claim.term, claim.left_s(1)) == (0, 0)
        clock.now += 16
        await claim.attempt(api)
        assert (claim.term, claim.left_s(1), claim.left_s(2)) == (2, 0, election.RENEW_DEADLINE_S)

    play(make, fake, scene)


def test_another_that_had_it_and_let_it_go_between_two_looks_ends_our_time_too(make: Any) -> None:
    fake = FakeLease()

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        fake.take("other")
        assert fake.lease
        fake.lease["spec"]["holderIdentity"] = ""
        await claim.attempt(api)
        assert (claim.term, fake.holder) == (2, "me"), "what it wrote meanwhile is not known to our first time"

    play(make, fake, scene)


def test_while_the_api_server_is_away_nothing_may_be_written_and_our_time_goes_on(
    make: Any, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeLease()

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        fake.away = True
        for seconds in range(3_600):
            clock.now += 1
            if seconds % 2 == 0 and seconds < 60:
                await claim.attempt(api)
            assert (claim.term, claim.left_s(1) > 0) == (1, seconds + 1 < election.RENEW_DEADLINE_S)
        fake.away = False
        await claim.attempt(api)
        assert (claim.term, claim.left_s(1)) == (1, election.RENEW_DEADLINE_S)

    with caplog.at_level(logging.INFO):
        play(make, fake, scene)
    said = [record.getMessage() for record in caplog.records if record.name == election.__name__]
    assert len(said) == 4, "an outage is told when it begins, when writing ends and when it goes on"
    assert "nothing is written until it is" in said[2]
    assert "writing goes on" in said[3]


def test_answer_that_was_lost_does_not_make_another_of_us(make: Any) -> None:
    fake = FakeLease()

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        assert fake.lease
        fake.lease["spec"]["renewTime"] = "written, but not answered in time"
        await claim.attempt(api)
        assert claim.term == 1

    play(make, fake, scene)


def test_release_lets_the_next_one_in_at_once_and_leaves_that_of_another_alone(make: Any) -> None:
    fake, taken = FakeLease(), FakeLease({"holderIdentity": "other"})

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        await claim.release(api)
        assert (fake.holder, claim.left_s(1)) == ("", 0)

    async def other(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.release(api)
        assert taken.holder == "other"

    play(make, fake, scene)
    play(make, taken, other)


def test_release_outlasts_an_api_server_that_does_not_answer_at_once(
    make: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    fake = FakeLease()
    monkeypatch.setattr(election, "_POLL_S", 0)

    async def scene(api: Api, claim: Claim, clock: Clock) -> None:
        await claim.attempt(api)
        fake.away_for = 2
        await claim.release(api)
        assert (fake.holder, fake.away_for, caplog.messages) == ("", 0, [])
        await claim.attempt(api)
        fake.away = True
        await claim.release(api)
        assert "it runs out by itself" in caplog.text

    play(make, fake, scene)


class Elsewhere:
    """A Lease that is served in a thread of its own, so that a test may block its own loop. `connect`: to it."""

    def __init__(self, make: Any, fake: FakeLease) -> None:
        self.fake, self._make = fake, make
        self._host = ""
        self._ready = threading.Event()
        self.loop = OwnLoop("api-server", self._serve)

    async def _serve(self) -> None:
        async with self._make.served(self.fake.routes()) as api:
            self._host = api._host
            self._ready.set()
            await asyncio.Event().wait()

    async def connect(self) -> Api:
        async def nobody() -> None:
            return None

        await asyncio.to_thread(self._ready.wait)
        return Api(self._host, None, nobody)


@pytest.mark.slow
def test_loop_that_is_blocked_for_longer_than_the_lease_lasts_does_not_lose_it(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(election, "RETRY_S", 0.2)
    monkeypatch.setattr(election, "RENEW_DEADLINE_S", 1.5)
    fake = FakeLease()

    async def whole() -> None:
        elsewhere = Elsewhere(make, fake)
        async with elsewhere.loop, Lease(elsewhere.connect, Claim("ops", "me")) as lease:
            term = lease.term()
            assert term.left_s() <= 0, "nothing may be written before it is ours"
            await term.begin()
            version = fake.version
            time.sleep(3)  # noqa: ASYNC251 - that is the point: the loop stands still for twice the deadline
            assert fake.version > version + 3
            await make.until(lambda: term.left_s() > 0)
            fake.take("other")
            await term.over()
            assert term.left_s() <= 0
        assert fake.holder == "other"

    asyncio.run(whole())


def test_lease_is_free_again_when_we_end(make: Any) -> None:
    fake = FakeLease()

    async def whole() -> None:
        elsewhere = Elsewhere(make, fake)
        async with elsewhere.loop:
            async with Lease(elsewhere.connect, Claim("ops", "me")) as lease:
                await lease.term().begin()
                assert fake.holder == "me"
            assert fake.holder == ""

    asyncio.run(whole())
