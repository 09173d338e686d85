"""Records above a limit are sampled, counts are not: docs/design/measurement.md, "Record sampling"."""

import os
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from latencyprobe.plan import Role as Side
from latencyprobe.plan import SpanPolicy, TargetPod
from latencyprobe_agent.identity.cgroups import find_root
from latencyprobe_agent.measure.rules import compile_rules
from latencyprobe_agent.measure.stages import NETWORK_AT
from latencyprobe_agent.vocabulary.records import BURST_WINDOWS, SAMPLING_LEVEL_SHIFT, WINDOW_SHIFT, Role
from tests.support.plans import plan_of, target
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.peers import Peers
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000


def test_above_the_limit_records_are_sampled_alike_at_both_ends_and_nothing_else_changes(session, tmp_path):
    """A limit of 2 records in 134 ms, 30 such windows' worth at once, then a sample. What is slow comes anyway."""

    def totals() -> np.ndarray:
        _, counts = session.programs.counts()
        return np.array([counts[field].sum() for field in ("classes", "sampled_out_records")], np.int64)

    def run(name: str, threshold_ns: int, total: int) -> tuple[np.ndarray, int, int]:
        """(Records, how many were left out, windows of the limit that began meanwhile)."""
        session.measure(PORT, pause_ns=NO_PAUSE_NS, thresholds_ns=(threshold_ns,), records_per_second=10)
        records, before, began_ns = len(session.records()), totals(), time.monotonic_ns()
        workload.run_both(tmp_path / name, address=f"127.0.0.1:{PORT}", seed=total, total=total, rpcs=20)
        windows = (time.monotonic_ns() - began_ns >> WINDOW_SHIFT) + 1
        seen, sampled_out = (totals() - before).tolist()
        assert seen == 2 * total
        delivered = session.records(records + seen - sampled_out)[records:]
        assert len(delivered) == seen - sampled_out
        return delivered, sampled_out, windows

    delivered, sampled_out, windows = run("fast", 10_000 * MS, 4_000)
    measured, pairs = session.pairs(delivered)
    level = delivered["flags"] >> SAMPLING_LEVEL_SHIFT
    slow = measured.duration_ns > 25 * MS  # the limit of spans, here on a busy machine
    lone = np.setdiff1d(np.arange(len(delivered)), [*pairs.client_at, *pairs.server_at])
    print(
        f"8,000 halves: {len(delivered)} records, {slow.sum()} slow, {len(lone)} without the other one; "
        f"{sampled_out} left out; by level {np.bincount(level).tolist()}"
    )
    assert len(level) - slow.sum() <= 2 * (BURST_WINDOWS + 2 * windows + 16), "2 in a window and level, twice over"
    assert level.max() >= 4
    assert not level[slow].any(), "slow ones stand for themselves"
    assert (level[lone] > 0).sum() < (level > 0).sum() / 2, (
        "both ends choose alike, but where the level changes between"
    )
    records, sampled_out, _ = run("slow", 1, 1_000)
    assert (len(records), sampled_out) == (2_000, 0)
    assert not (records["flags"] >> SAMPLING_LEVEL_SHIFT).any()


