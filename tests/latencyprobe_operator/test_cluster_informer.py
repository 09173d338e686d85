"""List and watch against an API server that behaves, misbehaves and falls silent."""

import asyncio
import json
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from aiohttp import web

from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster import informer as informer_
from latencyprobe_operator.cluster.informer import Informer, Informers
from latencyprobe_operator.cluster.loops import Loops
from latencyprobe_operator.cluster.namespace_room import NamespaceRoom, size_of
from latencyprobe_operator.cluster.state import ClusterState

PODS = "/api/v1/pods"
Script = Callable[[web.Request, web.StreamResponse], Awaitable[None]]


def raw_pod(name: str, version: int = 1) -> dict[str, Any]:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": {"nodeName": "n1", "containers": [{"name": "main"}]}, "status": {}}


class FakePods:
    """`lists`: one answer per list; `watches`: one script per watch, then silence."""

    def __init__(self, lists: list[Any], watches: list[Script]) -> None:
        self.lists, self.watches = lists, watches
        self.asked: list[dict[str, str]] = []

    async def handle(self, request: web.Request) -> web.StreamResponse:
        self.asked.append(dict(request.query))
        if "watch" not in request.query:
            answer = self.lists.pop(0)
            return answer if isinstance(answer, web.Response) else web.json_response(answer)
        response = web.StreamResponse()
        await response.prepare(request)
        if self.watches:
            await self.watches.pop(0)(request, response)
        else:
            await asyncio.sleep(60)
        return response

    @property
    def versions(self) -> list[str]:
        return [q["resourceVersion"] for q in self.asked if "watch" in q]


def page(*names: str, version: int = 10, token: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": token}, "items": [raw_pod(n) for n in names]}


def events(*them: tuple[str, dict[str, Any]], then_hang: bool = True) -> Script:
    async def script(_: web.Request, response: web.StreamResponse) -> None:
        for type_, item in them:
            await response.write(json.dumps({"type": type_, "object": item}).encode() + b"\n")
        if then_hang:
            await asyncio.sleep(60)

    return script


def watched(make: Any, fake: FakePods, check: Callable[[Informer, ClusterState], Awaitable[None]], **kw: Any) -> None:
    async def play() -> None:
        state = ClusterState()
        async with make.served([web.get(PODS, fake.handle)]) as api:
            informer = Informer(api, "pods", state, lambda: None, **kw)
            task = asyncio.create_task(informer.run())
            try:
                await check(informer, state)
            finally:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    asyncio.run(play())


def names(state: ClusterState) -> set[str]:
    return {pod.name for pod in state.pods()}


def test_pages_are_joined_and_the_watch_continues_from_the_last_one(make: Any) -> None:
    fake = FakePods([page("a", version=9, token="more"), page("b", version=10)], [])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: fake.versions)
        assert names(state) == {"a", "b"}
        assert informer.synced.is_set()
        assert [q.get("continue") for q in fake.asked[:2]] == [None, "more"]
        assert fake.versions == ["10"]

    watched(make, fake, check)


def test_events_change_the_state_and_a_bookmark_moves_the_version(make: Any) -> None:
    bookmark = {"kind": "Pod", "metadata": {"resourceVersion": "50"}}
    first = events(
        ("ADDED", raw_pod("b", 11)), ("DELETED", raw_pod("a", 12)), ("BOOKMARK", bookmark), then_hang=False
    )  # fmt: skip
    fake = FakePods([page("a")], [first])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: len(fake.versions) == 2)
        assert names(state) == {"b"}
        assert fake.versions == ["10", "50"]

    watched(make, fake, check)


def test_gone_lists_again_and_forgets_what_vanished_meanwhile(make: Any) -> None:
    gone = ("ERROR", {"kind": "Status", "code": 410, "message": "too old resource version"})
    fake = FakePods([page("a", "b"), page("b", version=99)], [events(gone)])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: len(fake.versions) == 2)
        assert names(state) == {"b"}
        assert fake.versions == ["10", "99"]

    watched(make, fake, check)


@pytest.mark.long
def test_silent_watch_is_given_up_and_what_is_there_listed_again(make: Any) -> None:
    fake = FakePods([page("a"), page("a", version=40)], [events(("MODIFIED", raw_pod("a", 33)))])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: len(fake.versions) == 2)
        assert fake.versions == ["10", "40"]
        assert informer.signs.lists == 2

    watched(make, fake, check, silence_s=1)


def test_after_a_restored_etcd_that_counts_from_before_what_it_has_is_taken(make: Any) -> None:
    """A watch from a version that is to come is answered, and silent."""
    fake = FakePods([page("a", "lost", version=90), page("a", "new", version=20)], [])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: len(fake.versions) == 2)
        assert fake.versions == ["90", "20"]
        assert names(state) == {"a", "new"}

    watched(make, fake, check, silence_s=0.2)


