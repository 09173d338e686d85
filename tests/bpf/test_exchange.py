"""Every RPC of the truth generator against its own log: bytes, stamps, stages, pairs.

RPCS=1000000 in the environment makes the largest test as long as that.
"""

import os
from pathlib import Path

import numpy as np
import pytest

from latencyprobe_agent.measure.stages import PAIR_STAGES
from latencyprobe_agent.vocabulary.records import ExchangeFlags, Excluded
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.join import (
    CLIENT,
    NAMES,
    SERVER,
    STAGES,
    Truth,
    disagreements,
    match,
    outside_calls,
    outside_stages,
    pair_stages,
    pairs_by_rpc,
    with_cookies_of_log,
)
from tests.truth.workload import NO_PAUSE_NS

pytestmark = pytest.mark.root

MS = 1_000_000
OBJECTS = Path(__file__).parents[2] / "build" / "bpf"
PORT = free_port()
RPCS = int(os.environ.get("RPCS", "100000"))
NETWORK = PAIR_STAGES.index("network")


def assert_equals_log(session, truth: Truth) -> np.ndarray:
    """Every RPC is one linked pair, equal to the log in what can be counted; each stamp is inside the call it tells of.

    Returns the records, which the session has handed out with that.
    The kernel may skip programs. Messages stay exact; a skipped read costs its call, an unseen opening makes the first
    exchange partial, and a call to send is missing only if it was skipped at both its ends. Where a host runs no
    program, as over its first process, a connection may end: what was open on it is missing, and that is counted.
    """
    records = session.fresh_records(2 * len(truth), timeout_s=60)
    session.programs.flush()
    lost, skipped = session.programs.lost(), session.skipped()
    assert not any(n for reason, n in lost.items() if reason not in {"recursion", "unseen_end"}), lost
    if not session.kernel_cookies:
        records = with_cookies_of_log(truth, records)
    print(f"skipped: {dict(+skipped)}, backlog: {100 * np.mean(records['flags'] & ExchangeFlags.BACKLOG != 0):.1f} %")
    matched = match(truth, records)
    print(matched.describe())
    missing = np.concatenate([matched.missing(role) for role in NAMES])
    logs = f"client {truth.client.dtype.names}: {truth.client[missing[:3]]}, server: {truth.server[missing[:3]]}"
    assert len(missing) <= lost["unseen_end"], f"{matched.describe()}; {logs}; skipped: {dict(+skipped)}"
    assert not any(len(extra) for extra in matched.extra.values()), matched.describe()
    partial = records["excluded"] == Excluded.PARTIAL
    assert (records["excluded"][~partial] == Excluded.NONE).all()
    assert partial.sum() <= 2 * skipped["state"]
    may_differ = {"recv_calls": skipped["read"], "send_calls": min(skipped["send_start"], skipped["send_end"])}
    different = disagreements(truth, records, matched)
    wrong = {field: n for field, n in different.items() if n > may_differ.get(field.split()[1], 0)}
    assert not wrong, (wrong, skipped)

    halves, pairs = session.pairs(records)
    outside = outside_calls(truth, records, matched) | outside_stages(truth, halves.stages, matched)
    assert max(outside.values()) <= lost["recursion"], (outside, skipped)
    position, mispaired = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    paired = position >= 0
    unpaired = ~paired & ~(partial[matched.record[CLIENT]] | partial[matched.record[SERVER]])
    unpaired[missing] = False
    assert (mispaired, int(unpaired.sum())) == (0, 0), "mispaired and unpaired RPCs"
    assert len(np.unique(pairs.client.join_key)) == len(pairs), "a join key was used twice"
    assert (pairs.stages.sum(axis=1) == pairs.client.duration_ns).all()
    assert (pairs.stages >= 0).all()
    expected = pair_stages(*(halves.stages[matched.record[role][paired]] for role in (CLIENT, SERVER)))
    apart = expected[:, NETWORK] >= 0
    np.testing.assert_array_equal(pairs.stages[position[paired]][apart], expected[apart])
    return records


def test_two_thousand_random_rpcs_equal_the_log(session, tmp_path):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=2_000, seed=1)
    assert_equals_log(session, truth)


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]"])
def test_five_hundred_rpcs_equal_the_log_however_slow_the_machine(session, tmp_path, host):
    """What tests/kernels runs on each kernel, on emulated processors: all that can be counted.

    One client thread: Linux 7 preempts tracing programs, and skips one on a processor where another thread is inside
    it. Programs that take 16 times longer are often preempted between busy threads.
    """
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(tmp_path / "log", address=f"{host}:{PORT}", total=500, seed=11, threads=1, rpcs=20)
    assert_equals_log(session, truth)


def test_connections_in_a_hash_equal_the_log_and_none_stays(make_session, own_cgroup, tmp_path):
    """What kernels without socket storage have instead, here under a load that emulated processors do not bear."""
    session = make_session(path=OBJECTS / "exchange_hash.bpf.o")
    session.measure(PORT, pause_ns=NO_PAUSE_NS, cgroup_id=own_cgroup)
    truth = workload.run_both(
        tmp_path / "log", address=f"127.0.0.1:{PORT}", total=50_000, seed=18, threads=16, single_percent=20
    )
    print(f"lost: {session.programs.lost()}")
    assert_equals_log(session, truth)
    wait_until(lambda: not session.connections_in_hash(), "every connection is forgotten with its socket")


def test_all_random_rpcs_of_sixteen_threads_equal_the_log(session, tmp_path):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log", address=f"127.0.0.1:{PORT}", total=RPCS, seed=2, threads=16, jitter_us=50, rpcs=40
    )
    assert len(truth) == RPCS
    assert (np.unique(truth.client["cookie"], return_counts=True)[1] == 1).sum() > 100
    assert_equals_log(session, truth)


