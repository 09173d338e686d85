"""Asking a recorder for a snapshot: over a socket in its folder, which only one recorder has."""

import socket
import threading
from pathlib import Path

import pytest

from latencyprobe.errors import LatencyProbeError, OutputError
from latencyprobe_agent.tools.asking import Asked, answer, ask
from tests.support.waiting import wait_until


def asked(folder: Path, file: Path | None) -> object:
    """What `ask()` returns or raises while a recorder gives this answer."""
    said: list[object] = []

    def asking() -> None:
        try:
            said.append(ask(folder))
        except LatencyProbeError as error:
            said.append(str(error))

    def answered() -> bool:
        for who in recorder.waiting():
            answer(who, file)
        return bool(said)

    with Asked(folder) as recorder:
        thread = threading.Thread(target=asking)
        thread.start()
        wait_until(answered, "an answer")
        thread.join()
    return said[0]


def test_the_answer_is_the_file(tmp_path):
    assert tmp_path / "file" == asked(tmp_path, tmp_path / "file")


def test_one_that_is_suppressed_is_told(tmp_path):
    assert "at most one snapshot a second" in str(asked(tmp_path, None))


def test_without_a_recorder_it_is_told_how_to_start_one(tmp_path):
    with pytest.raises(LatencyProbeError, match="no recorder writes there: start `latencyprobe record --dir"):
        ask(tmp_path)


def test_a_folder_has_one_recorder_and_looking_is_not_asking(tmp_path):
    with Asked(tmp_path) as recorder:
        with pytest.raises(OutputError, match="another recorder writes there"):
            Asked(tmp_path)
        assert [] == list(recorder.waiting())
    assert [] == list(tmp_path.iterdir())


def test_what_a_killed_recorder_left_is_no_hindrance(tmp_path):
    left = socket.socket(socket.AF_UNIX)
    left.bind(str(tmp_path / ".trigger"))
    left.close()
    with Asked(tmp_path):
        assert 0o600 == (tmp_path / ".trigger").stat().st_mode & 0o777


def test_a_folder_whose_path_is_too_long_is_told(tmp_path):
    folder = tmp_path / ("x" * 100)
    folder.mkdir()
    with pytest.raises(OutputError, match="too long for a socket"):
        Asked(folder)
