"""kopf's part: it looks at LatencyProbes and writes nothing, in a thread of its own, and begins anew when it ends."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path
from typing import Any

from latencyprobe_operator import handlers  # isort: skip  # first: no synchronous client
import kopf
import pytest
from kopf._cogs.clients import watching as kopf_watching
from kopf._core.reactor import queueing

from latencyprobe.api import API_VERSION
from latencyprobe_operator.handlers import FINALIZER, kopf_registry, settings, watching
from tests.support.api_server import CRDS, ApiServer, api_server, run_until_closed
from tests.support.waiting import until


def test_no_handler_makes_kopf_write_anything() -> None:
    """Whatever is no `on.event` makes it keep its progress in annotations, whoever has the Lease."""
    registry = kopf_registry(lambda *_: None)
    for others in (registry._changing, registry._spawning, registry._indexing):
        assert not list(others.get_all_handlers())
    assert len(list(registry._watching.get_all_handlers())) == 1


def test_operator_stands_alone_never_scans_posts_nothing_and_kills_nobody() -> None:
    ours = settings()
    assert ours.peering.standalone
    assert ours.scanning.disabled
    assert not ours.posting.enabled
    assert ours.networking.enforce_retry_after
    assert ours.persistence.finalizer == FINALIZER
    assert ours.process.ultimate_exiting_timeout is None


def test_what_happens_is_passed_on_as_it_is(make: Any) -> None:
    taken: list[tuple[Any, ...]] = []
    (handler,) = kopf_registry(lambda *event: taken.append(event))._watching.get_all_handlers()
    for kind in (None, "MODIFIED", "DELETED"):
        asyncio.run(handler.fn(event={"type": kind, "object": make.document()}))
    assert taken == [(kind, make.document()) for kind in (None, "MODIFIED", "DELETED")]


def test_an_edit_does_not_wait_for_the_statuses_of_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each status that is written comes back as an event, and kopf keeps a task of its object for some seconds more."""
    handled = asyncio.Event()

    async def events(**_: Any) -> AsyncIterator[dict[str, Any]]:
        for number in range(100):
            yield {"type": "MODIFIED", "object": {"metadata": {"uid": f"status-{number}"}}}
        yield {"type": "DELETED", "object": {"metadata": {"uid": "edited"}}}
        await asyncio.Event().wait()

    async def handle(*, raw_event: Any, **_: Any) -> None:
        if raw_event["type"] == "DELETED":
            handled.set()

    async def play() -> None:
        ours = settings()
        ours.queueing.idle_timeout = 3600.0
        resource: Any = None
        watcher = asyncio.create_task(
            queueing.watcher(namespace=None, settings=ours, resource=resource, processor=handle)
        )
        try:
            await until(handled.is_set)
        finally:
            watcher.cancel()
            with suppress(asyncio.CancelledError):
                await watcher

    monkeypatch.setattr(kopf_watching, "infinite_watch", events)
    asyncio.run(play())


def test_it_begins_anew_when_it_ends_or_fails_and_leaves_our_loop_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """At its end it cancels all tasks of its event loop that are younger than itself."""
    outcomes: list[Exception | None] = [kopf.LoginError("Ran out of valid credentials"), None]
    threads: set[int] = set()
    took: list[Any] = []

    async def operator(registry: kopf.OperatorRegistry, **_: Any) -> None:
        threads.add(threading.get_ident())
        (handler,) = registry._watching.get_all_handlers()
        await handler.fn(event={"type": "ADDED", "object": {"n": len(outcomes)}})
        if not outcomes:
            await asyncio.Event().wait()
        if (error := outcomes.pop(0)) is not None:
            raise error

    async def at_once(*_: Any) -> None:
        return

    monkeypatch.setattr(kopf, "operator", operator)
    monkeypatch.setattr(handlers.Backoff, "wait", at_once)

    async def play() -> None:
        failures: list[tuple[str, str]] = []
        async with watching(lambda *event: took.append(event), lambda *why: failures.append((why[0], str(why[1])))):
            await until(lambda: len(took) == 3)
        assert failures == [("kopf", "Ran out of valid credentials"), ("kopf", "kopf has ended by itself")]

    asyncio.run(play())
    assert took == [("ADDED", {"n": n}) for n in (2, 1, 0)]
    assert threads.isdisjoint({threading.get_ident()})


@pytest.mark.cluster
def test_a_definition_that_was_deleted_and_is_back_is_watched_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    took, failures = list[str](), list[str]()

    async def play(server: ApiServer) -> None:
        def create(name: str) -> None:
            server.create(f"/apis/{API_VERSION}/namespaces/default/latencyprobes", {
                "apiVersion": API_VERSION,
                "kind": "LatencyProbe",
                "metadata": {"name": name},
                "spec": {"targets": [{"name": "t"}]},
            })  # fmt: skip

        async with watching(
            lambda _, probe: took.append(probe["metadata"]["name"]), lambda _, why: failures.append(str(why))
        ):
            create("before")
            await until(lambda: "before" in took, timeout_s=60)
            path = f"{CRDS}/latencyprobes.latencyprobe.dev"
            definition = server.call("GET", path)[1]
            server.call("DELETE", path)
            await until(lambda: any("serves no LatencyProbes" in why for why in failures), timeout_s=60)
            await until(lambda: server.call("GET", path)[0] == 404, timeout_s=60)
            metadata = {"name": definition["metadata"]["name"]}
            server.define({key: definition[key] for key in ("apiVersion", "kind", "spec")} | {"metadata": metadata})
            create("after")
            await until(lambda: "after" in took, timeout_s=60)

    with api_server(tmp_path) as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig))
        monkeypatch.setattr(asyncio, "run", run_until_closed)  # for kopf's thread, whose loop is another one
        run_until_closed(play(server))
