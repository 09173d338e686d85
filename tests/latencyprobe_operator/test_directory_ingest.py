"""SLI batches: each once, none of foreign objectives, gaps named."""

import asyncio
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.directory.ingest import Ingest
from latencyprobe_operator.directory.limits import Refused
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.store_thread import StoreThread

NOW = int(time.time()) // 60 * 60


def row(make: Any, **fields: Any) -> SliRow:
    (objective,) = objectives(make.probe())
    base = SliRow(*objective.key, minute=NOW, good=9, bad=1, coverage=Coverage(seen=10, measured_ms=1000))
    return msgspec.structs.replace(base, **fields)


class Post:
    """Posts batches one after the other to a fresh store and returns what is in it afterwards."""

    def __init__(self, make: Any, path: Path) -> None:
        self.make, self.path = make, path

    def __call__(
        self, *batches: tuple[str, int, list[SliRow]], planned: bool = True, began: int = NOW - 600
    ) -> tuple[list[int], int, Ingest]:
        async def play() -> tuple[list[int], int, Ingest]:
            planner, state = Planner(1), self.make.state(self.make.pod("cart-1"))
            probe = self.make.probe()
            planner.update({("shop", "checkout"): probe}, state, state.take_changes())
            (objective,) = objectives(probe)
            async with StoreThread(lambda: SqliteStore(self.path)) as store_thread:
                times = iter([began])
                ingest = Ingest(store_thread, lambda: {objective.key}, lambda: next(times, NOW))
                if planned:
                    ingest.planned(planner.plan_of("n1"))
                expected = [await ingest.take("n1", SliBatch(i, number, tuple(rows))) for i, number, rows in batches]
                total = store_thread.store.events(objective.key, NOW - 3600, NOW + 3600).total
            return expected, total, ingest

        return asyncio.run(play())


@pytest.fixture
def post(make: Any, tmp_path: Path) -> Post:
    return Post(make, tmp_path / "sli.db")


def test_batches_in_sequence_are_added_up(post: Post, make: Any) -> None:
    expected, total, _ = post(("i", 0, [row(make)]), ("i", 1, [row(make)]))
    assert (expected, total) == ([1, 2], 20)


def test_batch_that_is_sent_again_counts_once(post: Post, make: Any) -> None:
    expected, total, _ = post(("i", 0, [row(make)]), ("i", 0, [row(make)]))
    assert (expected, total) == ([1, 1], 10)


def test_gap_stores_nothing_and_names_the_expected_number(post: Post, make: Any) -> None:
    expected, total, _ = post(("i", 0, [row(make)]), ("i", 2, [row(make)]))
    assert (expected, total) == ([1, 1], 10)


def test_unknown_instance_starts_anywhere(post: Post, make: Any) -> None:
    expected, total, _ = post(("i", 0, [row(make)]), ("restarted", 7, [row(make)]))
    assert (expected, total) == ([1, 8], 20)


@pytest.mark.parametrize("fields", [{"namespace": "bank"}, {"probe_uid": "forged"}, {"objective": "x"}, {"hash": "y"}])
def test_rows_of_objectives_that_the_node_was_not_asked_for_are_dropped_and_counted(
    post: Post, make: Any, fields: dict[str, str]
) -> None:
    expected, total, ingest = post(("i", 0, [row(make), row(make, **fields)]))
    assert (expected, total) == ([1], 10)
    assert ingest.dropped == {"not_asked": 1}


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"minute": NOW + 300}, "future"),
        ({"minute": NOW + 1}, "impossible_minute"),
        ({"good": -(10**18)}, "impossible_good"),
        ({"histogram": {3: -2}}, "impossible_histogram"),
        ({"coverage": Coverage(expected_ms=1)}, "impossible_coverage"),
        ({"exclusions": {"push": 1}}, "impossible_exclusions"),
    ],
)  # fmt: skip
def test_impossible_row_is_dropped_and_counted_and_the_rest_of_its_batch_is_kept(
    post: Post, make: Any, caplog: pytest.LogCaptureFixture, fields: dict[str, Any], reason: str
) -> None:
    batches = [("i", number, [row(make, **fields), row(make)]) for number in range(2)]
    expected, total, ingest = post(*batches)
    assert (expected, total, ingest.accepted, ingest.dropped) == ([1, 2], 20, 2, {reason: 2})
    (said,) = (record.message for record in caplog.records)
    assert said.startswith("n1: SLI rows of its agent are dropped: ")


@pytest.mark.parametrize(
    ("instance", "sequence", "path"), [("i", -1, "sequence"), ("i", 1 << 63, "sequence"), ("i" * 254, 0, "instance")]
)
def test_batch_that_no_agent_numbers_is_refused_with_its_path(
    post: Post, make: Any, instance: str, sequence: int, path: str
) -> None:
    with pytest.raises(Refused, match=rf"^\$\.{path}: ") as refused:
        post((instance, sequence, [row(make)]))
    assert refused.value.status == 400


def test_rows_from_before_our_start_are_taken_from_a_node_that_has_nothing_to_count_any_more(
    post: Post, make: Any
) -> None:
    before, after = row(make, minute=NOW - 120), row(make)
    expected, total, ingest = post(("i", 0, [before, after]), planned=False, began=NOW - 60)
    assert (expected, total, ingest.dropped) == ([1], 10, {"not_asked": 1})
