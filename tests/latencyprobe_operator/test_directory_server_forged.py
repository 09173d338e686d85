"""Forged counts over real TLS: they harm neither other counts, nor the directory, nor the evaluation."""

import asyncio
import json
import time
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.sli import Coverage, SliBatch, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe_operator.directory import callers
from latencyprobe_operator.reports import documents as reports
from tests.latencyprobe_operator.directory_world import Play, World

TWO = [{"name": name, "target": "cart", "threshold": "25ms", "goal": "99"} for name in ("fast", "other")]
FORGED: dict[str, Any] = {"good": 10**18, "histogram": {40_000: 10**18}}


def row_of(probe: Any, name: str, **fields: Any) -> SliRow:
    key = next(o.key for o in objectives(probe) if o.key.objective == name)
    counts: dict[str, Any] = {"good": 200, "histogram": {-200: 200}, "coverage": Coverage(seen=200, measured_ms=5000)}
    return SliRow(*key, minute=int(time.time()) // 60 * 60, **(counts | fields))


async def evaluated(it: World, probe: Any) -> dict[str, dict[str, Any]]:
    await it.store_thread.run(it.store_thread.store.settle)
    found = await it.store_thread.run(reports.evaluate, it.store_thread.store, [probe], int(time.time()))
    return {result["objective"]: result for result in found.report["results"]}


def test_forged_row_is_dropped_and_counted_and_takes_nothing_from_the_others(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        probe = make.probe(objectives=TWO)
        it.plan(probe)
        rows = (row_of(probe, "fast", **FORGED), row_of(probe, "fast"), row_of(probe, "other"))
        status, body = await it.call("POST", "/v1/nodes/n1/sli", SliBatch("i", 0, rows))
        assert (status, msgspec.json.decode(body)) == (200, {"expected": 1, "next_upload_s": 5.0})
        found = await evaluated(it, probe)
        assert {name: (r["state"], r["events"]) for name, r in found.items()} == {
            "fast": ("Met", 200),
            "other": ("Met", 200),
        }
        assert (it.ingest.accepted, it.ingest.dropped) == (2, {"impossible_good": 1})

    play(scene)


def test_forged_row_that_an_older_version_stored_makes_its_own_objective_incomplete(play: Play, make: Any) -> None:
    async def scene(it: World) -> None:
        probe = make.probe(objectives=TWO)
        it.plan(probe)
        await it.store_thread.run(it.store_thread.store.add, [row_of(probe, "fast", **FORGED)])
        batch = SliBatch("i", 0, (row_of(probe, "fast"), row_of(probe, "other")))
        assert (await it.call("POST", "/v1/nodes/n1/sli", batch))[0] == 200
        found = await evaluated(it, probe)
        assert {name: (r["state"], r["events"]) for name, r in found.items()} == {
            "fast": ("Incomplete", 0),
            "other": ("Met", 200),
        }
        assert "its counts are broken (good is 1000000000000000200, which cannot be)" in found["fast"]["reason"]
        assert "reason" not in found["other"]

    play(scene)


wild = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**29), 10**29) | st.floats() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=9), inner, max_size=4),
    max_leaves=9,
)
FIELDS = [field.name for field in msgspec.structs.fields(SliRow)]


def test_nothing_that_is_posted_ends_the_directory_or_the_evaluation(
    play: Play, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers.Bucket, "take", lambda _: True)
    probe = make.probe(objectives=TWO)

    async def scene(it: World) -> None:
        it.plan(probe)
        loop, instances = asyncio.get_running_loop(), map(str, range(1 << 20))
        fields = st.dictionaries(st.sampled_from(FIELDS), wild, max_size=3)
        number = st.integers(-(10**29), 10**29) | st.integers(-200, 1 << 20)
        sums = st.dictionaries(st.text(max_size=9) | number.map(str), number)
        counts = st.fixed_dictionaries({}, optional=dict.fromkeys(["good", "bad", "minute"], number))
        sparse = st.fixed_dictionaries({}, optional=dict.fromkeys(["histogram", "stage_ns", "dominant", "peers"], sums))

        @given(wild | st.lists(fields | counts | sparse, max_size=3), st.binary(max_size=9))
        def post(rows: Any, rest: bytes) -> None:
            batch: Any = {"instance": next(instances), "sequence": 0, "rows": rows}
            if isinstance(rows, list):
                whole = msgspec.to_builtins(row_of(probe, "fast"), str_keys=True)
                batch["rows"] = [whole | row if isinstance(row, dict) else row for row in rows]
            for body in (json.dumps(batch).encode(), rest):
                call = it.call("POST", "/v1/nodes/n1/sli", body)
                assert asyncio.run_coroutine_threadsafe(call, loop).result(30)[0] in (200, 400)

        await asyncio.to_thread(post)
        assert (await it.call("GET", "/readyz"))[0] == 200
        await it.call("POST", "/v1/nodes/n1/sli", SliBatch("j", 0, (row_of(probe, "other"),)))
        found = await evaluated(it, probe)
        assert ("Met", 200) == (found["other"]["state"], found["other"]["events"])

    play(scene)
