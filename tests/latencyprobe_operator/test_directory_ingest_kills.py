"""An agent's uplink is killed fifty times while rows come and batches are under way: each row counts once."""

import asyncio
import json
import os
import random
import shutil
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.sli import SliAnswer, SliBatch
from latencyprobe.slo.objective import ObjectiveKey, objectives
from latencyprobe.store import SqliteStore
from tests.latencyprobe_operator.directory_world import Play, World
from tests.latencyprobe_operator.uplink_writer import LOWEST, MINUTES

pytestmark = pytest.mark.slow

KILLS = 50
WRITER = Path(__file__).with_name("uplink_writer.py")


class Writer:
    """The writer's processes. `kept`: numbers of the rows that it had on disk."""

    def __init__(self, process: Process) -> None:
        self.kept: list[int] = []
        self.left = -1
        self._process = process

    async def run(self, first: int, killed_after_s: float | None) -> None:
        assert self._process.stdin
        self._process.stdin.write(f"{first}\n".encode())
        pid = 0
        while (words := await self._words()) != ["ended"]:
            assert words[0] != "problem", words
            if words[0] == "pid":
                pid = int(words[1])
            elif words[0] == "left":
                self.left = int(words[1])
            else:
                self.kept += map(int, words[1:])
                if killed_after_s is not None:
                    await asyncio.sleep(killed_after_s)
                    os.kill(pid, signal.SIGKILL)
                    killed_after_s = None

    async def _words(self) -> list[str]:
        assert self._process.stdout
        line = await asyncio.wait_for(self._process.stdout.readline(), 60)
        assert line, "the writer has ended"
        return line.decode().split()


def numbers(store: SqliteStore, key: ObjectiveKey, newest: int) -> Counter[int]:
    """How often each row was counted."""
    found: Counter[int] = Counter()
    for at in range(MINUTES):
        minute = newest - at * 60
        for bucket, count in store.read(key, minute, minute + 60).histogram.items():
            found[(bucket - LOWEST) * MINUTES + at] = count
    return found


def test_after_fifty_kills_every_row_that_the_agent_had_on_disk_counts_once(
    play: Play, make: Any, tls_dir: Path, tmp_path: Path
) -> None:
    seed = int(time.time())
    print("seed", seed)
    rng = random.Random(seed)
    newest = seed // 60 * 60
    (objective,) = objectives(make.probe())
    (tmp_path / "token").write_text("token-n1")
    shutil.copy(tls_dir / "tls.crt", tmp_path)

    async def scene(it: World) -> None:
        stored: Counter[tuple[str, int]] = Counter()
        it.ingest.asked._now["n1"][objective.key] = newest - 86_400  # it has measured for a day
        take = it.ingest.take

        async def slowly(node: str, batch: SliBatch, size: int) -> SliAnswer:
            answer = await take(node, batch, size)
            stored[batch.instance, batch.sequence] += 1
            await asyncio.sleep(rng.uniform(0, 0.03))  # stored, and not answered yet
            return msgspec.structs.replace(answer, next_upload_s=0.0)

        it.ingest.take = slowly  # type: ignore[method-assign]
        command = [sys.executable, str(WRITER), str(tmp_path), it.url, json.dumps(objective.key), str(newest)]
        process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE)
        writer = Writer(process)
        try:
            for run in range(KILLS):
                await writer.run(3000 * run, rng.uniform(0, 0.15))
            await writer.run(-1, None)
        finally:
            process.kill()
            await process.wait()
        it.store_thread.store.settle()
        counted = numbers(it.store_thread.store, objective.key, newest)
        repeated = sum(times > 1 for times in stored.values())
        print(f"{len(writer.kept)} rows kept, {len(counted)} counted, {repeated} of {len(stored)} batches sent again")
        assert 0 == writer.left
        assert not {number: counted[number] for number in writer.kept if counted[number] != 1}
        assert {1} == set(counted.values())
        assert repeated, "kills fell between storing and answering"
        assert not it.ingest.dropped
        assert len({instance for instance, _ in stored}) == 1

    play(scene)