def test_stamps_of_single_segments_lie_between_the_logs_readings_around_them(session, tmp_path):
    """Nothing bounds stamps closer: one call and one segment each way, whose arrival the kernel tells."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    options = {"total": 5_000, "seed": 7, "threads": 1, "one_piece": True, "size": 64}
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", **options)
    for role, name in NAMES.items():
        least, most = truth.stages(role)
        doubt = np.median(most - least, axis=0) / 1000
        print(f"{name}: doubt of the log in us: {dict(zip(STAGES[role], doubt.round(1).tolist(), strict=True))}")
    assert_equals_log(session, truth)


def test_connections_of_one_request_equal_the_log(session, tmp_path):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=10_000, seed=3, single_percent=100)
    assert truth.client["ordinal"].max() == 0
    assert_equals_log(session, truth)


@pytest.mark.parametrize("host", ["[::1]", "[::ffff:127.0.0.1]"])
def test_ipv6_and_mapped_addresses_equal_the_log(session, tmp_path, host):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(tmp_path / "log", address=f"{host}:{PORT}", total=2_000, seed=4)
    assert_equals_log(session, truth)


def test_messages_of_megabytes_equal_the_log(session, tmp_path):
    """Above the socket buffers the ready stamps depend on window updates, which the log does not see: no `network`."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log", address=f"127.0.0.1:{PORT}", total=1_000, seed=5, max_size=1 << 22, threads=4
    )
    records = session.records(2_000)
    matched = match(truth, records)
    assert not any((different := disagreements(truth, records, matched)).values()), different
    _, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0)


def test_sequence_numbers_that_wrap_change_nothing(session, tmp_path):
    """More than 4 GiB in each direction of one connection."""
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log",
        address=f"127.0.0.1:{PORT}",
        total=1_100,
        threads=1,
        rpcs=1_000_000,
        single_percent=0,
        size=1 << 22,
        one_piece=True,
    )
    assert len(np.unique(truth.client["cookie"])) == 1
    assert truth.request_offset.max() > 1 << 32
    records = session.records(2_200, timeout_s=60)
    matched = match(truth, records)
    assert not any((different := disagreements(truth, records, matched)).values()), different
    _, pairs = session.pairs(records)
    position, wrong = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    assert (wrong, int((position < 0).sum())) == (0, 0)


@pytest.mark.parametrize(
    ("cause", "role", "stage"),
    [
        ("server-sleep", SERVER, "process"),
        ("server-stop", SERVER, "read_delay"),
        ("response-gap", SERVER, "send"),
        ("client-stop", CLIENT, "read_delay"),
        ("request-gap", CLIENT, "send"),
    ],
)
def test_a_pause_of_40_ms_lands_in_its_own_stage_and_in_no_other(session, tmp_path, cause, role, stage):
    session.measure(PORT, pause_ns=NO_PAUSE_NS)
    truth = workload.run_both(
        tmp_path / "log",
        address=f"127.0.0.1:{PORT}",
        total=400,
        threads=4,
        size=512,
        one_piece=True,
        single_percent=0,
        cause=cause,
        every=2,
        cause_ms=40,
    )
    records = assert_equals_log(session, truth)
    hit = truth.client["cause"] > 0
    assert hit.sum() >= 150

    matched = match(truth, records)
    halves, pairs = session.pairs(records)
    position, _ = pairs_by_rpc(truth, matched, pairs.client_at, pairs.server_at)
    own = halves.stages[matched.record[role], STAGES[role].index(stage)]
    in_pair = pairs.stages[position, PAIR_STAGES.index(f"{NAMES[role]}_{stage}")]
    print(f"{cause}: {stage} of {hit.sum()} RPCs in ms: {np.percentile(own[hit], (0, 50, 100)) / MS}")
    assert (own[hit] >= 40 * MS).all()
    # what the pair loses by a pause in a request is told by the server's end, which may see the first piece late
    least = np.minimum(40 * MS, truth.stages(SERVER)[0][:, 0]) if cause == "request-gap" else 40 * MS
    assert (in_pair >= least)[hit].all()


def test_kernel_counts_equal_the_records(session, tmp_path):
    """SLO counts are made in the kernel, apart from the records: both must tell the same."""
    thresholds_ns = (50_000, 100_000, 25 * MS)
    session.measure(PORT, pause_ns=NO_PAUSE_NS, thresholds_ns=thresholds_ns)
    truth = workload.run_both(tmp_path / "log", address=f"127.0.0.1:{PORT}", total=5_000, seed=6)
    halves, _ = session.pairs(session.records(10_000))
    keys, counts = session.programs.counts()
    for role in NAMES:
        mine = counts[keys["role"] == role]
        duration_ns = halves.duration_ns[halves.rec["role"] == role]
        assert mine["outcomes"].sum() == len(truth)
        assert mine["histogram"].sum() == len(truth)
        assert mine["classes"].sum() == len(truth)
        assert mine["excluded"].sum() == 0
        assert mine["duration_sum_ns"].sum() == duration_ns.sum()
        for i, threshold_ns in enumerate(thresholds_ns):
            assert mine["within"][:, i].sum() == (duration_ns <= threshold_ns).sum()
        slow = halves.stages[(halves.rec["role"] == role) & (halves.duration_ns > thresholds_ns[0])]
        np.testing.assert_array_equal(mine["over_stage_ns"][:, 0].sum(axis=0), slow.sum(axis=0))
        np.testing.assert_array_equal(
            mine["over_dominant"][:, 0].sum(axis=0), np.bincount(slow.argmax(axis=1), minlength=slow.shape[1])
        )
