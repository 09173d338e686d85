"""kopf's part: no finalizers, our annotations, LatencyProbes into the registry."""

import asyncio
from typing import Any

from latencyprobe_operator.handlers import FINALIZER, kopf_registry, run  # isort: skip  # first: no synchronous client
import kopf
import pytest

from latencyprobe_operator.status.registry import Registry


@pytest.fixture
def settings() -> kopf.OperatorSettings:
    handlers = kopf_registry(Registry(lambda: None))._activities.get_all_handlers()
    found = kopf.OperatorSettings()
    next(h for h in handlers if h.fn.__name__ == "configure").fn(settings=found)
    return found


def test_no_handler_makes_kopf_want_a_finalizer() -> None:
    registry = kopf_registry(Registry(lambda: None))
    assert not [h for h in registry._changing.get_all_handlers() if getattr(h, "requires_finalizer", None)]
    assert not list(registry._spawning.get_all_handlers())
    assert not list(registry._indexing.get_all_handlers())


def test_nothing_is_stored_under_a_foreign_name(settings: kopf.OperatorSettings) -> None:
    assert settings.persistence.finalizer == FINALIZER
    body = kopf.Body({"metadata": {"name": "x"}, "spec": {"a": 1}})
    essence = settings.persistence.diffbase_storage.build(body=body)
    patch = kopf.Patch()
    settings.persistence.diffbase_storage.store(body=body, patch=patch, essence=essence)
    assert all(key.startswith("latencyprobe.dev/") for key in patch["metadata"]["annotations"])


def test_operator_stands_alone_and_never_scans(settings: kopf.OperatorSettings) -> None:
    assert settings.peering.standalone
    assert settings.scanning.disabled
    assert not settings.posting.enabled
    assert settings.networking.enforce_retry_after


def test_wrong_probe_is_a_permanent_error_with_the_field(make: Any) -> None:
    probes = Registry(lambda: None)
    put = next(h for h in kopf_registry(probes)._changing.get_all_handlers() if h.fn.__name__ == "put")
    with pytest.raises(kopf.PermanentError, match=r"spec\.targets"):
        asyncio.run(put.fn(body=make.document(targets=[])))
    asyncio.run(put.fn(body=make.document("other")))
    assert set(probes.probes) == {("shop", "other")}


def test_deletion_drops_the_probe(make: Any) -> None:
    probes = Registry(lambda: None)
    probes.put(make.document())
    drop = next(h for h in kopf_registry(probes)._watching.get_all_handlers() if h.fn.__name__ == "drop")
    given = {"namespace": "shop", "name": "checkout", "uid": "uid-shop-checkout"}
    asyncio.run(drop.fn(event={"type": "MODIFIED"}, **given))
    assert set(probes.entries) == {("shop", "checkout")}
    asyncio.run(drop.fn(event={"type": "DELETED"}, **given))
    assert probes.entries == {}


def test_kopf_keeps_no_signal_and_leaves_alone_what_is_older_than_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[Any] = []

    async def spawn(**_: Any) -> str:
        steps.append("kopf has taken the signals")
        return "its tasks"

    async def run_tasks(tasks: str, ignored: set[Any]) -> None:
        steps.append((tasks, ignored))

    monkeypatch.setattr(kopf, "spawn_tasks", spawn)
    monkeypatch.setattr(kopf, "run_tasks", run_tasks)

    async def play() -> None:
        connection = asyncio.create_task(asyncio.Event().wait())
        await run(Registry(lambda: None), lambda: steps.append("they are taken back"))
        assert steps[:2] == ["kopf has taken the signals", "they are taken back"]
        assert steps[2] == ("its tasks", {connection, asyncio.current_task()})

    asyncio.run(play())
