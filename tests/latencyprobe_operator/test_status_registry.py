"""LatencyProbes as kopf and the lists bring them, in any order."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from latencyprobe_operator.cluster.namespace_room import NAMED
from latencyprobe_operator.status.objective_room import ObjectiveRoom
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
    registry.put(make.document(targets=[]))
    assert "spec.targets" in str(registry.entries[KEY].error)
    assert (registry.probes, registry.refused) == ({}, {KEY: "uid-shop-checkout"})
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


def large(make: Any, targets: int) -> dict[str, Any]:
    """A LatencyProbe with the longest selectors that the CRD takes."""
    values = ["v" * 59 + f"{number:04}" for number in range(32)]
    expressions = [{"key": f"{'k' * 50}.example.com/{i}", "operator": "NotIn", "values": values} for i in range(16)]
    selectors = [{"name": f"t{i}", "podSelector": {"matchExpressions": expressions}} for i in range(targets)]
    found: dict[str, Any] = make.document(targets=selectors, objectives=[])
    return found


def test_a_spec_that_is_too_large_is_refused_with_the_remedy_and_nothing_of_it_is_kept(
    registry: Registry, make: Any
) -> None:
    registry.put(large(make, 32))
    entry = registry.entries[KEY]
    assert registry.probes == {}
    assert (entry.probe, entry.error.reason) == (None, "InvalidSpec")  # type: ignore[union-attr]
    assert str(entry.error) == "spec: 1,136,979 bytes as JSON: at most 65,536: split it into several LatencyProbes"
    registry.put(versioned(large(make, 1), 2, "uid-shop-checkout"))
    assert set(registry.probes) == {KEY}


def test_who_makes_latencyprobes_without_end_has_room_for_some_and_leaves_it_to_the_others(make: Any) -> None:
    registry = Registry(room=500_000)
    for number in range(2_000):
        registry.put(make.document(f"p{number}", "evil"))
    registry.put(make.document())
    of_evil = [key for key in registry.probes if key[0] == "evil"]
    assert 40 < len(of_evil) < 60, "half of it"
    assert KEY in registry.probes
    told = [entry for entry in registry.entries.values() if entry.error is not None]
    assert {entry.error.reason for entry in told} == {"NoRoom"}  # type: ignore[union-attr]
    assert (len(told), len(registry.entries), registry.without_room) == (NAMED, 1 + len(of_evil) + NAMED, NAMED)


def test_what_had_no_room_is_taken_with_the_next_list_once_there_is_some(changed: Changed, make: Any) -> None:
    registry = Registry(changed, room=30_000)
    documents = [make.document(f"p{number}") for number in range(5)]
    for document in documents:
        registry.put(document)
    held = set(registry.probes)
    assert 0 < len(held) < 5
    before = changed.count
    listed(registry, *documents)
    assert (set(registry.probes), changed.count) == (held, before), "nothing is new"
    gone = [document for document in documents if ("shop", document["metadata"]["name"]) in held]
    for _ in range(2):  # what is gone is known at a list's end
        listed(registry, *(document for document in documents if document not in gone))
    assert set(registry.probes) == {("shop", one["metadata"]["name"]) for one in documents if one not in gone}
    assert registry.without_room == 0


def test_objectives_without_room_are_told_and_are_back_when_there_is_some(make: Any) -> None:
    registry = Registry(objectives=ObjectiveRoom(lambda: 2))
    registry.put(make.document())
    for number in range(3):
        registry.put(make.document(f"p{number}", "evil"))
    assert set(registry.probes) == {KEY, ("evil", "p0")}
    assert registry.entries["evil", "p2"].error.reason == "NoRoom"  # type: ignore[union-attr]
    assert registry.refused == {("evil", f"p{number}"): f"uid-evil-p{number}" for number in (1, 2)}
    assert registry.without_room == 2
    registry.drop(("evil", "p0"), "uid-evil-p0")
    assert set(registry.probes) == {KEY, ("evil", "p1")}
    registry.put(versioned(make.document("p2", "evil"), 2, "uid-evil-p2", objectives=[]))
    assert set(registry.probes) == {KEY, ("evil", "p1"), ("evil", "p2")}
    assert registry.without_room == 0


def test_objectives_are_back_with_the_next_list_once_the_volume_was_enlarged(make: Any, changed: Changed) -> None:
    most = [1]
    registry = Registry(changed, objectives=ObjectiveRoom(lambda: most[0]))
    documents = [make.document("a"), make.document("b")]
    listed(registry, *documents)
    assert set(registry.probes) == {("shop", "a")}
    before = changed.count
    most[0] = 2
    listed(registry, *documents)
    assert (changed.count, set(registry.probes)) == (before + 1, {("shop", "a"), ("shop", "b")})
    assert registry.without_room == 0
    listed(registry, *documents)
    assert changed.count == before + 1, "nothing is new"
    most[0] = 1
    listed(registry, *documents)
    assert (changed.count, set(registry.probes)) == (before + 2, {("shop", "a")})


def test_events_of_a_watch_put_and_drop(registry: Registry, make: Any) -> None:
    document = versioned(make.document(), 1)
    for kind in (None, "ADDED", "MODIFIED"):
        registry.happened(kind, document)
        assert set(registry.probes) == {KEY}
    registry.happened("DELETED", document)
    assert registry.entries == {}


def test_status_that_a_restored_etcd_has_from_before_or_that_somebody_changed_is_written_again(
    registry: Registry, make: Any
) -> None:
    ours = {"nodes": "1/1", "slo": "Met", "conditions": [{"type": "Ready", "status": "True", "reason": "Ready"}]}
    registry.put(make.document())
    for said, kept in (
        (ours, True),
        ({**ours, "class": "theirs", "conditions": [{"type": "Theirs"}, *ours["conditions"]]}, True),
        ({key: value for key, value in ours.items() if key != "slo"}, True),
        ({**ours, "nodes": "0/1"}, False),
        ({**ours, "conditions": [{"type": "Ready", "status": "False", "reason": "Ready"}]}, False),
        ({**ours, "conditions": []}, False),
        (None, False),
        ("odd", False),
    ):
        registry.written[KEY] = ours
        listed(registry, make.document() | {"status": said})
        assert (registry.written[KEY] is ours) == kept, said


def test_status_that_is_written_while_the_list_is_read_is_newer(registry: Registry, make: Any) -> None:
    registry.put(make.document())
    registry.written[KEY] = {"nodes": "0/1"}

    async def read() -> AsyncIterator[dict[str, Any]]:
        registry.written[KEY] = {"nodes": "1/1"}
        yield make.document() | {"status": {"nodes": "0/1"}}

    asyncio.run(registry.resync(read))
    assert registry.written[KEY] == {"nodes": "1/1"}
