"""List and watch against an API server that behaves, misbehaves and falls silent."""

import asyncio
import json
import time
from typing import Any

import pytest
from aiohttp import web

from latencyprobe_operator.cluster import decoding
from latencyprobe_operator.cluster import informer as informer_
from latencyprobe_operator.cluster.informer import Informer, Informers
from latencyprobe_operator.cluster.loops import Loops
from latencyprobe_operator.cluster.namespace_room import NamespaceRoom, size_of
from latencyprobe_operator.cluster.state import ClusterState
from tests.latencyprobe_operator.fake_pods import PODS, FakePods, events, names, page, raw_pod, watched


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
