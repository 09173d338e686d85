"""V6 lines: the parser reads back what the writer wrote, and every older generation."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.tools.tcprt import v6
from latencyprobe_agent.tools.tcprt.operations import endpoint
from latencyprobe_agent.tools.tcprt.replay import replay
from tests.truth.operations import EXAMPLE_LINES, Script

SIZES = st.integers(0, 3_000)
STEPS = st.lists(
    st.tuples(st.sampled_from(["recv_data", "send_data", "acked"]), SIZES, st.booleans()), min_size=1, max_size=30
)


@given(STEPS, st.sampled_from(["local", "peer"]), st.integers(0, 0xFFFFFFFF), st.integers(0, 0xFFFFFFFF))
def test_the_parser_reads_back_what_the_writer_wrote(steps, side, snd_nxt, rcv_nxt):
    script = Script(side, peer="[fd00::2]:9", snd_nxt=snd_nxt, snd_una=snd_nxt, rcv_nxt=rcv_nxt)
    for ms, (step, size, ofo) in enumerate(steps):
        unacked = (script.now["snd_nxt"] - script.now["snd_una"]) & 0xFFFFFFFF
        getattr(script, step)(ms, min(size, unacked) if step == "acked" else size, **({"ofo": ofo} if ofo else {}))
    records = list(replay(script.release(len(steps)).lines))
    assert "E" == records[-1].kind
    for record in records:
        if text := v6.line(record):
            assert text == v6.render(parsed := v6.parse(text))
            assert (record.kind, record.connection.local, record.task_no) == (
                parsed.flag,
                parsed.local,
                parsed.fields["task_no"],
            )


def test_fields_are_read_by_name():
    first = v6.parse(EXAMPLE_LINES.splitlines()[0])
    assert (first.flag, first.sec, first.usec) == ("R", 1594281600, 456)
    assert (first.peer, first.local) == (endpoint("10.0.0.2:43210"), endpoint("10.0.0.1:3306"))
    assert 1600 == first.fields["recv_bytes"]


def test_an_older_p_is_known_by_its_number_of_fields():
    head = "V6 P 1594281600 456 10.0.0.2:3306 10.0.0.1:40000 "
    names = ("sent_bytes", "total_us", "retransmits", "task_no", "min_rtt_us", "reorder", "mss")
    older = v6.parse(head + "1 2 3 4 5 6 7 ")
    assert (2, dict(zip(names, range(1, 8), strict=True))) == (older.generation, older.fields)
    first = v6.parse(head + "1 2 3 4 1448 ")
    assert (1, {"sent_bytes": 1, "retransmits": 2, "task_no": 3, "min_rtt_us": 4096, "mss": 1448}) == (
        first.generation,
        first.fields,
    )
    with pytest.raises(ValueError, match="a record P has the fields"):
        v6.render(first)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "V5 R 1 2 10.0.0.2:1 10.0.0.1:2 1 1 1 1 1 1 1 1 1 1 ",
        "V6 X 1 2 10.0.0.2:1 10.0.0.1:2 1 ",
        "V6 R 1 2 10.0.0.2:1 10.0.0.1:2 1 2 3 ",
        "V6 P 1 2 10.0.0.2:1 10.0.0.1:2 1 2 3 4 5 6 ",
        "V6 E 1 2 10.0.0.2 10.0.0.1:2 1 2 3 4 5 6 ",
        "V6 E 1 2 10.0.0.2:1 10.0.0.1:2 1 -2 3 4 5 6 ",
    ],
)
def test_a_wrong_line_is_refused(text):
    with pytest.raises(ValueError, match=r"V6|V5|is no|has \d"):
        v6.parse(text)
