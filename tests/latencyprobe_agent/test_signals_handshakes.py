"""What handshakes say of exchanges and in metrics, from records made by hand."""

from collections.abc import Sequence

import numpy as np
import pytest

from latencyprobe_agent.signals import handshakes
from latencyprobe_agent.signals.evidence import Sample
from latencyprobe_agent.signals.join_keys import RECENT_HALF
from latencyprobe_agent.vocabulary.records import (
    COUNTS_KEY,
    EVIDENCE_COUNTS,
    EXCHANGE,
    HANDSHAKE,
    ConnectOutcome,
    HandshakeFlags,
    HandshakeMethod,
    Role,
)

US, MS = 1_000, 1_000_000


def records(*changes: dict[str, object]) -> np.ndarray:
    """Handshakes of clients that went well, but for what is said."""
    batch = np.zeros(len(changes), HANDSHAKE)
    batch["flow"]["role"] = Role.CLIENT
    for record, changed in zip(batch, changes, strict=True):
        record["n_syn"] = 1
        record["rtt_ns"] = record["rtt_min_ns"] = record["rtt_max_ns"] = 80 * US
        record["connect_ns"] = 120 * US
        for name, value in changed.items():
            record[name] = value
    return batch


AMBIGUOUS = {"flags": HandshakeFlags.AMBIGUOUS, "rtt_ns": 0, "rtt_min_ns": 2 * MS, "rtt_max_ns": 1002 * MS, "n_syn": 2}
REFUSED = {"outcome": ConnectOutcome.REFUSED, "rtt_ns": 0, "server_isn": 0}


def test_a_handshake_is_about_the_time_before_the_first_exchange():
    isns = {"client_isn": 1000, "server_isn": 2**32 - 1}
    batch = records(isns, isns)
    batch["flow"]["role"] = Role.CLIENT, Role.SERVER
    first = np.zeros(2, RECENT_HALF)
    first["at"], first["fresh"], first["seq"] = (1, 2), True, (1001, 0)
    evidence = handshakes.columns(batch)
    assert evidence.joins.tolist() == [True, True]
    assert handshakes.KEY.find(first, evidence.key).tolist() == [0, 1], "where the first message of either end begins"


def test_only_a_connection_that_opened_joins_an_exchange():
    outcomes = list(ConnectOutcome)
    joins = handshakes.columns(records(*({"outcome": outcome} for outcome in outcomes))).joins
    opened = [outcome for outcome, joined in zip(outcomes, joins, strict=True) if joined]
    assert opened == [ConnectOutcome.OK, ConnectOutcome.SIMULTANEOUS]


def test_records_of_another_signal_are_refused():
    with pytest.raises(TypeError, match="HANDSHAKE"):
        handshakes.columns(np.zeros(1, EXCHANGE))


def test_the_event_tells_rtt_and_connect_time_in_seconds():
    assert handshakes.fields(records({})[0]) == {
        "latencyprobe.handshake.rtt": 80e-6,
        "latencyprobe.handshake.connect": 120e-6,
        "latencyprobe.handshake.syns": 1,
        "latencyprobe.outcome": "ok",
        "latencyprobe.method": "kernel",
    }


def test_the_event_of_a_server_tells_the_syn_acks_that_it_sent_again():
    fields = handshakes.fields(records({"synack_retransmits": 2})[0])
    assert fields["latencyprobe.handshake.synack_retransmits"] == 2


def test_a_list_of_slow_exchanges_tells_what_the_application_waited_or_the_rtt_at_a_server():
    lost, server = records({"n_syn": 2, "connect_ns": 1002 * MS}, {"connect_ns": 0})
    assert [("ok", 2, 1002 * MS), ("ok", 1, 80 * US)] == handshakes.describe(lost, 0) + handshakes.describe(server, 0)


def test_an_ambiguous_handshake_has_bounds_and_no_rtt():
    fields = handshakes.fields(records(AMBIGUOUS)[0])
    assert "latencyprobe.handshake.rtt" not in fields
    assert (fields["latencyprobe.handshake.rtt_min"], fields["latencyprobe.handshake.rtt_max"]) == (0.002, 1.002)


def test_what_is_not_known_is_left_out():
    server = {"connect_ns": 0, "n_syn": 0, "flags": HandshakeFlags.AMBIGUOUS, "rtt_ns": 0, "rtt_min_ns": 0}
    fields = handshakes.fields(records(server | {"rtt_max_ns": 0})[0])
    assert fields == {"latencyprobe.outcome": "ok", "latencyprobe.method": "kernel"}


def sampled(batch: np.ndarray) -> dict[str, tuple[list[int], list[float], dict[str, list[str]]]]:
    return by_metric(handshakes.samples(handshakes.columns(batch)))


def by_metric(samples: Sequence[Sample]) -> dict[str, tuple[list[int], list[float], dict[str, list[str]]]]:
    return {
        sample.metric.name.removeprefix("latencyprobe.tcp."): (
            sample.rows.tolist(),
            sample.values.tolist(),
            {name: values.tolist() for name, values in sample.labels.items()},
        )
        for sample in samples
    }


def test_an_ambiguous_rtt_is_in_no_histogram():
    metrics = sampled(records({}, AMBIGUOUS))
    assert metrics["handshake.duration"] == ([0], [80e-6], {"latencyprobe.method": ["kernel"]})
    assert metrics["connect.duration"] == ([0, 1], [120e-6, 120e-6], {}), "what the application waited is known"


def test_a_failed_connection_has_no_connect_time():
    timeout = {"outcome": ConnectOutcome.TIMEOUT, "rtt_ns": 0, "method": HandshakeMethod.TC}
    assert sampled(records(REFUSED, {}, timeout))["connect.duration"][0] == [1]


def test_connections_are_those_that_the_kernel_counted():
    keys, gained = np.zeros(2, COUNTS_KEY), np.zeros(2, EVIDENCE_COUNTS)
    gained["connections"][0, [ConnectOutcome.OK, ConnectOutcome.REFUSED]] = 20_000, 3
    gained["connections"][1, ConnectOutcome.TIMEOUT] = 2
    gained["ambiguous"][1] = 7
    gained["lost_records"] = 9
    assert by_metric(handshakes.counted(keys, gained)) == {
        "connections": ([0, 0, 1], [20_000, 3, 2], {"latencyprobe.outcome": ["ok", "refused", "timeout"]}),
        "failed_connections": ([0, 1], [3, 2], {"latencyprobe.reason": ["refused", "timeout"]}),
        "handshake.ambiguous": ([1], [7], {}),
    }


def test_a_refusal_that_was_timed_is_a_round_trip():
    timed = {"outcome": ConnectOutcome.REFUSED, "method": HandshakeMethod.TC, "connect_ns": 0}
    assert sampled(records(timed))["handshake.duration"] == ([0], [80e-6], {"latencyprobe.method": ["tc"]})