def test_lists_that_are_answered_while_watches_are_silent_keep_it_from_being_stale(make: Any) -> None:
    fake = FakePods([page("a"), page("a")], [])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: fake.versions)
        informer.signs._last_s = time.monotonic() - informer_.STALE_S
        before = len(fake.versions)
        await make.until(lambda: len(fake.versions) > before and informer.signs.silent_s < informer_.STALE_S)

    watched(make, fake, check, silence_s=0.2)


def test_server_that_refuses_is_asked_again_until_it_answers(make: Any) -> None:
    busy = web.json_response({"message": "slow down"}, status=429, headers={"Retry-After": "0"})
    fake = FakePods([busy, page("a")], [])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(informer.synced.is_set)
        assert names(state) == {"a"}

    watched(make, fake, check)


def test_object_that_cannot_be_read_is_counted_and_the_rest_goes_on(make: Any) -> None:
    broken = raw_pod("broken")
    broken["spec"]["containers"] = "none"
    listing = {"metadata": {"resourceVersion": "10"}, "items": [broken, raw_pod("a")]}
    fake = FakePods([listing], [events(("ADDED", raw_pod("b", 11)))])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"a", "b"})
        assert informer.signs.undecodable == 1

    watched(make, fake, check)


def test_event_that_is_cut_across_chunks_is_read_whole(make: Any) -> None:
    async def script(_: web.Request, response: web.StreamResponse) -> None:
        line = json.dumps({"type": "ADDED", "object": raw_pod("b", 11)}).encode() + b"\n"
        for part in (line[:7], line[7:]):
            await response.write(part)
            await asyncio.sleep(0.05)
        await asyncio.sleep(60)

    fake = FakePods([page("a")], [script])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"a", "b"})

    watched(make, fake, check)


def test_event_that_is_too_long_leads_to_a_new_list(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(informer_, "MAX_OBJECT_BYTES", 1000)

    async def script(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"a" * 1001)
        await asyncio.sleep(60)

    fake = FakePods([page("a"), page("a", "b")], [script, events()])

    async def check(_: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"a", "b"})

    watched(make, fake, check)


def test_what_is_not_json_leads_to_a_new_list(make: Any) -> None:
    async def script(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"<html>bad gateway</html>\n")
        await asyncio.sleep(60)

    fake = FakePods([page("a"), page("b", version=20)], [script])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"b"})

    watched(make, fake, check)


def test_silence_of_one_kind_is_the_age_of_all_that_is_known(make: Any) -> None:
    async def play() -> None:
        async with make.served([]) as api:
            informers = Informers(api, ClusterState(), lambda: None)
            assert informers.unconfirmed_s() == 0, "nothing was asked for yet"
            informers.of["pods"].signs._last_s = time.monotonic() - informer_.STALE_S + 30
            assert informers.unconfirmed_s() == 0, "bookmarks are seldom"
            informers.of["pods"].signs._last_s = time.monotonic() - 1000
            assert informers.unconfirmed_s() >= 1000

    asyncio.run(play())


def test_what_there_was_no_room_for_is_listed_again_when_a_watch_ends(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(informer_, "ENDS_AT_ONCE_S", 0.0)
    fake = FakePods([page("a", "b"), page("b", version=20)], [events(("DELETED", raw_pod("a", 11)), then_hang=False)])

    async def check(informer: Informer, state: ClusterState) -> None:
        state.room = NamespaceRoom(3 * size_of(decoding.pod(json.dumps(raw_pod("a")).encode())))  # half of it: one
        await make.until(lambda: names(state) == {"b"})
        assert informer.signs.lists == 2

    watched(make, fake, check)


class Forgetful(ClusterState):
    """Fails once at an event, in a way that nobody foresaw."""

    failed = False

    def put(self, kind: str, item: Any) -> None:
        if item.name == "b" and not self.failed:
            self.failed = True
            raise RuntimeError("unforeseen")
        super().put(kind, item)


def test_informer_that_fails_is_counted_and_lists_anew(make: Any) -> None:
    fake = FakePods([page("a"), page("a", "b", version=20)], [events(("ADDED", raw_pod("b", 11)))])

    async def play() -> None:
        state, loops = Forgetful(), Loops()
        async with make.served([web.get(PODS, fake.handle)]) as api:
            task = asyncio.create_task(Informers(api, state, lambda: None).run(loops))
            await make.until(lambda: names(state) == {"a", "b"})
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        assert loops.failures == {("informer-pods", "RuntimeError"): 1}

    asyncio.run(play())
