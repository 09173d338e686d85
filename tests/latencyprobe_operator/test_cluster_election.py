"""Who may write: one holder at a time, and none that lost it."""

import asyncio
from typing import Any

import pytest
from aiohttp import web

from latencyprobe.errors import ClusterError
from latencyprobe_operator.cluster import election
from latencyprobe_operator.cluster.election import Lease

PATH = "/apis/coordination.k8s.io/v1/namespaces/ops/leases"


class FakeLease:
    """The Lease as an API server keeps it, with the conflict on a stale version."""

    def __init__(self, spec: dict[str, Any] | None = None, exists: bool = True) -> None:
        self.version = 1
        self.lease = (
            {"metadata": {"name": election.NAME, "resourceVersion": "1"}, "spec": spec or {}} if exists else None
        )
        self.away = False
        self.reads = 0

    @property
    def holder(self) -> str:
        return str(self.lease["spec"].get("holderIdentity", "")) if self.lease else ""

    async def get(self, _: web.Request) -> web.Response:
        self.reads += 1
        if self.away:
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
        self._store({**self.lease, "spec": {**self.lease["spec"], "holderIdentity": holder}})

    def _store(self, body: dict[str, Any]) -> web.Response:
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.lease = body
        return web.json_response(body)

    def routes(self) -> list[web.RouteDef]:
        one = f"{PATH}/{election.NAME}"
        return [web.get(one, self.get), web.put(one, self.put), web.post(PATH, self.post)]


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(election, "RETRY_S", 0.05)
    monkeypatch.setattr(election, "RENEW_DEADLINE_S", 2)


@pytest.mark.parametrize("fake", [FakeLease(), FakeLease(exists=False), FakeLease({"holderIdentity": ""})])
def test_free_lease_is_taken_and_held(make: Any, fake: FakeLease) -> None:
    async def play() -> None:
        async with make.served(fake.routes()) as api:
            lease = Lease(api, "ops", "me")
            await lease.acquire()
            holding = asyncio.create_task(lease.hold())
            version = fake.version
            await make.until(lambda: fake.version > version + 2)
            assert (fake.holder, holding.done()) == ("me", False)
            holding.cancel()

    asyncio.run(play())


def test_live_holder_keeps_others_waiting_until_its_lease_runs_out_by_our_clock(make: Any) -> None:
    now = [1000.0]
    spec = {"holderIdentity": "other", "leaseDurationSeconds": 15, "renewTime": "2000-01-01T00:00:00.000000Z"}

    async def play() -> None:
        fake = FakeLease(spec)
        async with make.served(fake.routes()) as api:
            waiting = asyncio.create_task(Lease(api, "ops", "me", clock=lambda: now[0]).acquire())
            await make.until(lambda: fake.reads >= 3)
            assert (waiting.done(), fake.holder) == (False, "other")
            now[0] += 16
            await waiting
            assert fake.holder == "me"

    asyncio.run(play())


def test_hold_ends_when_another_took_it(make: Any) -> None:
    async def play() -> None:
        fake = FakeLease()
        async with make.served(fake.routes()) as api:
            lease = Lease(api, "ops", "me")
            await lease.acquire()
            fake.take("other")
            with pytest.raises(ClusterError, match="is lost"):
                async with asyncio.timeout(30):
                    await lease.hold()
            assert fake.holder == "other"

    asyncio.run(play())


def test_hold_ends_when_the_api_server_stays_away(make: Any) -> None:
    async def play() -> None:
        fake = FakeLease()
        async with make.served(fake.routes()) as api:
            lease = Lease(api, "ops", "me")
            await lease.acquire()
            fake.away = True
            with pytest.raises(ClusterError, match="is lost"):
                async with asyncio.timeout(30):
                    await lease.hold()

    asyncio.run(play())


def test_release_lets_the_next_one_in_at_once(make: Any) -> None:
    async def play() -> None:
        fake = FakeLease()
        async with make.served(fake.routes()) as api:
            lease = Lease(api, "ops", "me")
            await lease.acquire()
            await lease.release()
            assert fake.holder == ""

    asyncio.run(play())


def test_release_leaves_the_lease_of_another_alone(make: Any) -> None:
    async def play() -> None:
        fake = FakeLease({"holderIdentity": "other"})
        async with make.served(fake.routes()) as api:
            await Lease(api, "ops", "me").release()
            assert fake.holder == "other"

    asyncio.run(play())
