"""`latencyprobe retransmits` as a person runs it, on losses that drop rules make between two namespaces."""

import itertools
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from latencyprobe_agent.kernel.evidence import Filter
from latencyprobe_agent.signals.table import RETRANSMITS
from tests.support.ports import free_port
from tests.support.waiting import wait_until
from tests.truth.lossy import SERVER_ADDRESS, Network, network
from tests.truth.netns import ONCE
from tests.truth.recorder import Recorder, alone

pytestmark = pytest.mark.root

COMMAND = [str(Path(sys.executable).with_name("latencyprobe")), "retransmits"]
PORT = free_port()
ROW = re.compile(
    rf"\d\d:\d\d:\d\d\.\d{{6}} ({os.getpid()}|-) +([46])  (\S+:\d+) +R> (\S+:{PORT}) +ESTABLISHED +tlp +1 1000( \d+)?$"
)
HEADER = "TIME PID IP LADDR:LPORT T> RADDR:RPORT STATE REASON SEGS LEN SEQ"


@contextmanager
def tool(folder: Path, *options: str) -> Iterator[dict[str, str]]:
    """Run it while the block runs; then `out` and `err` are what it said."""
    said: dict[str, str] = {}
    name = "".join(options)
    out, err = folder / f"{name}.out", folder / f"{name}.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        running = subprocess.Popen([*COMMAND, "--port", str(PORT), *options], stdout=stdout, stderr=stderr)
    try:
        wait_until(lambda: "attached" in err.read_text() or running.poll(), "the tool runs", timeout_s=30)
        yield said
    finally:
        running.send_signal(signal.SIGINT)
        running.wait(20)
        said |= {"out": out.read_text(), "err": err.read_text()}
    assert running.returncode == 0, said["err"]


def lose_one(
    lossy: Network, seen: Recorder, host: str = SERVER_ADDRESS, listen: str = "", *, answer: bool = False
) -> None:
    """Lose the only segment of 1,000 bytes of a new connection, the client's or the `answer`; a loss probe brings it,
    and a program beside the tools' sees it.

    Where its timer comes upon the first process of a host that keeps this one from all programs (docs/design/kernel.md,
    "Threads without programs"), none does; then it is done again.
    """
    way, at = ("sport", lossy.client) if answer else ("dport", lossy.server)
    for _ in range(5):
        ((client, server),) = lossy.connect(PORT, host, listen)
        sender, receiver = (server, client) if answer else (client, server)
        at.filter("input", f"tcp {way} {PORT} meta length > 500 {ONCE} drop")
        sender.sendall(bytes(1000))
        assert len(receiver.recv(1000, socket.MSG_WAITALL)) == 1000
        at.unfilter()
        if len(seen.records(sender)):
            return
    raise AssertionError("of five segments sent again no program saw one")


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """What each form of the tool says of one retransmit over IPv4, one over IPv6 and one over mapped addresses."""
    folder = tmp_path_factory.mktemp("said")
    pid = ["--pid", str(os.getpid())]
    with (
        network() as lossy,
        alone(RETRANSMITS, Filter(port=PORT)) as seen,
        tool(folder, "--seq") as rows,
        tool(folder, "-4") as only4,
        tool(folder, "-6", *pid) as only6,
        tool(folder, "-s") as stacks,
        tool(folder, "-l", "-c") as counted,
        tool(folder, "-o", "json") as objects,
        tool(folder, "--addr", "10.99.0.77") as nothing,
    ):
        for host, listen in (("10.99.0.2", ""), ("fd99::2", ""), ("::ffff:10.99.0.2", "::")):
            lose_one(lossy, seen, host, listen)
    return {
        "rows": rows,
        "-4": only4,
        "-6": only6,
        "-s": stacks,
        "-c": counted,
        "json": objects,
        "nothing": nothing,
    }


def test_each_family_gives_rows_of_one_form(said):
    header, *rows = said["rows"]["out"].splitlines()
    assert HEADER.split() == header.split()
    found = [ROW.fullmatch(row) for row in rows]
    assert all(found), rows
    assert ["4", "6", "4"] == [row[2] for row in found]
    assert ["10.99.0.1", "[fd99::1]", "10.99.0.1"] == [row[3].rpartition(":")[0] for row in found]
    assert [str(os.getpid())] * 3 == [row[1] for row in found], "it is this process that connected"
    assert all(row[5] for row in found), "--seq"
    assert "lost: none" in said["rows"]["err"]


def test_family_and_address_filter(said):
    assert [2, 1, 0] == [len(said[name]["out"].splitlines()) - 1 for name in ("-4", "-6", "nothing")]
    assert ["4", "4"] == [ROW.fullmatch(row)[2] for row in said["-4"]["out"].splitlines()[1:]]


def test_stacks_name_the_kernels_functions(said):
    lines = said["-s"]["out"].splitlines()[1:]
    stacks = "\n".join(line for line in lines if line.startswith(" => "))
    assert sum(line.startswith(" => ") for line in lines) == len(lines) - 3
    assert stacks.count(" => __tcp_retransmit_skb\n => tcp_send_loss_probe\n") == 3, stacks
    first = [line for before, line in itertools.pairwise(lines) if not before.startswith(" => ")]
    assert [" => __tcp_retransmit_skb"] * 3 == first, "and nothing of what calls programs"


def test_flows_are_counted_and_loss_probes_accounted_for(said):
    flows = [re.fullmatch(r"(\S+) +<-> (\S+) +(\d+)", line).groups() for line in said["-c"]["out"].splitlines()]
    assert ["1", "1", "1"] == [count for _, _, count in flows]
    assert {"10.99.0.2", "[fd99::2]"} == {peer.rpartition(":")[0] for _, peer, _ in flows}
    assert "loss probes" in said["-c"]["err"], "seen, or why not and how many the namespace counts"


def test_json_has_an_object_a_line_with_the_records_own_names(said):
    objects = [json.loads(line) for line in said["json"]["out"].splitlines()]
    assert ["tlp"] * 3 == [one["reason"] for one in objects]
    assert ["10.99.0.1", "fd99::1", "10.99.0.1"] == [one["local_addr"] for one in objects]
    for one in objects:
        assert (one["type"], one["len"], one["nth"], one["err"], one["fin"]) == ("R", 1000, 1, 0, False)
        assert (one["owner_tgid"], one["peer_port"], one["icsk_pending"]) == (os.getpid(), PORT, 5)
        assert one["end_seq"] - one["seq"] == 1000
        assert 100_000 <= one["rto_us"] <= 2_000_000
        assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", one["time"])


def test_process_of_an_accepted_socket_is_found_by_its_inode(tmp_path):
    with (
        network() as lossy,
        alone(RETRANSMITS, Filter(port=PORT)) as seen,
        tool(tmp_path, "-o", "json") as answers,
    ):
        lose_one(lossy, seen, answer=True)
    (one,) = [json.loads(line) for line in answers["out"].splitlines()]
    assert (os.getpid(), PORT) == (one["owner_tgid"], one["local_port"])
    assert Path("/proc/self/comm").read_text().strip() == one["owner_comm"]
