"""The oracle is proven against itself before anything is proven with it: both logs tell the same story."""

import json
import subprocess
from dataclasses import replace

import numpy as np
import pytest

from latencyprobe_agent.vocabulary.records import EXCHANGE
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth import workload
from tests.truth.join import (
    CLIENT,
    CUTS,
    NAMES,
    SERVER,
    Truth,
    disagreements,
    match,
    outside_calls,
    outside_stages,
    pair_stages,
    pairs_by_rpc,
    with_cookies_of_log,
)

pytestmark = pytest.mark.root  # needs a C compiler, as the kernel tests do

MS = 1_000_000


@pytest.fixture(scope="module")
def truth(tmp_path_factory):
    return workload.run_both(tmp_path_factory.mktemp("truth") / "log", total=20_000, seed=7, jitter_us=20)


def perfect_records(truth: Truth) -> np.ndarray:
    """What an error-free measurement would hand over, stamps anywhere in their brackets: clients', then servers'."""
    records, dice = np.zeros(2 * len(truth), EXCHANGE), np.random.default_rng(7)
    for role, rows in ((CLIENT, records[: len(truth)]), (SERVER, records[len(truth) :])):
        log = truth.side(role)
        rows["role"], rows["sock_cookie"] = role, log["cookie"]
        rows["request_offset"], rows["response_offset"] = truth.request_offset, truth.response_offset
        for field, (low, high) in truth.brackets(role).items():
            rows[field] = dice.integers(low, high, endpoint=True)
        for field in ("request_bytes", "response_bytes", "local_port", "peer_port", "send_calls", "recv_calls"):
            rows[field] = log[field]
    return records


def stages_of(records: np.ndarray) -> np.ndarray:
    """int64[n, 4] of perfect records."""
    stages = np.zeros((len(records), 4), np.int64)
    for role, cuts in CUTS.items():
        rows = records["role"] == role
        points = np.stack([records[field][rows].astype(np.int64) for field in cuts])
        stages[rows] = np.diff(np.maximum.accumulate(points), axis=0).T
    return stages


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


def test_the_log_brackets_every_stamp_and_every_stage(truth):
    for role in NAMES:
        assert all((low <= high).all() for low, high in truth.brackets(role).values())
        (least, most), (shortest, longest) = truth.stages(role), truth.duration_ns(role)
        assert (least >= 0).all()
        assert (least <= most).all()
        assert (least.sum(axis=1) <= longest).all()
        assert (shortest <= most.sum(axis=1)).all()


def test_network_closes_the_pair(truth):
    records = perfect_records(truth)
    client, server = (stages_of(records[records["role"] == role]) for role in NAMES)
    np.testing.assert_array_equal(pair_stages(client, server).sum(axis=1), client.sum(axis=1))


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
        tmp_path / "log",
        total=200,
        threads=4,
        size=512,
        one_piece=True,
        cause=cause,
        every=2,
        cause_ms=40,
        single_percent=0,
    )
    hit = slow.client["cause"] > 0
    assert hit.sum() >= 80
    least, _ = slow.stages(role)
    assert (least[hit, stage] >= 40 * MS).all()


def test_join_finds_every_record_of_a_perfect_measurement(truth):
    records = perfect_records(truth)
    shuffled = np.random.default_rng(1).permutation(records)
    matched = match(truth, shuffled)
    assert len(matched.missing(CLIENT)) == len(matched.missing(SERVER)) == 0
    assert len(matched.extra[CLIENT]) == len(matched.extra[SERVER]) == 0
    assert set(disagreements(truth, shuffled, matched).values()) == {0}
    assert set(outside_calls(truth, shuffled, matched).values()) == {0}
    assert set(outside_stages(truth, stages_of(shuffled), matched).values()) == {0}


@pytest.mark.parametrize(("end", "off_ns"), [(0, -1), (1, 1)], ids=["too early", "too late"])
def test_join_finds_every_stamp_that_is_a_nanosecond_outside_its_call(truth, end, off_ns):
    records = perfect_records(truth)
    matched = match(truth, records)
    for role, name in NAMES.items():
        for field, bracket in truth.brackets(role).items():
            wrong = records.copy()
            wrong[field][matched.record[role][5]] = bracket[end][5] + off_ns
            found = {stamp: n for stamp, n in outside_calls(truth, wrong, matched).items() if n}
            assert found == {f"{name} {field}": 1}


def test_join_finds_a_stage_that_the_log_does_not_allow(truth):
    records = perfect_records(truth)
    matched, stages = match(truth, records), stages_of(records)
    stages[matched.record[SERVER][3], 2] += truth.duration_ns(SERVER)[1][3] + 1
    stages[matched.record[CLIENT][4], 1] = -1
    found = {stage: n for stage, n in outside_stages(truth, stages, matched).items() if n}
    assert found == {"server process": 1, "client wait": 1}


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


def test_connections_that_had_the_same_ports_one_after_the_other_are_told_by_their_order(truth):
    records = perfect_records(truth)
    records["send_start_ns"] = np.concatenate([truth.client["send_start_ns"], truth.server["send_start_ns"]])
    numbers, truth = records.copy(), replace(truth, client=truth.client.copy(), server=truth.server.copy())
    numbers["sock_cookie"] ^= np.uint64(1 << 60)
    for each in (truth.client, truth.server, numbers):
        each["local_port"], each["peer_port"] = 1, 2
    assert with_cookies_of_log(truth, numbers)["sock_cookie"].tolist() == records["sock_cookie"].tolist()

    first, last = numbers["sock_cookie"][[0, len(truth) - 1]]
    assert first != last
    numbers["sock_cookie"][numbers["sock_cookie"] == last] = first
    with pytest.raises(ValueError, match="connections"):
        with_cookies_of_log(truth, numbers)


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
            switch = [workload.build(), "delay", control, ms]
            wait_until(lambda s=switch: not subprocess.run(s, check=False).returncode, "the server's control answers")
            done = subprocess.run(workload.command("load", load), check=True, capture_output=True, text=True)
            totals = json.loads(done.stdout)
            assert (totals["answered"], totals["errors"], totals["done"]) == (20, 0, True)
            slowest_us.append(totals["slowest_us"])
        assert slowest_us[1] >= 40_000
    finally:
        server.terminate()
        out, _ = server.communicate()
    assert json.loads(out)["answered"] == 40
