"""Who reads the records of TCP-RT: nobody for a while, an agent for the targets of its plan, the tool."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from latencyprobe_agent.signals.table import TASKS
from latencyprobe_agent.tools.tcprt.ports import Ports
from latencyprobe_agent.vocabulary.records import Role, TcprtKind, TcprtSide
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.following import CLIENT, PORT, SERVER, connected, not_open, rpc

pytestmark = pytest.mark.root

LATENCYPROBE = Path(sys.executable).with_name("latencyprobe")


@pytest.mark.parametrize("ring", ["tcprts", "newest"])
def test_twice_the_buffer_with_nobody_reading_loses_exactly_the_rest(follow, hosts, ring):
    size = 64 << 10
    followed = follow(Ports(local=(PORT,)), ring=ring, ring_bytes=size, background=False)
    room = size // 208 if ring == "tcprts" else followed.recorder.programs[0].map(ring).max_entries
    total = 2 * room + 1
    with connected(hosts) as (client, server):
        for _ in range(total):
            rpc(client, server, response=1)
    wait_until(lambda: not_open(hosts[1]), "the end of the socket")
    records = followed.take()
    lost = followed.recorder.lost()["ring_full"]
    numbers = [record.task_no for record in records if record.kind == "R"]
    print(f"{ring}: {len(records)} of {total + 1} records delivered, {lost} lost")
    assert lost > 0
    assert total + 1 == len(records) + lost
    if ring == "tcprts":
        assert list(range(1, len(numbers) + 1)) == numbers
        assert not any(record.kind == "E" for record in records)
    else:
        assert {"E"} == {record.kind for record in records} - {"R"}
        assert total in numbers


def test_an_agent_follows_the_targets_that_ask_for_it(session, hosts, record):
    """Server halves of a target are its local side, client halves its peer side; others have no record."""
    wanting, other = PORT, free_port()
    session.measure(wanting, evidence=("tcprt",))
    recorder = record(TASKS)
    with connected(hosts) as (client, server):
        for _ in range(2):
            rpc(client, server)
    evidence = recorder.until(lambda so_far: (so_far.rec["kind"] == TcprtKind.E).sum() == 2, "both ends")
    exchanges = session.records(4)
    session.measure(other, evidence=("tcprt",))
    with connected(hosts) as (client, server):
        rpc(client, server)
    session.measure(wanting)
    with connected(hosts) as (client, server):
        rpc(client, server)
    session.records(6)
    assert len(evidence) == len(recorder)
    records = evidence.rec
    assert {"RRE", "PPE"} == {
        "".join(TcprtKind(kind).name for kind in records["kind"][records["side"] == side]) for side in TcprtSide
    }
    for role, begin in ((Role.SERVER, "response_seq"), (Role.CLIENT, "request_seq")):
        halves = exchanges[exchanges["role"] == role]
        tasks = evidence.joins & (records["flow"]["role"] == role)
        assert list(halves[begin]) == list(evidence.key["seq"][tasks]), "a task has the bytes of its half"
        assert set(halves["sock_cookie"]) == set(records["flow"]["sock_cookie"][tasks])
        assert {1} == set(records["flow"]["target_set"][tasks])


def test_the_tool_prints_what_the_connections_did(hosts):
    words = ["tcprt", "--lports", str(PORT), "--pports", f"{PORT}-{PORT}", "--buffer", "overwrite", "-o", "json"]
    tool = subprocess.Popen([LATENCYPROBE, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert "attached" in tool.stderr.readline()
        with connected(hosts, "mapped") as (client, server):
            rpc(client, server)
            rpc(client, server)
        wait_until(lambda: not_open(hosts[1]), "the end of the socket")
        tool.send_signal(signal.SIGINT)
        printed, said = tool.communicate(timeout=10)
    finally:
        tool.kill()
        tool.wait()
    records = [json.loads(line) for line in printed.splitlines()]
    for side, kinds in (("local", "RRE"), ("peer", "PPE")):
        assert kinds == "".join(record["record"] for record in records if record["side"] == side)
    served = next(record for record in records if record["record"] == "R")
    assert (100, 1000, 1, SERVER, PORT, CLIENT, 4) == tuple(
        served[name]
        for name in ("recv_bytes", "sent_bytes", "task_no", "local_addr", "local_port", "peer_addr", "family")
    )
    assert os.getpid() == served["owner_tgid"], "the process that sent"
    assert (0, "lost: none\n") == (tool.returncode, said)
