"""SLI batches: each once, none of foreign objectives, gaps named."""

import asyncio
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.sli import Coverage, PeerCounts, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe.store import SqliteStore
from latencyprobe_operator.cluster import loops as loops_
from latencyprobe_operator.directory import ingest as ingest_
from latencyprobe_operator.directory.ingest import ROW_BYTES, Ingest
from latencyprobe_operator.directory.limits import MAX_ROWS, Refused
from latencyprobe_operator.plan.planner import Planner
from latencyprobe_operator.reports.store_thread import FakeStoreThread, StoreThread
from tests.support.waiting import until

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
        self, *batches: tuple[str, int, list[SliRow]], planned: bool = True, now: int = NOW
    ) -> tuple[list[int], int, Ingest]:
        async def play() -> tuple[list[int], int, Ingest]:
            planner, state = Planner(1), self.make.state(self.make.pod("cart-1"))
            probe = self.make.probe()
            planner.update({("shop", "checkout"): probe}, state, state.take_changes())
            (objective,) = objectives(probe)
            async with StoreThread(lambda: SqliteStore(self.path, clock=lambda: now)) as store_thread:
                ingest = Ingest(store_thread, lambda: now)
                if planned:
                    ingest.asked.planned(planner.plan_of("n1"))
                await ingest.asked.save()
                answers = [await ingest.take("n1", SliBatch(i, number, tuple(rows))) for i, number, rows in batches]
                expected = [answer.expected for answer in answers]
                await store_thread.run(store_thread.store.settle)
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


def test_row_that_comes_more_than_a_day_late_is_dropped_and_counted(post: Post, make: Any) -> None:
    post(now=NOW - 2 * 86_400)  # it was asked then
    expected, total, ingest = post(("i", 0, [row(make), row(make, minute=NOW - 86_400 - 600)]))
    assert (expected, total, ingest.accepted, ingest.dropped) == ([1], 10, 1, {"late": 1})
    with SqliteStore(post.path, readonly=True) as store:
        assert store.late_rows == 1


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


def test_figures_by_peer_that_come_too_late_to_be_kept_do_not_wait_for_the_store(make: Any) -> None:
    by_peer = {"shop/web": PeerCounts(10, 1, {-200: 10})}
    rows = tuple(row(make, minute=minute, by_peer=by_peer) for minute in (NOW - 900, NOW))

    async def play() -> list[tuple[int, bool]]:
        now, stored, planned = [NOW - 3600], FakeStoreThread(), make.planned(make.pod("cart-1"))
        ingest = Ingest(stored, lambda: now[0])
        ingest.asked.known = True
        ingest.asked.planned(planned.planner.plan_of("n1"))
        now[0] = NOW
        await ingest.take("n1", SliBatch("i", 0, rows))
        ((_, batch),) = stored.batches
        return [(one.minute, bool(one.by_peer)) for one in batch.rows]

    assert asyncio.run(play()) == [(NOW - 900, False), (NOW, True)]


def test_late_rows_are_taken_after_a_restart_from_the_node_that_was_asked_for_them(post: Post, make: Any) -> None:
    post(now=NOW - 7200)
    late = row(make, minute=NOW - 3600)
    assert post(("i", 0, [late]), planned=False)[:2] == ([1], 10)


def test_minutes_of_another_node_from_before_our_start_cannot_be_forged(post: Post, make: Any) -> None:
    forged = row(make, minute=NOW - 3600)
    expected, total, ingest = post(("i", 0, [forged, row(make)]))  # asked for it since now
    assert (expected, total, ingest.dropped) == ([1], 10, {"not_asked": 1})


def test_nothing_is_taken_before_it_is_known_what_was_asked_for(make: Any, tmp_path: Path) -> None:
    async def scene() -> None:
        async with StoreThread(lambda: SqliteStore(tmp_path / "sli.db")) as store_thread:
            with pytest.raises(Refused) as refused:
                await Ingest(store_thread).take("n1", SliBatch("i", 0, (row(make),)))
            assert (refused.value.status, refused.value.retry_after_s) == (503, 5.0)

    asyncio.run(scene())


