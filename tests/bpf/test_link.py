"""Two hosts with a slow or a bad link between them: what that costs is `network`, and nothing else."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.stages import PAIR_STAGES
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.join import CLIENT, SERVER, match, pairs_by_rpc

pytestmark = pytest.mark.root

PORT = free_port()
MS = 1_000_000
NETWORK = PAIR_STAGES.index("network")


@contextmanager
def linked(delay_ms: int, lost_per_mille: int) -> Iterator[list[list[str]]]:
    """Command prefixes of two namespaces, 10.96.0.1 and 10.96.0.2, at both ends of such a link."""
    names = [f"lp-{os.getpid()}-{side}" for side in ("client", "server")]
    words = [workload.build("link"), *names, "lp0", str(delay_ms * 1000), str(lost_per_mille), "1"]
    try:
        for name in names:
            subprocess.run(["ip", "netns", "add", name], check=True)
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as link:
            assert link.stdout.readline() == b"ready\n"
            for host, name in enumerate(names, start=1):
                subprocess.run(["ip", "-n", name, "addr", "add", f"10.96.0.{host}/24", "dev", "lp0"], check=True)
                subprocess.run(["ip", "-n", name, "link", "set", "lp0", "up"], check=True)
            yield [["ip", "netns", "exec", name] for name in names]
            link.stdin.close()
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "del", name], check=True)


def run(session, folder: Path, delay_ms: int, lost_per_mille: int, total: int) -> tuple[Pairs, np.ndarray]:
    """Run RPCs over such a link: (pairs, stages of the pairs less those of the log in ns)."""
    session.measure(PORT)
    options = {"total": total, "seed": 18, "one_piece": True, "size": 500, "single_percent": 0}
    with linked(delay_ms, lost_per_mille) as (client, server):
        truth = workload.run_apart(folder / "log", server, client, address=f"10.96.0.2:{PORT}", **options)
    records = session.records(2 * total)
    matched = match(truth, records)
    _, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0), matched.describe()
    by_client, by_server = truth.stages(CLIENT), truth.stages(SERVER)
    of_log = [np.minimum(by_client[:, 0], by_server[:, 0]), truth.network_ns(), *by_server[:, 1:].T, by_client[:, 3]]
    error_ns = np.empty_like(pairs.stages)
    error_ns[position] = pairs.stages[position] - np.stack(of_log, axis=1)
    return pairs, error_ns


def show(title: str, stages: np.ndarray, excess: np.ndarray) -> None:
    medians = ", ".join(
        f"{name} {ms:.2f}" for name, ms in zip(PAIR_STAGES, np.median(stages, axis=0) / MS, strict=True)
    )
    print(f"{title}: {len(stages)} RPCs; medians in ms: {medians}; network_excess {np.median(excess) / MS:.2f}")


def test_the_delay_of_a_link_is_network_and_no_excess(session, tmp_path):
    pairs, error_ns = run(session, tmp_path, delay_ms=20, lost_per_mille=0, total=400)
    show("20 ms each way", pairs.stages, pairs.network_excess)
    network_ns = np.median(pairs.stages[:, NETWORK])
    assert 40 * MS <= network_ns <= 44 * MS
    assert (np.median(np.delete(pairs.stages, NETWORK, axis=1), axis=0) < 4 * MS).all()
    assert abs(np.median(pairs.network_excess)) < 4 * MS
    assert (np.median(np.abs(error_ns), axis=0) < 0.1 * MS).all()


def test_lost_packets_are_network_excess_and_nothing_else(session, tmp_path):
    pairs, error_ns = run(session, tmp_path, delay_ms=5, lost_per_mille=50, total=1_000)
    resent = (pairs.client.rec["retransmits"] > 0) | (pairs.server.rec["retransmits"] > 0)
    for title, rows in (("resent", resent), ("not", ~resent)):
        show(f"5 ms each way, 5 % lost, {title}", pairs.stages[rows], pairs.network_excess[rows])
    assert resent.sum() >= 20
    assert np.median(pairs.network_excess[resent]) >= 10 * MS, "a loss is noticed after one round trip at the earliest"
    # the round trip time is a smoothed one: on a busy machine that of lost ones weighs on the others
    assert abs(np.median(pairs.network_excess[~resent])) < 8 * MS
    assert (np.median(np.delete(pairs.stages, NETWORK, axis=1)[resent], axis=0) < 4 * MS).all()
    assert (np.median(np.abs(error_ns[resent]), axis=0) < 0.1 * MS).all()
