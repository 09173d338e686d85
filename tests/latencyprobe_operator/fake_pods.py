"""An API server that has pods and does as it is told, for tests of informers."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

from aiohttp import web

from latencyprobe_operator.cluster.informer import Informer
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
