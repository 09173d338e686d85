"""`latencyprobe tcprt` without a kernel: replay, formats, what it refuses."""

import json

import pytest
from click.testing import CliRunner, Result
from operations import EXAMPLE_LINES, example

from latencyprobe_agent.tools.tcprt import tcprt

OPERATIONS = "\n".join(example().lines)


def run(*words: str) -> Result:
    return CliRunner().invoke(tcprt, ["--replay", "-", *words], input=OPERATIONS, catch_exceptions=False)


def test_replay_of_a_file_and_of_stdin_prints_v6_lines(tmp_path):
    (tmp_path / "operations").write_text(OPERATIONS)
    from_file = CliRunner().invoke(tcprt, ["--replay", str(tmp_path / "operations"), "--format", "v6"])
    assert from_file.output == run("--format", "v6").output
    assert from_file.output.startswith(EXAMPLE_LINES)
    assert 3 == from_file.output.count("\n")


def test_json_is_the_corrected_account():
    first, _, last = map(json.loads, run("-o", "json").output.splitlines())
    assert ("R", "2020-07-09T08:00:00.000456Z", 9000, 1600) == tuple(
        first[name] for name in ("record", "start", "total_us", "recv_bytes")
    )
    assert ("E", 2, 3396, 1700) == tuple(last[name] for name in ("record", "tasks", "sent_bytes", "recv_bytes"))


def test_the_table_has_a_row_per_record():
    header, first, _, last = run().output.splitlines()
    assert ["TIME", "REC", "LOCAL", "PEER", "TASK"] == header.split()[:5]
    assert ["R", "10.0.0.1:3306", "10.0.0.2:43210", "1", "9.000", "5.000", "1.000", "2896", "1600"] == first.split()[
        1:10
    ]
    assert ["E", "10.0.0.1:3306", "10.0.0.2:43210", "2", "-", "-", "-", "3396", "1700"] == last.split()[1:10]


@pytest.mark.parametrize("words", [("-o", "json", "--format", "v6"), ("--format", "v5")])
def test_formats_that_do_not_exist_are_refused(words):
    assert 2 == run(*words).exit_code
