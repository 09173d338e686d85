"""Lines of watches: cut, long, too long, and none that an API server sends."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from latencyprobe_operator.cluster import informer as informer_
from latencyprobe_operator.cluster.informer import Informer
from latencyprobe_operator.cluster.state import ClusterState
from tests.latencyprobe_operator.fake_pods import FakePods, events, names, page, raw_pod, watched


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


def test_event_of_the_longest_object_that_etcd_takes_is_read_and_nothing_listed_again(make: Any) -> None:
    """Go's JSON encoder writes six bytes for each `<`, of which etcd stores one."""
    env = json.dumps([{"name": "X", "value": "@"}]).replace("@", "\\u003c" * 1_560_000)
    line = json.dumps({"type": "ADDED", "object": raw_pod("b", 11)}).replace('"main"', f'"main", "env": {env}')

    async def script(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(line.encode() + b"\n")
        await asyncio.sleep(60)

    fake = FakePods([page("a"), page("a")], [script])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"a", "b"})
        assert informer.signs.lists == 1

    watched(make, fake, check)


def test_lists_for_want_of_a_line_that_can_be_taken_become_rarer(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    delays_s: list[float] = []

    class Recorded(informer_.Backoff):
        async def wait(self, error: Exception) -> None:
            delays_s.append(self._delay_s)
            self._delay_s *= 2

    async def script(_: web.Request, response: web.StreamResponse) -> None:
        for _piece in range(3):
            await response.write(b"a" * 400)
            await asyncio.sleep(0)
        await asyncio.sleep(60)

    monkeypatch.setattr(informer_, "MAX_OBJECT_BYTES", 1000)
    monkeypatch.setattr(informer_, "Backoff", Recorded)
    fake = FakePods([page("a")] * 4, [script, script, events(("ADDED", raw_pod("b", 11)), then_hang=False), script])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: len(delays_s) >= 3)
        first_s = delays_s[0]
        assert delays_s[:3] == [first_s, 2 * first_s, first_s], "a line was taken"

    watched(make, fake, check)


def test_what_is_not_json_leads_to_a_new_list(make: Any) -> None:
    async def script(_: web.Request, response: web.StreamResponse) -> None:
        await response.write(b"<html>bad gateway</html>\n")
        await asyncio.sleep(60)

    fake = FakePods([page("a"), page("b", version=20)], [script])

    async def check(informer: Informer, state: ClusterState) -> None:
        await make.until(lambda: names(state) == {"b"})

    watched(make, fake, check)
