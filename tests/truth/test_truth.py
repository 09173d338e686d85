"""The oracle is proven against itself before anything is proven with it: both logs tell the same story."""

import json
import subprocess
import time

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import EXCHANGE
from tests.support.ports import free_port
from tests.truth import workload
from tests.truth.join import CLIENT, SERVER, Truth, disagreements, match, outside_calls, pairs_by_rpc

pytestmark = pytest.mark.root  # needs a C compiler, as the kernel tests do

MS = 1_000_000


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return workload.run_both(tmp_path_factory.mktemp("truth") / "log", total=20_000, seed=7, jitter_us=20)


def perfect_records(truth: Truth) -> np.ndarray:
    """What an error-free measurement of `truth` would hand over: client records, then server records."""
    records = np.zeros(2 * len(truth), EXCHANGE)
    for role, rows in ((CLIENT, records[: len(truth)]), (SERVER, records[len(truth) :])):
        log = truth.side(role)
        rows["role"], rows["sock_cookie"] = role, log["cookie"]
        rows["request_offset"], rows["response_offset"] = truth.request_offset, truth.response_offset
        rows["ready_first_ns"], rows["ready_last_ns"] = truth.ready_ns(role)
        for field in ("send_start_ns", "send_end_ns", "read_first_ns", "read_last_ns", "request_bytes"):
            rows[field] = log[field]
        for field in ("response_bytes", "local_port", "peer_port", "send_calls", "recv_calls"):
            rows[field] = log[field]
    return records


def test_client_and_server_log_the_same_rpcs_in_causal_order(truth):
    assert len(truth) == 20_000
    assert (truth.client["send_start_ns"] < truth.server["read_first_ns"]).all()
    assert (truth.server["send_start_ns"] < truth.client["read_last_ns"]).all()
    assert (truth.server["read_last_ns"] <= truth.server["send_start_ns"]).all()


def test_workload_covers_sizes_splits_and_one_request_connections(truth):
    per_connection = np.unique(truth.client["cookie"], return_counts=True)[1]
    assert (per_connection == 1).sum() >= 10
    assert truth.server["response_bytes"].min() == 1
    assert truth.server["response_bytes"].max() == 1 << 18
    assert set(truth.client["send_calls"]) == set(range(1, 9))
    assert truth.server["recv_calls"].max() > 5


def test_a_seed_gives_the_same_workload_again(truth, tmp_path):
    again = workload.run_both(tmp_path / "log", total=20_000, seed=7, jitter_us=20)
    for field in ("rpc", "ordinal", "request_bytes", "response_bytes", "send_calls"):
        np.testing.assert_array_equal(truth.client[field], again.client[field])


def test_stages_sum_to_the_duration_and_network_closes_the_pair(truth):
    client, server = truth.stages(CLIENT), truth.stages(SERVER)
    assert (client >= 0).all()
    assert (server >= 0).all()
    np.testing.assert_array_equal(client.sum(axis=1), truth.client["read_last_ns"] - truth.client["send_start_ns"])
    named = np.minimum(client[:, 0], server[:, 0]) + server[:, 1:].sum(axis=1) + client[:, 3]
    np.testing.assert_array_equal(truth.network_ns() + named, client.sum(axis=1))


@pytest.mark.parametrize(
    ("cause", "role", "stage"),
    [
        ("server-sleep", SERVER, 2),
        ("server-stop", SERVER, 1),
        ("response-gap", SERVER, 3),
        ("client-stop", CLIENT, 3),
        ("request-gap", CLIENT, 0),
    ],
)
def test_injected_cause_shows_in_its_stage_of_the_log(tmp_path, cause, role, stage):
    slow = workload.run_both(
        tmp_path / "log", total=200, threads=4, max_size=8192, cause=cause, every=2, cause_ms=40, single_percent=0
    )
    hit = slow.client["cause"] > 0
    assert hit.sum() >= 80
    stages = slow.stages(role)
    assert np.median(stages[hit, stage]) >= 40 * MS
    assert np.median(stages[~hit, stage]) < 5 * MS
    assert (np.median(np.delete(stages[hit], stage, axis=1), axis=0) < 41 * MS).all()


def test_join_finds_every_record_of_a_perfect_measurement(truth):
    records = perfect_records(truth)
    shuffled = np.random.default_rng(1).permutation(records)
    matched = match(truth, shuffled)
    assert len(matched.missing(CLIENT)) == len(matched.missing(SERVER)) == 0
    assert len(matched.extra[CLIENT]) == len(matched.extra[SERVER]) == 0
    assert set(disagreements(truth, shuffled, matched).values()) == {0}
    assert sum(outside_calls(truth, shuffled, matched).values()) <= len(truth) // 100  # estimated ready stamps


def test_join_tells_missing_extra_and_different_records(truth):
    records = perfect_records(truth)
    records["request_bytes"][5] += 1
    strange = records[:1].copy()
    strange["sock_cookie"] = 2**63
    matched = match(truth, broken := np.concatenate([np.delete(records, [3, len(truth) + 4]), strange]))
    assert matched.missing(CLIENT).tolist() == [3]
    assert matched.missing(SERVER).tolist() == [4]
    assert matched.extra[CLIENT].tolist() == [len(broken) - 1]
    assert disagreements(truth, broken, matched)["client request_bytes"] == 1


def test_join_counts_wrong_pairs(truth):
    records = perfect_records(truth)
    client, server = np.arange(len(truth)), len(truth) + np.arange(len(truth))
    server[[8, 9]] = server[[9, 8]]
    position, wrong = pairs_by_rpc(truth, match(truth, records), client, server)
    assert wrong == 2
    assert np.flatnonzero(position < 0).tolist() == [8, 9]


def test_server_delay_is_switched_while_it_runs():
    port, control = free_port(), f"127.0.0.1:{free_port()}"
    server = subprocess.Popen(
        workload.command("serve", {"address": f"[::1]:{port}", "control": control}), stdout=subprocess.PIPE
    )
    load = {"address": f"[::1]:{port}", "total": 20, "threads": 1, "size": 64, "rate": 1000}
    try:
        slowest_us = []
        for ms in ("0", "40"):
            deadline = time.monotonic() + 10
            switch = [workload.build(), "delay", control, ms]
            while subprocess.run(switch, check=False, capture_output=True).returncode:
                assert time.monotonic() < deadline, "the server's control port never answered"
            done = subprocess.run(workload.command("load", load), check=True, capture_output=True, text=True)
            totals = json.loads(done.stdout)
            assert (totals["answered"], totals["errors"], totals["done"]) == (20, 0, True)
            slowest_us.append(totals["slowest_us"])
        assert slowest_us[1] >= 40_000
    finally:
        server.terminate()
        out, _ = server.communicate()
    assert json.loads(out)["answered"] == 40
