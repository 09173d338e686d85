"""An hour without the operator: an agent's uplink keeps its counts on disk, and hands each over once afterwards, also
where it is told to wait in between."""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from latencyprobe.sli import Coverage, SliRow
from latencyprobe.slo.objective import objectives
from latencyprobe_agent.directory import uplink as uplink_
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows
from latencyprobe_operator.directory.limits import Bucket, ByNode
from tests.latencyprobe_operator.directory_world import Play, World

HOUR_S = 3600
EVERY_S = 5  # a loop hands over its counts
STARTS = 4  # of the agent, within the hour


class Agent:
    """The part of an agent that hands over counts, which begins anew with what is on its disk."""

    def __init__(self, directory: Directory, folder: Path, clock: Callable[[], float]) -> None:
        self._of = directory, folder, clock
        self.begin()

    def begin(self) -> None:
        directory, folder, clock = self._of
        self.waiting = WaitingRows(folder, clock=clock)
        self.uplink = Uplink(directory, self.waiting)
        self.uplink.start()

    def settled(self) -> bool:
        """Whether everything is on the disk, and the directory was asked in vain."""
        return not self.uplink._taken and len(self.waiting) > 0 and "unreachable" in self.uplink.problem


def test_counts_of_an_hour_without_the_operator_arrive_once_when_it_is_back(
    play: Play, make: Any, tls_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the agent's clock, which goes as fast as it counts."""
    monkeypatch.setattr(uplink_, "_FIRST_RETRY_S", 0.02)
    monkeypatch.setattr(uplink_, "_LONGEST_RETRY_S", 0.02)
    (objective,) = objectives(make.probe())
    ended = int(time.time()) // 60 * 60
    now = ended - HOUR_S
    (tmp_path / "token").write_text("token-n1")
    shutil.copy(tls_dir / "tls.crt", tmp_path)
    counted: Counter[int] = Counter()

    def counts() -> SliRow:
        minute, good = now // 60 * 60, now % 7 + 1
        counted[minute] += good
        return SliRow(*objective.key, minute, good, coverage=Coverage(seen=good))

    async def scene(it: World) -> None:
        nonlocal now
        it.ingest.asked._now["n1"][objective.key] = now - 86_400  # it has measured for a day
        away = Directory("https://127.0.0.1:1", "n1", token_file=tmp_path / "token", ca_file=tmp_path / "tls.crt")
        agent = Agent(away, tmp_path / "state", lambda: now)
        for start in range(STARTS):
            while now < ended - HOUR_S + HOUR_S * (start + 1) // STARTS:
                agent.uplink.add([counts()])
                now += EVERY_S
            await make.until(agent.settled, "it is on the disk, and why it waits is told", 60)
            await asyncio.to_thread(agent.uplink.stop, 5.0)
            agent.begin()
        away.url = it.url
        await make.until(lambda: not len(agent.waiting), "everything is handed over", 60)
        await asyncio.to_thread(agent.uplink.stop, 5.0)
        away._connections().clear()  # or the directory ends before its connections do
        assert not agent.uplink.problem
        assert not agent.waiting.dropped
        assert not it.ingest.dropped
        assert len(counted) == HOUR_S // 60
        store = it.store_thread.store
        store.settle()
        assert counted == {minute: store.events(objective.key, minute, minute + 60).good for minute in counted}

    play(scene)


@pytest.mark.long
def test_who_is_told_to_hand_in_less_does_so_and_loses_nothing(
    play: Play, make: Any, tls_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink_._log, "disabled", True)  # a record that pytest keeps holds the answer's connection
    (objective,) = objectives(make.probe())
    now = int(time.time()) // 60 * 60
    (tmp_path / "token").write_text("token-n1")
    shutil.copy(tls_dir / "tls.crt", tmp_path)
    rows = [SliRow(*objective.key, now - 60 * i, 1, coverage=Coverage(seen=1)) for i in range(1_200)]

    async def scene(it: World) -> None:
        began_s, slow_down = time.monotonic(), ("/v1/nodes/{node}/sli", 429)

        def clock() -> float:
            """Stands still until somebody has been told to slow down: a slow machine would not have to."""
            return time.monotonic() if it.directory.requests[slow_down] else began_s

        it.ingest.rows = ByNode(lambda: Bucket(1_000, 500, clock))
        it.ingest.asked._now["n1"][objective.key] = now - 86_400
        directory = Directory(it.url, "n1", token_file=tmp_path / "token", ca_file=tmp_path / "tls.crt")
        waiting = WaitingRows(tmp_path / "state")
        uplink = Uplink(directory, waiting)
        uplink.add(rows)
        uplink.start()
        await make.until(lambda: it.ingest.accepted == len(rows), "everything is handed over", 60)
        await asyncio.to_thread(uplink.stop, 5.0)
        directory._connections().clear()  # or the directory ends before its connections do
        assert it.directory.requests[slow_down]
        assert not waiting.dropped
        it.store_thread.store.settle()
        assert it.store_thread.store.events(objective.key, now - 86_400, now + 60).good == len(rows)

    play(scene)
