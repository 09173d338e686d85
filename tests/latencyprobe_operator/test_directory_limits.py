"""Token buckets, and what is remembered of nodes."""

from typing import Any

from latencyprobe_operator.directory.limits import Bucket, ByNode, Recent
from latencyprobe_operator.reports.store_thread import FakeStoreThread
from tests.latencyprobe_operator.directory_world import World


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_bucket_gives_its_burst_at_once_and_its_rate_from_then_on() -> None:
    clock = Clock()
    bucket = Bucket(per_s=2, burst=5, clock=clock)
    assert [bucket.take() for _ in range(6)] == [True] * 5 + [False]
    clock.now_s = 1.0
    assert [bucket.take() for _ in range(3)] == [True, True, False]


def test_bucket_never_holds_more_than_its_burst() -> None:
    clock = Clock()
    bucket = Bucket(per_s=2, burst=5, clock=clock)
    clock.now_s = 1000.0
    assert [bucket.take() for _ in range(6)].count(True) == 5


def test_looking_takes_nothing() -> None:
    bucket = Bucket(per_s=2, burst=1, clock=Clock())
    assert [bucket.empty(), bucket.empty(), bucket.take(), bucket.empty()] == [False, False, True, True]


def test_what_is_spent_beyond_the_burst_is_waited_for() -> None:
    clock = Clock()
    bucket = Bucket(per_s=2, burst=5, clock=clock)
    bucket.spend(8)
    assert (bucket.empty(), bucket.wait_s) == (True, 2.0)
    clock.now_s = 2.0
    assert (bucket.empty(), bucket.wait_s) == (False, 0.0)


def test_a_node_has_its_own_until_it_is_not_kept() -> None:
    buckets = ByNode(lambda: Bucket(per_s=0, burst=1))
    assert [buckets.of(node).take() for node in ("n1", "n2", "n1")] == [True, True, False]
    buckets.keep({"n2", "n3"})
    assert [buckets.of(node).take() for node in ("n1", "n2")] == [True, False]


def test_of_many_those_who_came_last_are_remembered() -> None:
    recent = Recent[str, Bucket](2, lambda: Bucket(per_s=0, burst=1, clock=Clock()))
    assert [recent.of(one).take() for one in ("a", "b", "a", "c", "a", "b")] == [True, True, False, True, False, True]
    assert len(recent) == 2


def test_the_directory_remembers_nothing_of_nodes_that_have_gone(make: Any) -> None:
    world = World(make, FakeStoreThread())
    directory = world.directory
    for number in range(100):
        node = f"spot-{number}"
        directory.answers.lookups.may_learn(node, "10.0.0.1", "shop", set())
        directory.answers.lookups.admit(node, 1)
        directory.callers.requests.of(node), directory.callers.statuses.of(node)
        directory.streams.switchboard.budgets.of(node)
        world.ingest.said.of(node), world.ingest.rows.of(node)
    directory.keep({"spot-7"})
    remembered = (directory.answers.lookups.told, directory.callers.requests, directory.callers.statuses)
    others = (directory.streams.switchboard.budgets, world.ingest.said, world.ingest.rows)
    others += (directory.answers.lookups.asked,)
    assert [len(by_node) for by_node in (*remembered, *others)] == [1] * 7
