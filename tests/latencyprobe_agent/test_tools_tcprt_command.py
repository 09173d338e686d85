"""`latencyprobe tcprt` without a kernel: replay, formats, what it refuses."""

import json
import time

import pytest
from click.testing import CliRunner, Result

from latencyprobe.errors import OutputError
from latencyprobe_agent.tools.tcprt.command import tcprt
from tests.truth.operations import EXAMPLE_LINES, EXAMPLE_STATISTICS, example

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


def test_the_table_has_a_row_per_record(monkeypatch):
    monkeypatch.setenv("TZ", "Europe/Berlin")
    time.tzset()
    try:
        header, first, _, last = run().output.splitlines()
    finally:
        monkeypatch.undo()
        time.tzset()
    assert first.startswith(json.loads(run("-o", "json").output.splitlines()[0])["time"][11:26]), "UTC, as in JSON"
    assert ["TIME", "REC", "LOCAL", "PEER", "TASK", "TOTAL-MS", "SERVER-MS", "RECV-MS"] == header.split()[:8]
    assert ["R", "10.0.0.1:3306", "10.0.0.2:43210", "1", "9.000", "5.000", "1.000", "2896", "1600"] == first.split()[
        1:10
    ]
    assert ["E", "10.0.0.1:3306", "10.0.0.2:43210", "2", "-", "-", "-", "3396", "1700"] == last.split()[1:10]


@pytest.mark.parametrize("words", [("-o", "json", "--format", "v6"), ("--format", "v5")])
def test_formats_that_do_not_exist_are_refused(words):
    assert 2 == run(*words).exit_code


def test_log_files_have_v6_lines_and_averages(tmp_path):
    done = run("--lports", "3306", "--stats", "--log-dir", str(tmp_path))
    assert "" == done.output
    assert run("--format", "v6").output == (tmp_path / "rt-network-log").read_text()
    # 10 s after the start, where the document's example has a minute
    assert EXAMPLE_STATISTICS.replace("1660", "1610") == (tmp_path / "rt-network-stats").read_text()
    run("--log-dir", str(tmp_path))
    assert 6 == (tmp_path / "rt-network-log").read_text().count("\n"), "appended"


def test_averages_follow_the_lines_without_files():
    assert run("--stats", "--format", "v6").output.endswith(" 3306 6500 3500 250 180 0 1698 500 850 2\n")
    assert 2 == run("--stats", "-o", "json").exit_code


def test_wrong_ports_are_named():
    refused = run("--pports", "80,90-80")
    assert (2, True) == (refused.exit_code, "'90-80'" in refused.output)


def test_a_log_file_on_a_full_device_is_named(tmp_path):
    (tmp_path / "rt-network-log").symlink_to("/dev/full")
    with pytest.raises(OutputError, match=f"^{tmp_path}/rt-network-log: No space left on device$"):
        run("--log-dir", str(tmp_path))
