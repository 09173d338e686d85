import os

import pytest

from benchmarks.processes import DoesNotRun, own_s, started


def test_what_ends_at_once_tells_why(tmp_path):
    words = ("sh", "-c", "echo no kprobes here >&2; exit 1")
    with (
        pytest.raises(DoesNotRun, match="no kprobes here"),
        started(*words, cpu=0, log=tmp_path / "log", ready=bool_no),
    ):
        pass


def test_a_process_ends_with_its_block_and_its_time_is_ours(tmp_path):
    before = own_s()
    with started("sleep", 60, cpu=0, log=tmp_path / "log") as pid:
        os.kill(pid, 0)
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)
    assert own_s() > before


def bool_no(_: int) -> bool:
    return False
