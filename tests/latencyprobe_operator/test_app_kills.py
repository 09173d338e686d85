"""The operator's process is killed again and again while real uplinks of several nodes hand over counts.

Most kills fall while a batch is under way. What is played is the API server alone.
"""

import asyncio
import os
import random
import shutil
import threading
import time
from asyncio.subprocess import Process
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from latencyprobe import parsing
from latencyprobe.sli import HISTOGRAM_INDEXES, SliAnswer, SliBatch, SliRow
from latencyprobe.slo.objective import ObjectiveKey, objectives
from latencyprobe.store import SqliteStore
from latencyprobe_agent.directory import uplink as uplink_
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows
from tests.latencyprobe_operator.operator_process import CART, NODE, ApiServer, played, process, ready, trusting
from tests.support.ports import free_port

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

KILLS = int(os.environ.get("KILLS", "5"))
NODES = ("n1", "n2", "n3", "n4")
BETWEEN_S = 0.01  # of a node's counts


class Sent(Directory):
    """Counts how often each batch was sent, and tells when one is under way."""

    def __init__(self, under_way: threading.Event, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        self.times: Counter[tuple[str, int]] = Counter()
        self._under_way = under_way

    def sli(self, batch: SliBatch) -> SliAnswer:
        self.times[batch.instance, batch.sequence] += 1
        self._under_way.set()
        return super().sli(batch)


class Counted(NamedTuple):
    """What only one row says: one event of an objective, in this minute and bucket."""

    key: ObjectiveKey
    minute: int
    bucket: int

    def row(self) -> SliRow:
        return SliRow(*self.key, self.minute, good=1, histogram={self.bucket: 1})


class Node:
    """An agent's uplink as it is, with its spool on disk, to which counts come that no other node has."""

    def __init__(self, folder: Path, directory: Sent, counts: list[Counted]) -> None:
        self.waiting = WaitingRows(folder)
        self.directory = directory
        self.given: list[Counted] = []
        self._uplink = Uplink(directory, self.waiting)
        self._counts = iter(counts)

    async def count(self) -> None:
        """Let counts come, until cancelled."""
        self._uplink.start()
        for one in self._counts:
            self.given.append(one)
            self._uplink.add([one.row()])
            await asyncio.sleep(BETWEEN_S)

    def stop(self) -> None:
        self._uplink.stop(5.0)


def different(document: dict[str, Any], now: int) -> Iterator[list[Counted]]:
    """Different counts for each node, of all objectives and of the minutes that a node may tell of at once."""
    keys = [objective.key for objective in objectives(parsing.parse(document))]
    minutes = [now // 60 * 60 - 60 * ago for ago in range(2)]
    whole = [Counted(key, minute, bucket) for bucket in HISTOGRAM_INDEXES for key in keys for minute in minutes]
    for place in range(len(NODES)):
        some = whole[place :: len(NODES)]
        random.shuffle(some)
        yield some


def cluster(make: Any) -> ApiServer:
    """Four nodes with a target pod on each, one LatencyProbe with 32 objectives."""
    many = [{"name": f"o{i}", "target": "cart", "threshold": f"{i // 8 + 1}ms", "goal": "99"} for i in range(32)]
    api = ApiServer(make.document(objectives=many))
    api.lists["nodes"] = [NODE | {"metadata": {"name": name, "uid": f"uid-{name}"}} for name in NODES]
    api.lists["pods"] = [
        CART
        | {"metadata": CART["metadata"] | {"name": f"cart-{name}", "uid": f"uid-cart-{name}"}}
        | {"spec": CART["spec"] | {"nodeName": name}}
        | {"status": CART["status"] | {"podIPs": [{"ip": f"10.0.0.{name[1:]}"}]}}
        for name in NODES
    ]
    return api


async def killed(running: Process, under_way: threading.Event, after_s: float) -> None:
    """Kill it a moment after a batch was sent."""
    under_way.clear()
    assert await asyncio.to_thread(under_way.wait, 120), "no batch is sent: are there counts enough for so many kills?"
    await asyncio.sleep(after_s)
    running.kill()
    await running.wait()


def stored_and_not_answered(nodes: list[Node], store: Path) -> int:
    """Of how many nodes the store has the batch that they still have to hand over."""
    with SqliteStore(store, readonly=True) as reader:
        found = dict(reader._db.execute("SELECT instance, sequence FROM instances"))
    flights = [node.waiting._disk.flight for node in nodes if node.waiting._disk]
    return sum(found.get(flight.instance, -1) >= flight.sequence for flight in flights if flight)


def counts_in(store: Path, given: list[Counted]) -> Counter[Counted]:
    """How often the store has counted each of them, and whatever else it has counted."""
    found: Counter[Counted] = Counter()
    with SqliteStore(store, readonly=True) as reader:
        for key, minute in {(one.key, one.minute) for one in given}:
            for bucket, count in reader.read(key, minute, minute + 60).histogram.items():
                found[Counted(key, minute, bucket)] = count
    return found


def test_operator_that_is_killed_again_and_again_counts_every_minute_of_every_node_once(
    make: Any, tmp_path: Path, tls_dir: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uplink_, "_FIRST_RETRY_S", 0.05)  # or the agents would mostly wait
    monkeypatch.setattr(uplink_, "_LONGEST_RETRY_S", 0.1)
    monkeypatch.setattr(uplink_, "_LONGEST_PAUSE_S", 0.05)
    seed = random.randrange(1 << 30)
    random.seed(seed)
    under_way = threading.Event()
    listen = f"127.0.0.1:{free_port()}"
    url, api = f"https://{listen}", cluster(make)
    shutil.copy(tls_dir / "tls.crt", tmp_path)
    nodes = []
    for name, counts in zip(NODES, different(api.lists["latencyprobes"][0], int(time.time())), strict=True):
        (token := tmp_path / f"token-{name}").write_text(token.name)
        directory = Sent(under_way, url, name, token_file=token, ca_file=tmp_path / "tls.crt")
        nodes.append(Node(tmp_path / name, directory, counts))

    async def scene() -> int:
        in_doubt = 0
        async with played(api) as server, trusting(tls_dir) as session:
            working = [asyncio.create_task(node.count()) for node in nodes]
            for _ in range(KILLS):
                async with process(tmp_path, tls_dir, server, listen) as running:
                    await make.until(lambda: ready(session, url), timeout_s=120, poll_s=0.05)
                    await killed(running, under_way, random.uniform(0, 0.03))
                in_doubt += stored_and_not_answered(nodes, tmp_path / "sli.db")
                api.take_lease("")  # else the next one waits for 15 s until it has run out
            async with process(tmp_path, tls_dir, server, listen) as running:
                for task in working:
                    task.cancel()
                await make.until(lambda: not any(len(n.waiting) for n in nodes), "nothing waits", 120, poll_s=0.05)
                running.terminate()
                await running.wait()
            with suppress(asyncio.CancelledError):
                await asyncio.gather(*working)
        return in_doubt

    try:
        in_doubt = asyncio.run(scene())
    finally:
        for node in nodes:
            node.stop()
        print((tmp_path / "log").read_text()[-5000:])
    given = [one for node in nodes for one in node.given]
    found = counts_in(tmp_path / "sli.db", given)
    again = sum(times > 1 for node in nodes for times in node.directory.times.values())
    print(f"seed {seed}: {KILLS} kills, {len(given)} counts of {len(nodes)} nodes, {again} batches sent again; ")
    print(f"at the kills {in_doubt} were stored and not answered")
    assert not {one: found[one] for one in given if found[one] != 1}
    assert found.total() == len(given), "nothing else was counted"
    assert again, "kills fell while batches were under way"
    assert not any(node.waiting.dropped for node in nodes)