def ingest_of(make: Any) -> Ingest:
    """One that knows what n1 and n2 are asked for, without a store."""
    ingest, planned = (
        Ingest(FakeStoreThread(), lambda: NOW),
        make.planned(make.pod("cart-1"), make.pod("cart-2", node="n2")),
    )
    ingest.asked.known = True
    ingest.asked.planned(*map(planned.planner.plan_of, ("n1", "n2")))
    return ingest


@pytest.mark.parametrize("size", [0, 100 * ROW_BYTES], ids=["by rows", "by bytes"])
def test_who_hands_in_too_much_is_told_to_wait_and_keeps_nobody_out(
    make: Any, monkeypatch: pytest.MonkeyPatch, size: int
) -> None:
    monkeypatch.setattr(ingest_, "ROWS_AT_ONCE", 200)
    monkeypatch.setattr(ingest_, "ROWS_PER_S", 0.001)
    rows = (row(make),) * (1 if size else 100)

    async def scene() -> None:
        ingest = ingest_of(make)

        async def post(node: str, number: int) -> int:
            ingest.admit(node, size)
            return (await ingest.take(node, SliBatch("i", number, rows), size)).expected

        assert [1, 2] == [await post("n1", number) for number in range(2)]
        with pytest.raises(Refused) as refused:
            await post("n1", 2)
        assert (refused.value.status, round(refused.value.retry_after_s)) == (429, 1000)
        assert await post("n2", 0) == 1

    asyncio.run(scene())


def test_others_run_while_rows_are_sorted_out(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loops_, "SLICE_S", 0.0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def scene() -> None:
        task = asyncio.create_task(others())
        await ingest_of(make).take("n1", SliBatch("i", 0, (row(make),) * 100))
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        assert turns >= 100

    asyncio.run(scene())


def test_long_rows_take_the_room_of_more(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With figures by peer a row is some times as long: of those that wait, memory is what runs out."""

    async def scene() -> None:
        ingest = ingest_of(make)
        stored = asyncio.Event()
        monkeypatch.setattr(ingest.intake, "_store", partial(away, stored))
        task = asyncio.create_task(ingest.take("n1", SliBatch("i", 0, (row(make),) * 250), 3_000_000))
        await until(lambda: ingest.intake.commits, "they wait for the store")
        assert ingest.intake.rows == 1_500
        task.cancel()
        stored.set()
        await until(lambda: ingest.intake.rows == 0, "no room is taken")

    asyncio.run(scene())


def test_what_is_sorted_out_takes_the_room_of_what_waits_for_the_store(
    make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is sorted out in slices is all in memory, and so is what is dropped, until its batch is answered."""
    monkeypatch.setattr(loops_, "SLICE_S", 0.0)
    foreign = (row(make, namespace="bank"),) * (MAX_ROWS - 1)

    async def scene() -> None:
        ingest = ingest_of(make)
        stored = asyncio.Event()
        monkeypatch.setattr(ingest.intake, "_store", partial(away, stored))

        async def refused(*rows: SliRow) -> bool:
            try:
                async with asyncio.timeout(10):
                    await ingest.take("n1", SliBatch("i", 0, rows))
            except Refused as error:
                return error.status == 503 and error.retry_after_s > 0
            return False

        def posted() -> asyncio.Task[bool]:
            return asyncio.create_task(refused(*foreign, row(make)))

        tasks = [posted(), posted()]
        await asyncio.sleep(0)
        assert await refused(row(make)), "they are being sorted out"
        await until(lambda: ingest.intake.commits, "one is stored")
        assert await refused(row(make)), "they wait for the store"
        tasks[0].cancel()
        stored.set()
        assert not await tasks[1]
        await until(lambda: ingest.intake.rows == 0, "no room is taken")
        assert not await refused(*foreign, row(make))

    asyncio.run(scene())


async def away(stored: asyncio.Event, batches: Any) -> list[int]:
    """A store that answers once `stored` is set."""
    await stored.wait()
    return [1] * len(batches)
