"""Lists, page by page."""

import asyncio
import json
from typing import Any

import pytest
from aiohttp import web

from latencyprobe_operator.cluster import pages as pages_
from latencyprobe_operator.cluster.api import Api, TooLong
from latencyprobe_operator.cluster.pages import PAGE, pages

THINGS = "/api/v1/things"


class Things:
    """An API server that lists so many things of so many bytes. `limits`: how many were asked for at once."""

    def __init__(self, *sizes: int) -> None:
        self.sizes = sizes
        self.limits: list[int] = []

    async def handle(self, request: web.Request) -> web.Response:
        begin, limit = int(request.query.get("continue", 0)), int(request.query["limit"])
        self.limits.append(limit)
        end = begin + limit
        items = [{"metadata": {"name": f"{begin + i}"}, "x": "x" * n} for i, n in enumerate(self.sizes[begin:end])]
        metadata = {"resourceVersion": "7", "continue": str(end) if end < len(self.sizes) else ""}
        return web.json_response({"metadata": metadata, "items": items})

    def listed(self, make: Any) -> list[str]:
        async def scene() -> list[str]:
            async with make.served([web.get(THINGS, self.handle)]) as api:
                return await names(api)

        return asyncio.run(scene())


async def names(api: Api) -> list[str]:
    found = []
    async for page in pages(api, THINGS):
        assert page.metadata.resource_version == "7"
        found += [json.loads(bytes(raw))["metadata"]["name"] for raw in page.items or ()]
    return found


def test_pages_are_read_to_the_last(make: Any) -> None:
    things = Things(*[1] * 1_200)
    assert things.listed(make) == [str(number) for number in range(1_200)]
    assert things.limits == [PAGE] * 3


def test_where_objects_are_large_fewer_are_asked_for_at_once(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_, "PAGE_BYTES", 100_000)
    things = Things(*[10] * 100, *[50_000] * 20, *[10] * 100)
    assert things.listed(make) == [str(number) for number in range(220)]
    assert min(things.limits) == 1
    assert len(things.limits) < 60


def test_what_is_too_long_alone_is_an_error(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_, "PAGE_BYTES", 10_000)
    with pytest.raises(TooLong, match="more than 10000 bytes"):
        Things(20_000).listed(make)
