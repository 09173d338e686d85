"""The accounting identity: nothing that the generator did is missing, doubled or invented.

docs/design/measurement.md, "Accounting":
seen - delivered - lost - excluded - in flight = 0, by the kernel's counts and by the records that came through the
ring. `seen` is what the generator and the test itself did, `in flight` what the test's connections hold open.
"""

import os
import random
import socket
import subprocess
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.vocabulary.records import Excluded, Lost, Role
from tests.support.plans import of, plan_of
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.http2 import END_HEADERS, END_STREAM, Connection, Type, frame
from tests.truth.join import CLIENT, SERVER, Truth, match
from tests.truth.peers import Peers
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
SEED = 20
RUNS = 40  # of each size
MS = 1_000_000
MOST_OPEN = 4096  # streams of a connection, http2_connection.bpf.h
SO_COOKIE = 57  # asm-generic/socket.h
# (ring in bytes, entries of maps, counts per process): a key per role, or two for each run of the generator.
SIZES = {
    "a ring of a page": (4096, {}, False),
    "a ring of a page, counts for one": (4096, {"counts": 1}, False),
    "counts for four": (16 << 20, {"counts": 4, "rules": 4, "scopes": 1}, True),
    "counts for 64": (16 << 20, {"counts": 64, "rules": 64, "scopes": 64, "target_sets": 64}, True),
    "all small": (4096, {"counts": 1, "rules": 4, "scopes": 1, "target_sets": 64}, True),
}


class World:
    """One session, what has been done under it, and the connections that stay open between runs."""

    def __init__(self, stoppable, dice: random.Random, by_process: bool) -> None:
        self.session, self.drainer = stoppable
        self.dice, self.by_process = dice, by_process
        self.truths: list[Truth] = []
        self.peers: list[Peers] = []
        self.cookies: list[int] = []
        self.in_flight: set[Peers] = set()  # their last turn has not ended: at both ends
        self.turns = 0

    @property
    def seen(self) -> int:
        return 2 * (sum(map(len, self.truths)) + self.turns)

    def plan(self) -> None:
        thresholds = sorted(self.dice.sample(range(10_000, 10 * MS), self.dice.randint(1, 8)))
        self.session.measure(
            PORT,
            pause_ns=NO_PAUSE_NS,
            thresholds_ns=tuple(thresholds),
            setup_turns=self.dice.choice((0, 0, 1, 3)),
            owner_by_process=self.by_process,
        )
        self.in_flight.clear()  # other thresholds, another target set: what was open has ended as no event

    def talk(self) -> None:
        """Take a few turns on connections that stay open: the last one of each is in flight, at both ends."""
        if len(self.peers) < 4:
            self.peers.append(Peers(PORT))
            ends = (self.peers[-1].client, self.peers[-1].server)
            self.cookies += [int.from_bytes(end.getsockopt(socket.SOL_SOCKET, SO_COOKIE, 8), "little") for end in ends]
            self.take_turn(self.peers[-1])
        for peers in self.dice.sample(self.peers, self.dice.randint(0, len(self.peers))):
            self.take_turn(peers)
        if self.dice.random() < 0.3:
            self.close(self.dice.randrange(len(self.peers)))

    def take_turn(self, peers: Peers) -> None:
        peers.turn(bytes(self.dice.randint(1, 3000)), bytes(self.dice.randint(1, 3000)))
        self.turns += 1
        self.in_flight.add(peers)

    def close(self, which: int) -> None:
        gone = self.peers.pop(which)
        gone.close()
        self.in_flight.discard(gone)

    def run(self, log, **options: int) -> None:
        dice = self.dice
        options = {
            "total": dice.randint(1, 2000),
            "threads": dice.randint(1, 8),
            "rpcs": dice.randint(1, 40),
            "single_percent": dice.choice((0, 25, 100)),
            "max_size": 1 << dice.randint(5, 16),
            "jitter_us": dice.choice((0, 0, 20)),
        } | options
        seed = len(self.truths) + 1
        self.truths.append(workload.run_both(log, address=f"127.0.0.1:{PORT}", seed=seed, **options))

    def unexplained_counts(self) -> int:
        """Seen less what the kernel counted."""
        _, counts = self.session.programs.counts()
        events, excluded = int(counts["outcomes"].sum()), int(counts["excluded"].sum())
        assert events + excluded == counts["classes"].sum()
        assert events == counts["histogram"].sum()
        return self.seen - events - excluded - self.unaccounted() - 2 * len(self.in_flight)

    def unaccounted(self) -> int:
        """What is in no count, told of each target set."""
        return sum(self.session.programs.unaccounted().values())

    def unexplained_records(self) -> int:
        """Seen less what came through the ring."""
        excluded = self.session.records()["excluded"] != Excluded.NONE
        delivered, lost = int((~excluded).sum()), self.session.programs.lost()["ring_full"]
        return self.seen - delivered - lost - int(excluded.sum()) - 2 * len(self.in_flight)

    def check_each_record(self) -> None:
        """Sets, not sums: each record is an RPC of the log, once, and no reason has more records than counts."""
        records = self.session.records()
        rows = ~np.isin(records["sock_cookie"], np.array(self.cookies, np.uint64))
        whole = Truth(*(np.concatenate(column) for column in zip(*map(columns, self.truths), strict=True)))
        extra = match(whole, records[rows]).extra
        assert (len(extra[CLIENT]), len(extra[SERVER])) == (0, 0)
        _, counts = self.session.programs.counts()
        lost = self.session.programs.lost()
        assert lost["counts"] == self.unaccounted()
        of_reason = np.bincount(records["excluded"], minlength=len(Excluded))[1:]
        room = lost["counts"] + counts["excluded"][:, 1:].sum(axis=0)
        assert (of_reason <= room).all()
        assert lost["ring_full"] - lost["counts"] <= counts["lost_records"].sum() <= lost["ring_full"]


