"""The played API server: lists in pages, and watches that go on from where a list ended."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import aiohttp
import msgspec
import pytest
from aiohttp import web

from benchmarks.api_server import ApiServer


def pod(name: str) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": name}}


class World:
    def __init__(self, folder: Path) -> None:
        self.api = ApiServer(folder)

    async def get(self, **query: str) -> dict[str, Any]:
        async with self.client.get(f"{self.url}/api/v1/pods", params=query) as answer:
            return {"status": answer.status, **msgspec.json.decode(await answer.read())}

    async def watched(self, count: int, **query: str) -> list[tuple[str, str]]:
        found = []
        async with self.client.get(f"{self.url}/api/v1/pods", params={"watch": "true", **query}) as answer:
            for _ in range(count):
                event = msgspec.json.decode(await answer.content.readuntil(b"\n"))
                found.append((event["type"], event["object"]["metadata"].get("name", "")))
        return found

    client: aiohttp.ClientSession
    url: str


@pytest.fixture
def play(tmp_path: Path) -> Callable[[Callable[[World], Awaitable[None]]], None]:
    async def whole(scene: Callable[[World], Awaitable[None]]) -> None:
        world, app = World(tmp_path), web.Application()
        app.router.add_route("*", "/{path:.*}", world.api.answer)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        world.url = f"http://127.0.0.1:{runner.addresses[0][1]}"
        async with aiohttp.ClientSession() as world.client:
            await scene(world)
        await runner.cleanup()

    return lambda scene: asyncio.run(whole(scene))


def test_pages_of_a_list_are_of_one_moment_and_a_watch_goes_on_from_there(play: Any) -> None:
    async def scene(world: World) -> None:
        for name in "abc":
            world.api.put("pods", pod(name))
        first = await world.get(limit="2")
        world.api.put("pods", pod("a0"))
        world.api.drop("pods", pod("b"))
        second = await world.get(**{"limit": "2", "continue": first["metadata"]["continue"]})
        names = [item["metadata"]["name"] for page in (first, second) for item in page["items"]]
        assert (names, second["metadata"]["continue"]) == (["a", "b", "c"], "")
        version = second["metadata"]["resourceVersion"]
        assert [("ADDED", "a0"), ("DELETED", "b")] == await world.watched(2, resourceVersion=version)

    play(scene)


def test_a_quiet_watch_has_bookmarks_and_one_from_too_long_ago_is_told(
    play: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.api_server.BOOKMARK_S", 0.01)
    monkeypatch.setattr("benchmarks.api_server.KEPT", 2)

    async def scene(world: World) -> None:
        assert [("BOOKMARK", "")] == await world.watched(1)
        for name in "abcd":
            world.api.put("pods", pod(name))
        assert (await world.get(watch="true", resourceVersion="1"))["status"] == 410

    play(scene)


def test_tokens_name_their_node_and_others_are_not_authenticated(play: Any) -> None:
    async def scene(world: World) -> None:
        found = []
        for one in (world.api.token("n1"), "guessed"):
            body = {"spec": {"token": one, "audiences": ["a"]}}
            url = f"{world.url}/apis/authentication.k8s.io/v1/tokenreviews"
            async with world.client.post(url, json=body) as answer:
                found.append((await answer.json())["status"])
        assert list(found[0]["user"]["extra"].values()) == [["n1"]]
        assert found[1] == {"authenticated": False}

    play(scene)
