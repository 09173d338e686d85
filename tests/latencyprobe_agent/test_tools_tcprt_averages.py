"""The statistics line of TCP-RT, docs/design/evidence.md, "TCP-RT averages"."""

from latencyprobe_agent.tools.tcprt.averages import Averages
from latencyprobe_agent.tools.tcprt.ports import Ports
from latencyprobe_agent.tools.tcprt.replay import replay
from tests.truth.operations import EXAMPLE_STATISTICS, T_NS, Script, example

S = 1_000_000_000


def averages(ports: Ports, *scripts: Script) -> Averages:
    made = Averages(ports, T_NS, 60 * S)
    for script in scripts:
        for record in replay(script.lines):
            made.add(record)
    return made


def test_the_example_is_written_byte_for_byte():
    made = averages(Ports(local=(3306,)), example())
    assert [EXAMPLE_STATISTICS] == list(made.lines(1594281660))


def test_what_was_written_is_not_counted_again():
    made = averages(Ports(local=(3306,)), example())
    assert [EXAMPLE_STATISTICS] == list(made.lines(1594281660))
    assert ["1594281720 all 3306 0 0 0 0 0 0 0 0 0\n"] == list(made.lines(1594281720))


def test_lines_come_10_s_after_the_start_and_then_every_interval():
    made = averages(Ports(local=(3306,)))
    assert [] == list(made.due(T_NS + 10 * S - 1))
    start = T_NS // S
    assert [start + 10, start + 70, start + 130] == [int(line.split()[0]) for line in made.due(T_NS + 135 * S)]


def test_ports_of_a_range_print_only_what_they_counted_and_peer_ports_have_a_p():
    unanswered = Script(local="10.0.0.1:8001").recv_data(0, 100).release(9)
    asking = Script("peer", peer="10.0.0.2:5432").send_data(0, 300).recv_data(3, 10).fins().release(9)
    served = Script(local="10.0.0.1:8002").recv_data(0, 100).send_data(1, 10).acked(2).fins().release(9)
    ports = Ports(local=(80,), local_ranges=((8000, 8999),), peer=(5432,))
    assert [
        "7 all 80 0 0 0 0 0 0 0 0 0\n",
        "7 all P5432 3000 3000 0 180 0 300 0 11 1\n",
        "7 all 8002 2000 1000 0 180 0 10 0 100 1\n",
    ] == list(averages(ports, unanswered, asking, served).lines(7))


def test_w_is_a_failure_and_no_average():
    failed = Script(conn=2).recv_data(0, 100).send_data(2, 2000).release(9)
    assert ["7 all 3306 6500 3500 250 180 500 1698 500 850 2\n"] == list(
        averages(Ports(local=(3306,)), example(), failed).lines(7)
    )


def test_a_minimum_rtt_without_a_sample_is_no_part_of_the_average():
    blind = Script(min_rtt_us=None).recv_data(0, 100).send_data(1, 10).acked(2).recv_data(3, 1)
    (line,) = averages(Ports(local=(3306,)), example(), blind).lines(7)
    assert "180" == line.split()[6]
