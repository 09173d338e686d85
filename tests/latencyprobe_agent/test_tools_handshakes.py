"""Rows and JSON of the tool `handshakes`, and what it refuses."""

import json

import numpy as np
import pytest
from click.testing import CliRunner

from latencyprobe_agent.measure.matches import packed
from latencyprobe_agent.tools import handshakes
from latencyprobe_agent.vocabulary.records import HANDSHAKE, ConnectOutcome, HandshakeFlags, HandshakeMethod, Role

UNIX_NS = 1_594_281_600_000_456_789


def record(**changed: object) -> np.void:
    made = np.zeros((), HANDSHAKE)
    flow = made["flow"]
    flow["role"], flow["family"] = Role.CLIENT, 4
    for side, address, port in (("local", "10.0.0.1", 40000), ("peer", "10.0.0.2", 443)):
        flow[f"{side}_addr"], flow[f"{side}_port"] = np.frombuffer(packed(address), np.uint8), port
    made["rtt_ns"], made["connect_ns"], made["n_syn"], made["client_isn"] = 84_000, 1_020_000_000, 2, 7
    for name, value in changed.items():
        made[name] = value
    return made[()]


def test_a_row_tells_both_ends_and_what_the_application_waited():
    assert handshakes.row(record(), UNIX_NS).split() == (
        ["08:00:00.000456", "client", "10.0.0.1:40000", "10.0.0.2:443", "84us", "1.02s", "2", "ok", "kernel", "-"]
    )


def test_a_server_is_named_as_the_server():
    made = record(connect_ns=0, n_syn=0)
    made["flow"]["role"] = Role.SERVER
    assert handshakes.row(made, UNIX_NS).split()[1:7] == ["server", "10.0.0.2:443", "10.0.0.1:40000", "84us", "-", "-"]


def test_an_ambiguous_rtt_shows_its_bounds():
    made = record(flags=HandshakeFlags.AMBIGUOUS, rtt_ns=0, rtt_min_ns=650_000, rtt_max_ns=1_020_000_000)
    assert handshakes.row(made, UNIX_NS).split()[4] == "650us..1.02s?"


def test_a_packet_row_names_its_interface():
    made = record(method=HandshakeMethod.TC, outcome=ConnectOutcome.REFUSED, ifindex=3, connect_ns=0)
    assert handshakes.row(made, UNIX_NS, "eth0").split()[-3:] == ["refused", "tc", "eth0"]


def test_json_has_null_for_what_is_not_known():
    made = record(flags=HandshakeFlags.AMBIGUOUS | HandshakeFlags.PARTIAL, rtt_ns=0, connect_ns=0)
    found = json.loads(handshakes.line(made, UNIX_NS))
    assert (found["time"], found["local_addr"], found["peer_port"]) == ("2020-07-09T08:00:00.000456Z", "10.0.0.1", 443)
    assert (found["ambiguous"], found["partial"], found["timestamps_used"]) == (True, True, False)
    assert [found[name] for name in ("rtt_ns", "connect_ns", "server_isn", "interface")] == [None] * 4
    assert found["client_isn"] == 7


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--interface", "lo"], "need --method tc"),
        (["--method", "tc"], "needs an --interface"),
        (["--method", "tc", "--interface", "lo", "--pid", "1"], "packets name no process"),
    ],
)
def test_what_does_not_fit_together_is_refused(words: list[str], said: str):
    result = CliRunner().invoke(handshakes.handshakes, words)
    assert result.exit_code == 2
    assert said in result.output
