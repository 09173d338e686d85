"""directory/control.py: what does not work is told, in the status and in the agent's metrics."""

import threading
from pathlib import Path

import pytest

from latencyprobe_agent.config import Config
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.control import DirectoryControl
from latencyprobe_agent.directory.uplink import Uplink
from latencyprobe_agent.directory.waiting import WaitingRows
from tests.latencyprobe_agent.sli_rows import NOW, row
from tests.support.waiting import wait_until


@pytest.fixture
def control(tmp_path: Path) -> DirectoryControl:
    """A control whose folder is a file, and whose directory is away."""
    (tmp_path / "state").write_text("")
    config = Config(directory="https://127.0.0.1:1", node="n1", state_dir=tmp_path / "state")
    return DirectoryControl(config)


def test_a_folder_that_cannot_be_used_and_rows_that_wait_are_told(control: DirectoryControl) -> None:
    control.start()
    control.take([row(), row(NOW - 25 * 3600)])
    wait_until(lambda: control.undelivered().waiting == 1)
    assert {"too_old": 1} == control.undelivered().dropped
    assert ["spool"] == list(control.problems())
    control.stop(0.1)


def test_a_thread_that_a_defect_has_ended_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    waiting = WaitingRows(tmp_path)
    uplink = Uplink(FakeDirectory(), waiting)
    assert not uplink.broken
    uplink.start()
    assert not uplink.broken
    monkeypatch.setattr(waiting, "add", lambda _: 1 / 0)
    uplink.add([row()])
    wait_until(lambda: uplink.broken)
    uplink.stop(1)
    assert not uplink.broken
