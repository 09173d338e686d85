"""What a crash leaves, and what the next run makes of it."""

import subprocess
import sys
from pathlib import Path

import pytest

from latencyprobe_agent.loop.crashes import KEPT_S, Crashes

RUN = """
import os, signal, sys
from pathlib import Path
from latencyprobe.errors import LatencyProbeError
from latencyprobe_agent.loop.crashes import Crashes
with Crashes(Path(sys.argv[1])):
    {what}
"""
ENDS = {
    "abort": ("os.abort()", True),
    "segfault": ("os.kill(os.getpid(), signal.SIGSEGV)", True),
    "exception": ("raise ZeroDivisionError('of nothing')", True),
    "killed": ("os.kill(os.getpid(), signal.SIGKILL)", False),
    "wrong setting": ("raise LatencyProbeError('no such port')", False),
    "asked to end": ("sys.exit(0)", False),
    "ended": ("pass", False),
}


def run(folder: Path, what: str) -> None:
    subprocess.run([sys.executable, "-c", RUN.format(what=what), folder], check=False, capture_output=True)


@pytest.mark.parametrize(("what", "crashed"), ENDS.values(), ids=ENDS)
def test_what_a_run_did_to_itself_is_a_crash_and_nothing_else(tmp_path: Path, what: str, crashed: bool) -> None:
    for _ in range(2):
        run(tmp_path / "crashes", what)
    with Crashes(tmp_path / "crashes") as crashes:
        assert bool(crashes.safe_mode) == crashed


def test_one_crash_is_told_with_where_it_happened_and_changes_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run(tmp_path, "os.abort()")
    with Crashes(tmp_path) as crashes:
        assert "" == crashes.safe_mode
    (said,) = (record.getMessage() for record in caplog.records)
    assert "Aborted" in said
    assert 'File "<string>"' in said


def test_two_crashes_count_for_an_hour(tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, "os.abort()")
    newest = max(report.stat().st_mtime for report in tmp_path.iterdir())
    now_s = newest + 60
    with Crashes(tmp_path, lambda: now_s) as crashes:
        assert "crashed 2 times within an hour" in crashes.safe_mode
        now_s = newest + KEPT_S + 1
        assert "" == crashes.safe_mode
    with Crashes(tmp_path, lambda: now_s):
        assert len(list(tmp_path.iterdir())) == 1, "only its own report is left"


def test_crashes_of_a_clock_that_was_ahead_count_for_an_hour_from_when_it_is_right(tmp_path: Path) -> None:
    for _ in range(2):
        run(tmp_path, "os.abort()")
    now_s = max(report.stat().st_mtime for report in tmp_path.iterdir()) - 365 * 86_400
    with Crashes(tmp_path, lambda: now_s) as crashes:
        assert "crashed 2 times within an hour" in crashes.safe_mode
        now_s += KEPT_S + 1
        assert "" == crashes.safe_mode
        now_s -= 86_400
        assert crashes.safe_mode, "set back once more, while it runs"
        now_s += KEPT_S + 1
        assert "" == crashes.safe_mode


def test_folder_that_cannot_be_used_is_said_and_does_no_harm(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").write_text("")
    with Crashes(tmp_path / "file" / "crashes") as crashes:
        assert "" == crashes.safe_mode
    assert "crashes cannot be remembered" in caplog.text
