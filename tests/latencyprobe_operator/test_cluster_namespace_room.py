"""Room for the objects of namespaces."""

import random
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from latencyprobe_operator.cluster.namespace_room import NamespaceRoom, size_of
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.cluster.state import ClusterState


def pod(namespace: str, number: int, **fields: Any) -> Pod:
    return Pod(f"u{number:04}", namespace, f"p{number:04}", node="n1", addresses=(f"10.0.0.{number % 10}",), **fields)


ONE = size_of(pod("evil", 0))


def names(state: ClusterState, namespace: str) -> list[str]:
    return [one.name for one in state.pods(namespace)]


def test_who_makes_objects_without_end_loses_his_own_and_the_others_have_room(
    caplog: pytest.LogCaptureFixture,
) -> None:
    state = ClusterState(room=100 * ONE)
    for number in range(1_000):
        state.put("pods", pod("evil", number))
    assert len(names(state, "evil")) == 50, "half of it, while there is room"
    for number in range(50):
        state.put("pods", pod("shop", number))
    for number in range(10):
        state.put("pods", pod("bank", number))
    assert (len(names(state, "shop")), len(names(state, "bank"))) == (50, 10)
    assert state.room.count() == {"pods": 950}
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["evil"], "told once"


def test_an_object_that_grows_beyond_the_room_is_gone_and_is_back_when_it_fits() -> None:
    state = ClusterState(room=10 * ONE)
    known = pod("evil", 1)
    state.put("pods", known)
    state.take_changes()
    state.put("pods", replace(known, labels={"much": "x" * 10_000}))
    assert names(state, "evil") == []
    assert list(state.pods_at("10.0.0.1")) == []
    assert (state.lacks("pods"), state.lacks("services")) == (True, False)
    changes = state.take_changes()
    assert (changes.namespaces, changes.addresses) == ({"evil"}, {"10.0.0.1"})
    state.put("pods", known)
    assert (names(state, "evil"), state.lacks("pods")) == (["p0001"], False)


def test_what_was_left_out_is_forgotten_when_it_goes() -> None:
    state = ClusterState(room=10 * ONE)
    for number in range(7):
        state.put("pods", pod("evil", number))
    assert len(state.room.left_out["evil"]) == 2
    state.take_changes()
    state.drop("pods", ("evil", "p0006"))
    assert (len(state.room.left_out["evil"]), state.take_changes().namespaces) == (1, {"evil"})
    state.replace("pods", [pod("evil", number) for number in range(4)])
    assert (state.room.left_out, len(names(state, "evil"))) == ({}, 4)


def test_a_list_brings_back_what_has_room_now() -> None:
    state = ClusterState(room=10 * ONE)
    for number in range(8):
        state.put("pods", pod("evil", number))
    for number in range(5):
        state.drop("pods", ("evil", f"p{number:04}"))
    assert (names(state, "evil"), state.lacks("pods")) == ([], True)
    state.replace("pods", [pod("evil", number) for number in range(5, 8)])
    assert (len(names(state, "evil")), state.lacks("pods")) == (3, False)


def test_it_is_counted_right_whatever_comes_changes_and_goes() -> None:
    chance = random.Random(4)
    room, held = NamespaceRoom(40 * ONE), dict[tuple[str, str], Pod]()
    for _ in range(5_000):
        key = chance.choice("abcd"), f"p{chance.randrange(30):04}"
        if chance.random() < 0.3:
            room.gone(key[0], "pods", key[1], size_of(held.pop(key, None)))
            continue
        new = replace(pod(key[0], 0), labels={"l": "x" * chance.randrange(300)})
        if room.take(key[0], "pods", key[1], size_of(new), size_of(held.pop(key, None))):
            held[key] = new
        sizes: Counter[str] = Counter()
        for (namespace, _), one in held.items():
            sizes[namespace] += size_of(one)
        assert (room._bytes, room._whole) == (sizes, sizes.total())
        assert sizes.total() <= 2 * 40 * ONE