def columns(truth: Truth) -> tuple[np.ndarray, ...]:
    return truth.client, truth.server, truth.request_offset, truth.response_offset


@pytest.mark.parametrize("size", SIZES)
def test_every_exchange_of_forty_random_runs_is_accounted_for(make_stoppable, tmp_path, size):
    ring_bytes, entries, by_process = SIZES[size]
    world = World(make_stoppable(ring_bytes, **entries), random.Random(f"{SEED} {size}"), by_process)
    stopped = stops = 0
    for run in range(RUNS):
        if run == 0 or world.dice.random() < 0.2:
            world.plan()
        if not stopped and world.dice.random() < 0.3:
            world.drainer.stop()
            stopped, stops = world.dice.randint(1, 8), stops + 1
        world.talk()
        world.run(tmp_path / f"log{run}")
        assert world.unexplained_counts() == 0, f"run {run} of seed {SEED}"
        if stopped := max(0, stopped - 1):
            continue
        world.drainer.go_on()
        wait_until(lambda: world.unexplained_records() == 0, f"run {run} of seed {SEED}")
    while world.peers:
        world.close(-1)
    world.drainer.close()
    wait_until(lambda: world.unexplained_records() == 0, "all records have come")
    assert world.unexplained_counts() == 0
    world.check_each_record()

    records, lost = world.session.records(), world.session.programs.lost()
    reasons = {Excluded(int(reason)).name: n for reason, n in Counter(records["excluded"].tolist()).items()}
    print(f"{size}, seed {SEED}: {RUNS} runs, {world.seen} seen; records {reasons}; lost {lost}; {stops} stops")
    assert {"NONE", "SETUP", "PLAN", "PARTIAL"} <= reasons.keys()
    assert stops >= 3
    assert bool(lost["ring_full"]) == (ring_bytes == 4096), "the ring was as small as the test means"
    # the kernel may have no memory at hand for a key even where there is room
    assert lost["counts"] >= ("counts" in entries), "and so were the counts"


