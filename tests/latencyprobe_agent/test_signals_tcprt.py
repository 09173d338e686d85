"""What the signal `tcprt` says of its records: which join, the span's attributes, the metrics."""

import numpy as np
import pytest

from latencyprobe_agent.signals import tcprt
from latencyprobe_agent.vocabulary import conventions
from latencyprobe_agent.vocabulary.records import TCPRT, TcprtFlags, TcprtKind


@pytest.fixture
def batch() -> np.ndarray:
    """One record of each kind: R 5 ms, P 7 ms with swapped packets, N, W, and E."""
    batch = np.zeros(5, TCPRT)
    batch["kind"] = [TcprtKind.R, TcprtKind.P, TcprtKind.N, TcprtKind.W, TcprtKind.E]
    batch["start_ns"] = 1_000_000
    batch["end_ns"] = batch["start_ns"] + np.array([5, 7, 9, 11, 0], np.uint64) * np.uint64(1_000_000)
    batch["server_us"], batch["recv_us"] = 3_000, 500
    batch["seq"], batch["end_seq"] = [10, 20, 0, 40, 0], [15, 20, 0, 45, 0]
    batch["flags"][1] = TcprtFlags.REORDER
    return batch


def test_records_with_bytes_of_a_message_join(batch):
    evidence = tcprt.columns(batch)
    assert [True, False, False, True, False] == list(evidence.joins)
    assert [(10, 15), (40, 45)] == evidence.key[["seq", "end_seq"]][evidence.joins].tolist()
    with pytest.raises(TypeError):
        tcprt.columns(np.zeros(1, "u8"))


def test_a_span_gets_the_task_in_seconds(batch):
    assert {
        conventions.TCPRT_RECEIVE: 0.0005,
        conventions.TCPRT_SERVER: 0.003,
        conventions.TCPRT_TOTAL: 0.007,
        conventions.TCPRT_REORDER: True,
    } == tcprt.attributes(batch[:2])
    assert "W" == tcprt.fields(batch[3])[conventions.TCPRT_RECORD]


def test_a_list_of_slow_exchanges_tells_how_long_the_own_message_was_under_way(batch):
    done = [("R", 1, 1_500_000), ("P reordered", 1, 3_500_000)]
    assert done == [one for record in batch[:2] for one in tcprt.describe(record, 0)]


def test_metrics_have_done_tasks_as_durations_and_all_tasks_as_counts(batch):
    samples = {sample.metric.name: sample for sample in tcprt.samples(tcprt.columns(batch))}
    assert {metric.name for metric in conventions.METRICS if ".tcprt." in metric.name} == samples.keys()
    assert [0.005, 0.007] == samples["latencyprobe.tcprt.duration"].values.tolist()
    assert [0, 1] == list(samples["latencyprobe.tcprt.server"].rows)
    tasks = samples["latencyprobe.tcprt.tasks"]
    assert (["R", "P", "N", "W"], [1, 1, 1, 1]) == (list(tasks.labels[conventions.TCPRT_RECORD]), list(tasks.values))
