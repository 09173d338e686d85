"""directory/control.py: what does not work is told, in the status and in the agent's metrics."""

from pathlib import Path

import pytest

from latencyprobe.plan import AgentStatus, NodePlan
from latencyprobe.plan_stream import PlanLine
from latencyprobe_agent.config import Config
from latencyprobe_agent.directory import control as module
from latencyprobe_agent.directory import plans, reporting, uplink
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.control import DirectoryControl
from latencyprobe_agent.directory.waiting import WaitingRows
from latencyprobe_agent.guard import Guard
from tests.latencyprobe_agent.sli_rows import NOW, row
from tests.support.waiting import wait_until

PLAN = NodePlan("n1", 7, "digest", (), ())


@pytest.fixture
def control(tmp_path: Path) -> DirectoryControl:
    """A control whose folder is a file, and whose directory is away."""
    (tmp_path / "state").write_text("")
    config = Config(directory="https://127.0.0.1:1", node="n1", state_dir=tmp_path / "state")
    return DirectoryControl(config, Guard())


def test_a_folder_that_cannot_be_used_and_rows_that_wait_are_told(control: DirectoryControl) -> None:
    control.start()
    control.take([row(), row(NOW - 25 * 3600)])
    wait_until(lambda: control.undelivered().waiting == 1)
    assert {"too_old": 1} == control.undelivered().dropped
    assert ["spool"] == list(control.problems())
    control.stop(0.1)


def test_a_defect_ends_no_thread_and_is_told_until_it_works(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 0.0
    directory, guard = FakeDirectory(), Guard(lambda: now_s)
    directory.error, directory.lines = ValueError("a defect"), [PlanLine(PLAN)]
    monkeypatch.setattr(module, "Directory", lambda *_, **__: directory)
    for part, name in [(plans, "_FIRST_RETRY_S"), (uplink, "_FIRST_RETRY_S"), (reporting, "_RETRY_S")]:
        monkeypatch.setattr(part, name, 0.01)
    control = DirectoryControl(Config(directory=directory.url, node="n1", state_dir=tmp_path), guard)
    assert control.peers
    assert control.remote_join
    control.start()
    control.take([row()])
    control.report(AgentStatus("i", "boot", "0.1", 1, {}, "", (), {}))
    control.peers.resolve(["10.0.0.1"])
    control.remote_join.send([("10.0.0.1", True, "0" * 32)], [])
    threads = {"plan_stream", "uplink", "status_post", "peers", "remote_join_post"}
    wait_until(lambda: set(guard.failures) == threads, seen=lambda: guard.failures)
    assert "ValueError: a defect" in guard.problems.values()
    directory.error = None
    control.remote_join.send([("10.0.0.1", True, "0" * 32)], [])
    wait_until(lambda: control.plan() == PLAN and directory.rows and directory.statuses and directory.messages)
    now_s += 60
    assert not guard.problems
    control.stop(60)


def test_rows_that_a_defect_takes_are_counted_and_the_next_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    directory, waiting, guard = FakeDirectory(), WaitingRows(tmp_path), Guard()
    link = uplink.Uplink(directory, waiting, guard)
    with monkeypatch.context() as patch:
        patch.setattr(waiting, "add", lambda _: 1 / 0)
        link.start()
        link.add([row(), row(objective="other")])
        wait_until(lambda: waiting.dropped["failed"] == 2)
    assert {"spool": "ZeroDivisionError: division by zero"} == guard.problems
    link.add([row(good=3)])
    wait_until(lambda: [one.good for one in directory.rows] == [3])
    link.stop(60)
