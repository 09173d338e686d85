"""LatencyProbes as kopf and the lists bring them, in any order."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from latencyprobe_operator.status.registry import Registry

KEY = ("shop", "checkout")


class Changed:
    count = 0

    def __call__(self) -> None:
        self.count += 1


@pytest.fixture
def changed() -> Changed:
    return Changed()


@pytest.fixture
def registry(changed: Changed) -> Registry:
    return Registry(changed)


def versioned(document: dict[str, Any], generation: int, uid: str = "u1", **spec: Any) -> dict[str, Any]:
    meta = document["metadata"] | {"generation": generation, "uid": uid}
    return document | {"metadata": meta, "spec": document["spec"] | spec}


def listed(registry: Registry, *documents: dict[str, Any]) -> None:
    async def read() -> AsyncIterator[dict[str, Any]]:
        for document in documents:
            yield document

    asyncio.run(registry.resync(read))


def test_known_generation_changes_nothing(registry: Registry, changed: Changed, make: Any) -> None:
    registry.put(make.document())
    registry.put(make.document() | {"status": {"nodes": "1/1"}})
    assert changed.count == 1


def test_older_generation_does_not_replace_a_newer_one(registry: Registry, make: Any) -> None:
    registry.put(versioned(make.document(), 2, suspend=True))
    registry.put(versioned(make.document(), 1))
    assert registry.probes[KEY].spec.suspend is True


def test_wrong_spec_is_kept_with_its_error_and_without_a_probe(registry: Registry, make: Any) -> None:
    entry = registry.put(make.document(targets=[]))
    assert entry.error is not None
    assert "spec.targets" in str(entry.error)
    assert registry.probes == {}
    assert set(registry.entries) == {KEY}


def test_status_that_was_written_before_is_remembered(registry: Registry, make: Any) -> None:
    registry.put(make.document() | {"status": {"nodes": "1/1"}})
    assert registry.written[KEY] == {"nodes": "1/1"}


def test_deleted_probe_is_dropped_but_its_successor_of_the_same_name_is_not(registry: Registry, make: Any) -> None:
    registry.put(versioned(make.document(), 1, "u1"))
    registry.put(versioned(make.document(), 1, "u2"))
    registry.drop(KEY, "u1")
    assert registry.entries[KEY].uid == "u2"
    registry.drop(KEY, "u2")
    assert registry.entries == {}


def test_list_makes_good_what_was_missed(registry: Registry, make: Any) -> None:
    registry.put(make.document("missed-deletion"))
    listed(registry, make.document("missed-creation"))
    assert set(registry.entries) == {("shop", "missed-creation")}


def test_what_happens_during_a_list_is_newer_than_the_list(registry: Registry, make: Any) -> None:
    registry.put(make.document("old"))

    async def read() -> AsyncIterator[dict[str, Any]]:
        registry.put(make.document("new"))
        registry.drop(("shop", "old"), "uid-shop-old")
        yield make.document("old")

    asyncio.run(registry.resync(read))
    assert set(registry.entries) == {("shop", "new")}


def test_what_a_restored_etcd_has_is_taken_though_it_is_older_and_all_statuses_are_written_again(
    registry: Registry, changed: Changed, make: Any
) -> None:
    edited, deleted, other = make.document(), make.document("deleted"), make.document("other")
    for document in (versioned(edited, 2, suspend=True), deleted, other):
        registry.put(document)
    registry.drop(("shop", "deleted"), "uid-shop-deleted")
    registry.written[KEY] = registry.written["shop", "other"] = {"nodes": "1/1"}
    before = changed.count
    listed(registry, versioned(edited, 1), deleted, other)
    assert (registry.entries[KEY].generation, registry.probes[KEY].spec.suspend) == (1, False)
    assert ("shop", "deleted") in registry.probes
    assert changed.count == before + 2, "that one and the other, and not what is as it was"
    assert {} == {key: status for key, status in registry.written.items() if status}
    registry.put(versioned(edited, 2, suspend=True))
    assert registry.probes[KEY].spec.suspend is True, "and goes on from there"


def test_list_that_is_older_than_an_edit_meanwhile_takes_nothing_back(registry: Registry, make: Any) -> None:
    registry.put(versioned(make.document(), 1))

    async def read() -> AsyncIterator[dict[str, Any]]:
        registry.put(versioned(make.document(), 2, suspend=True))
        yield versioned(make.document(), 1)

    asyncio.run(registry.resync(read))
    assert registry.entries[KEY].generation == 2


def test_events_of_a_watch_put_and_drop(registry: Registry, make: Any) -> None:
    document = versioned(make.document(), 1)
    for kind in (None, "ADDED", "MODIFIED"):
        registry.happened(kind, document)
        assert set(registry.probes) == {KEY}
    registry.happened("DELETED", document)
    assert registry.entries == {}
