"""20,000 connections as fast as they open: counts stay exact whatever the rings take, and losses are told."""

import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from latencyprobe_agent.signals.table import HANDSHAKES, RETRANSMITS
from latencyprobe_agent.vocabulary.records import ConnectOutcome, Role
from tests.truth import storm
from tests.truth.recorder import beside

pytestmark = pytest.mark.root

CONNECTIONS = 20_000
REFUSED = 1_000
COMMAND = [str(Path(sys.executable).with_name("latencyprobe")), "handshakes"]


def refused(port: int) -> None:
    for _ in range(REFUSED):
        with pytest.raises(ConnectionRefusedError), socket.socket() as made:
            made.connect(("127.0.0.1", port))


@pytest.mark.usefixtures("needs_storage")
@pytest.mark.parametrize("ring_bytes", [4096, 1 << 24], ids=["a ring of a page", "a ring for all"])
def test_connections_and_segments_of_a_plan_are_counted_where_nobody_reads(session, port, ring_bytes):
    session.measure(port, evidence=("handshakes", "retransmits"))
    with ExitStack() as stack:
        handshakes, retransmits = (
            stack.enter_context(beside(session.programs, signal, ring_bytes=ring_bytes, background=False))
            for signal in (HANDSHAKES, RETRANSMITS)
        )
        with storm.serving(port):
            storm.dial(port, CONNECTIONS)
        refused(port)
        sizes = {Role.CLIENT: len(storm.REQUEST), Role.SERVER: len(storm.ANSWER)}
        skipped = handshakes.lost()["recursion"] + retransmits.lost()["recursion"]
        for role, failures in ((Role.CLIENT, REFUSED), (Role.SERVER, 0)):
            opened, sent = handshakes.counted(role=role), retransmits.counted(role=role)
            lost, came = int(opened["lost_records"]), len(handshakes.records(role=role))
            print(f"{role.name}: {opened}, {sent}, {came} records, {skipped} skipped on this machine")
            outcomes = opened["connections"].tolist()
            assert outcomes[ConnectOutcome.OK] == CONNECTIONS
            assert outcomes[ConnectOutcome.REFUSED] == failures == sum(outcomes) - CONNECTIONS
            assert came + lost == sum(outcomes)
            assert bool(lost) == (ring_bytes == 4096)
            assert sent["bytes_sent"] - sent["bytes_retrans"] == CONNECTIONS * sizes[role]
            assert sent["segs_sent"] >= CONNECTIONS
