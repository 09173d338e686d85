"""Two hosts with a slow or a bad link between them: what that costs is `network`, and nothing else."""

from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.measure.pairing import Pairs
from latencyprobe_agent.measure.stages import PAIR_STAGES
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.join import match, outside_calls, outside_stages, pair_stages, pairs_by_rpc
from tests.truth.linked import linked

pytestmark = pytest.mark.root

PORT = free_port()
MS, US = 1_000_000, 1_000


def run(session, folder: Path, delay_ms: int, lost_per_mille: int, total: int) -> Pairs:
    """Run RPCs over such a link; all that was measured is what the log allows."""
    session.measure(PORT)
    options = {"total": total, "seed": 18, "one_piece": True, "size": 500, "single_percent": 0}
    with linked(delay_ms, lost_per_mille) as ends:
        client, server = (["ip", "netns", "exec", namespace.name] for namespace in ends)
        truth = workload.run_apart(folder / "log", server, client, address=f"10.96.0.2:{PORT}", **options)
    records = session.records(2 * total)
    matched = match(truth, records)
    halves, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0), matched.describe()
    outside = outside_calls(truth, records, matched) | outside_stages(truth, halves.stages, matched)
    assert max(outside.values()) <= session.programs.lost()["recursion"], outside
    np.testing.assert_array_equal(pairs.stages, pair_stages(pairs.client.stages, pairs.server.stages))
    return pairs


def show(title: str, stages: np.ndarray, excess: np.ndarray) -> None:
    medians = ", ".join(
        f"{name} {ms:.2f}" for name, ms in zip(PAIR_STAGES, np.median(stages, axis=0) / MS, strict=True)
    )
    print(f"{title}: {len(stages)} RPCs; medians in ms: {medians}; network_excess {np.median(excess) / MS:.2f}")


def assert_delay_is_network_and_no_excess(pairs: Pairs, delay_ns: int) -> None:
    """Every round trip that TCP has measured holds the link's delay, so what it leaves of `network` does not."""
    network, server_send = (pairs.stages[:, PAIR_STAGES.index(name)] for name in ("network", "server_send"))
    no_excess = network - pairs.network_excess
    print(f"network {network.min() / MS:.3f} ms at least, {no_excess.min() / MS:.3f} of it no excess")
    assert (network + server_send >= delay_ns).all(), "the answer's bytes leave before its send call returns"
    assert (no_excess >= delay_ns - US).all(), "TCP keeps round trips in us"


def test_the_delay_of_a_link_is_network_and_no_excess(session, tmp_path):
    pairs = run(session, tmp_path, delay_ms=20, lost_per_mille=0, total=400)
    show("20 ms each way", pairs.stages, pairs.network_excess)
    assert_delay_is_network_and_no_excess(pairs, 40 * MS)


def test_lost_packets_are_network_excess_and_nothing_else(session, tmp_path):
    pairs = run(session, tmp_path, delay_ms=5, lost_per_mille=50, total=1_000)
    resent = (pairs.client.rec["retransmits"] > 0) | (pairs.server.rec["retransmits"] > 0)
    for title, rows in (("resent", resent), ("not", ~resent)):
        show(f"5 ms each way, 5 % lost, {title}", pairs.stages[rows], pairs.network_excess[rows])
    assert_delay_is_network_and_no_excess(pairs, 10 * MS)
    late = pairs.network_excess >= 10 * MS
    assert (late & resent).sum() >= 20, "a loss is noticed after one round trip at the earliest"