def test_an_agent_that_is_stopped_for_seconds_finds_every_loss_counted(make_stoppable, tmp_path):
    world = World(make_stoppable(1 << 18), random.Random(SEED), by_process=False)
    world.plan()
    world.run(tmp_path / "before", total=1000)
    wait_until(lambda: world.unexplained_records() == 0, "all records have come")
    world.drainer.stop()
    world.run(tmp_path / "while it stands", total=6000, rate=3000, threads=4)
    world.drainer.go_on()
    world.run(tmp_path / "after", total=1000)
    wait_until(lambda: world.unexplained_records() == 0, "all records have come")
    assert world.unexplained_counts() == 0
    world.check_each_record()
    lost = world.session.programs.lost()
    print(f"{world.seen} seen in all, a ring of {(1 << 18) // 200} records, stopped for 2 s: lost {lost}")
    assert lost["ring_full"] > 12_000 - (1 << 18) // 200 - 2_000, "of what came while it stood, not all had room"


def test_what_the_agent_dials_itself_is_excluded_and_counted(session):
    session.measure(PORT, pause_ns=NO_PAUSE_NS, own_tgid=os.getpid())
    peers = Peers(PORT)
    for _ in range(3):
        peers.turn()
    peers.close()
    records = session.records_of_closed(2)
    _, counts = session.programs.counts()
    assert (records["excluded"][records["role"] == Role.CLIENT] == Excluded.OWN).all()
    assert (records["excluded"][records["role"] == Role.SERVER] == Excluded.NONE).all()
    assert counts["excluded"].sum(axis=0)[Excluded.OWN] == 3
    assert not len(session.pairs(records)[1])


def run_without_room(log: Path, port: int, total: int) -> Truth:
    """The kernel charges storage to the socket's option memory (net.core.optmem_max, per namespace)."""
    name = "lp-optmem"
    subprocess.run(["ip", "netns", "add", name], check=True)
    try:
        inside = ("ip", "netns", "exec", name)
        subprocess.run([*inside, "ip", "link", "set", "lo", "up"], check=True)
        subprocess.run([*inside, "sysctl", "-qw", "net.core.optmem_max=256"], check=True)
        options = {"total": total, "seed": 1, "size": 64, "one_piece": True}
        return workload.run_apart(log, inside, inside, address=f"127.0.0.1:{port}", **options)
    finally:
        subprocess.run(["ip", "netns", "del", name], check=True)


def test_each_message_of_a_socket_without_room_for_our_storage_is_lost_and_counted(session, tmp_path):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = run_without_room(tmp_path / "log", PORT, total=100)
    lost = session.programs.lost()
    print(f"{len(truth)} RPCs without storage: lost {lost}")
    assert len(truth) == 100
    assert lost[Lost.STORAGE.name.lower()] == 2 * len(truth), "a request at one end and an answer at the other"
    assert len(session.records()) == 0
    assert [2 * len(truth)] == list(session.programs.unaccounted().values())


def test_what_is_lost_of_one_target_is_told_of_no_other(session, tmp_path):
    other = free_port()
    plan = plan_of(*(of("shop", str(port), ports=(port,), clients=True) for port in (PORT, other)), host=True)
    session.rules = compile_rules(plan, {}, session.rules)
    session.programs.apply(session.rules, idle_timeout_ns=2000 * MS, own_tgid=0, owner_by_process=False)
    truth = run_without_room(tmp_path / "log", PORT, total=50)
    whole = workload.run_both(tmp_path / "other", address=f"127.0.0.1:{other}", total=50, seed=1)

    sets = {one.targets[0].rpartition("/")[2]: number for number, one in session.rules.sets.items()}
    assert {sets[str(PORT)]: 2 * len(truth)} == session.programs.unaccounted()
    keys, counts = session.programs.counts()
    assert {sets[str(other)]} == set(keys["target_set"].tolist())
    assert 2 * len(whole) == counts["classes"].sum()


def test_calls_of_http2_beyond_the_streams_that_are_followed_are_told_of_their_target(streams, port):
    streams.measure(port)
    connection, dice = Connection.open(port), random.Random(SEED)
    connection.greet()
    for number in range(MOST_OPEN + 5):
        connection.asks.put(frame(Type.HEADERS, END_STREAM | END_HEADERS, 2 * number + 1, bytes(10)))
    connection.settle(dice)
    connection.close()
    assert 10 == streams.programs.lost()["state"], "five at each end"
    (target_set,) = streams.session.rules.in_force
    assert {target_set: 10} == streams.session.programs.unaccounted()