def test_metrics_of_a_sample_equal_those_of_every_record_within_their_error(make_session, tmp_path):
    """Two sessions see the same RPCs, every 20th of which is slow: one sends each record, one up to 100 a second."""
    every, sampled = make_session(), make_session()
    every.measure(PORT, pause_ns=NO_PAUSE_NS)
    sampled.measure(PORT, pause_ns=NO_PAUSE_NS, records_per_second=100)
    truth = workload.run_both(
        tmp_path / "log",
        address=f"127.0.0.1:{PORT}",
        total=12_000,
        threads=4,
        every=20,
        cause="server-sleep",
        cause_ms=30,
    )
    records = [every.records_of_ended(), sampled.records_of_ended()]
    counts = sampled.programs.counts()[1]
    (all_halves, all_pairs), (halves, pairs) = (
        one.pairs(of) for one, of in zip((every, sampled), records, strict=True)
    )
    assert len(all_halves) == counts["outcomes"].sum() == 2 * len(truth)

    def named(some: Any) -> set[tuple[int, ...]]:
        names = ("role", "local_port", "peer_port", "request_offset")
        return set(zip(*(some.rec[name].tolist() for name in names), strict=True))

    def deviation(found: np.ndarray, weight: np.ndarray, every: np.ndarray) -> float:
        """Of the estimate of a sum, in standard errors.

        A sample cannot know the error that one far outlier makes, and a machine that stalls has some: each counts for
        1 ms at most. Nor does it know that of the few that it has not met: then all of them tell, at its mean weight.
        """
        found, every = np.minimum(found, MS), np.minimum(every, MS)
        known = (weight * (weight - 1) * found.astype(float) ** 2).sum()
        error = np.sqrt(max(known, (weight.mean() - 1) * (every.astype(float) ** 2).sum()))
        return float(((weight * found).sum() - every.sum()) / error)

    assert np.bincount(halves.rec["flags"] >> SAMPLING_LEVEL_SHIFT).astype(bool).sum() >= 3, "several levels"
    slow = all_halves.take(all_halves.duration_ns > 26 * MS)  # for both: their stamps are a µs apart
    assert len(slow) >= 2 * 500
    assert named(slow) <= named(halves)
    found = {}
    for role in (Role.CLIENT, Role.SERVER):
        mine, whole = halves.take(halves.rec["role"] == role), all_halves.take(all_halves.rec["role"] == role)
        found[f"{role.name} events"] = deviation(np.ones(len(mine)), mine.adjusted_count, np.ones(len(whole)))
        found[f"{role.name} time"] = deviation(mine.duration_ns, mine.adjusted_count, whole.duration_ns)
    found["pairs"] = deviation(np.ones(len(pairs)), pairs.adjusted_count, np.ones(len(all_pairs)))
    found["network"] = deviation(pairs.stages[:, NETWORK_AT], pairs.adjusted_count, all_pairs.stages[:, NETWORK_AT])
    print(
        f"{len(records[1])} of {len(records[0])} records, {len(pairs)} of {len(all_pairs)} pairs; "
        f"levels {np.bincount(halves.rec['flags'] >> SAMPLING_LEVEL_SHIFT).tolist()}; standard errors {found}"
    )
    assert max(map(abs, found.values())) < 5


def test_a_node_whose_clients_read_by_splice_is_back_at_every_record_when_it_was_idle(session, port):
    """When they had read is not known, and no server's end is measured there."""
    cgroup = find_root() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    quick = SpanPolicy(slower_than_ns=10_000 * MS, ratio=0.01, max_per_second=1000)
    callers = target(
        role=Side.CLIENT, pods=(TargetPod("pod", (port,)),), thresholds=(quick.slower_than_ns,), spans=quick
    )
    session.rules = compile_rules(plan_of(callers), {"pod": [cgroup.stat().st_ino]}, session.rules)
    session.programs.apply(
        session.rules, idle_timeout_ns=2 * 10**9, own_tgid=0, owner_by_process=False, records_per_second=50
    )
    peers, (pipe_out, pipe_in) = Peers(port), os.pipe()

    def turns(count: int) -> int:
        """How many records came of so many turns, and of the one before them."""
        before = len(session.records_of_ended())
        for _ in range(count):
            peers.client.sendall(b"request")
            peers.server.recv(100)
            peers.server.sendall(b"response")
            os.splice(peers.client.fileno(), pipe_in, 8)
            os.read(pipe_out, 8)
        return len(session.records_of_ended()) - before

    assert turns(1000) < 500
    time.sleep(4)  # the bucket leaks empty in two seconds, from one level above its burst in less than four
    assert turns(20) >= 19
    peers.close()
    os.close(pipe_in)
    os.close(pipe_out)
