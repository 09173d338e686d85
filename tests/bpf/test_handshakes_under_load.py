"""20,000 connections as fast as they open: counts stay exact whatever the rings take, and losses are told."""

import os
import re
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from latencyprobe_agent.signals.table import HANDSHAKES, RETRANSMITS
from latencyprobe_agent.vocabulary.records import ConnectOutcome, Role
from tests.support.waiting import wait_until
from tests.truth import storm
from tests.truth.recorder import beside

pytestmark = pytest.mark.root

CONNECTIONS = int(os.environ.get("CONNECTIONS", "20000"))  # a guest in emulation opens fewer
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
            outcomes = opened["connections"].tolist()
            print(f"{role.name}: {opened}, {sent}, {came} records, {skipped} skipped on this machine")
            missing = CONNECTIONS + failures - sum(outcomes)
            assert sum(outcomes) == outcomes[ConnectOutcome.OK] + outcomes[ConnectOutcome.REFUSED]
            assert 0 <= missing <= skipped, "a firing that the kernel skipped is the only one that is not counted"
            assert came + lost == sum(outcomes)
            assert bool(lost) == (ring_bytes == 4096)
            told = int(sent["bytes_sent"] - sent["bytes_retrans"])
            assert (CONNECTIONS - skipped) * sizes[role] <= told <= CONNECTIONS * sizes[role]
            assert sent["segs_sent"] >= CONNECTIONS - skipped


@pytest.mark.usefixtures("needs_storage")
def test_the_tool_says_how_many_connections_there_were_and_what_it_could_not_show(port, tmp_path):
    said = tmp_path / "said"
    with (tmp_path / "shown").open("w") as out, said.open("w") as err:
        tool = subprocess.Popen([*COMMAND, "--port", str(port)], stdout=out, stderr=err)
    try:
        wait_until(lambda: "attached" in said.read_text() or tool.poll(), "the tool runs", timeout_s=120)
        with storm.serving(port):
            storm.dial(port, CONNECTIONS)
        refused(port)
    finally:
        tool.send_signal(signal.SIGINT)
        tool.wait(120)
    text, shown = said.read_text(), len(re.findall(rf":{port}\b", (tmp_path / "shown").read_text()))
    lost = sum(int(count) for count in re.findall(r"(\d+) \((?:ring_full|not_shown)\)", text))
    print(f"{shown} rows; {text}")
    assert f"connections: {2 * CONNECTIONS} ok, {REFUSED} refused; " in text
    assert shown + lost == 2 * CONNECTIONS + REFUSED
