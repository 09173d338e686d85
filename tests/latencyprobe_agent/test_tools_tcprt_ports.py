"""Which connections TCP-RT follows, docs/design/evidence.md, "TCP-RT connections"."""

import pytest

from latencyprobe_agent.tools.tcprt.ports import Ports, parse_ports


def test_ports_and_ranges_are_read():
    assert ((3306, 80), ((8000, 8999), (1, 1))) == parse_ports("3306, 80,8000-8999,1-1,80,")


@pytest.mark.parametrize("text", ["x", "0", "65536", "9-", "-9", "9-8", "80:90"])
def test_a_wrong_port_is_named(text):
    with pytest.raises(ValueError, match=text):
        parse_ports(f"3306,{text}")


def test_the_local_side_wins():
    ports = Ports(local=(80,), local_ranges=((8000, 8999),), peer=(80,), peer_ranges=((9000, 9000),))
    assert ["local", "local", "peer", "peer", None] == [
        ports.side(*ends) for ends in [(80, 80), (8999, 80), (7, 80), (7, 9000), (7, 8000)]
    ]
