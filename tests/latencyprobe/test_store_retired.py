"""Definitions that are retired: the latest of each namespace are kept, with their counts."""

import pytest

from latencyprobe.slo.evaluate import Events
from latencyprobe.slo.objective import Objective, ObjectiveKey
from latencyprobe.store import SqliteStore, retired
from tests.latencyprobe.store_rows import DAY_S, HOUR_S, KEY, NOW, row

EDITS, KEPT = 30, 10


def edit(store: SqliteStore, number: int, namespace: str = "shop", minute: int = NOW) -> ObjectiveKey:
    """Another definition of an objective, and what it counted."""
    key = KEY._replace(namespace=namespace, hash=f"h{number}")
    store.define(namespace, KEY.probe, [Objective(key, "cart", 1, "99", "28d", 100, errors_count_as_bad=True)])
    store.add([row(minute, key=key)])
    return key


def test_edits_without_end_leave_the_latest_definitions_alone(
    empty_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(retired, "KEPT", KEPT)
    theirs = [edit(empty_store, number, "bank") for number in range(KEPT)]
    keys = [edit(empty_store, number) for number in range(EDITS)]
    never_defined = KEY._replace(hash="never defined")
    empty_store.ask({"n1": {never_defined: NOW, keys[0]: NOW}})
    for _ in range(2):
        empty_store.compact(NOW)
    counted = [empty_store.events(key, NOW, NOW + 60) for key in keys]
    assert counted == [Events(0, 0)] * (EDITS - KEPT) + [Events(1, 0)] * KEPT
    assert {empty_store.events(key, NOW, NOW + 60) for key in theirs} == {Events(1, 0)}, "of another namespace"
    (left,) = empty_store._db.execute("SELECT count(*) FROM series WHERE namespace = 'shop'").fetchone()
    assert left == KEPT + 2, "and those that a node was asked for"


def test_what_is_asked_for_again_has_no_sums_of_what_was_forgotten(
    empty_store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = edit(empty_store, 0, minute=NOW - 5 * HOUR_S)
    empty_store.ask({"n1": {first: NOW}})
    assert empty_store.read(first, NOW - 30 * DAY_S, NOW).good == 1
    edit(empty_store, 1)
    monkeypatch.setattr(retired, "KEPT", 0)
    empty_store.compact(NOW)
    assert empty_store.read(first, NOW - 30 * DAY_S, NOW).good == 0
