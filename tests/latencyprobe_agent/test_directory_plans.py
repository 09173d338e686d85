from pathlib import Path
from typing import Any

import msgspec
import pytest

from latencyprobe.plan import NodePlan, PlanLine
from latencyprobe_agent.directory import plans
from latencyprobe_agent.directory.client import Directory
from latencyprobe_agent.directory.plans import PlanFollower
from tests.support.waiting import wait_until

PLAN = NodePlan("n1", 7, "digest", (), (), pair_key=b"k" * 32)


@pytest.fixture
def directory(directory_server: Any, tls_files: tuple[Path, Path, Path], token_file: Path) -> Directory:
    return Directory(directory_server.url, "n1", token_file=token_file, ca_file=tls_files[0])


def test_a_plan_is_taken_and_survives_a_restart_without_the_operator(
    directory_server: Any, directory: Directory, tmp_path: Path
) -> None:
    directory_server.plan_lines = [msgspec.json.encode(PlanLine(PLAN)) + b"\n"]
    follower = PlanFollower(directory, "n1", tmp_path / "state")
    follower.start()
    wait_until(lambda: follower.latest is not None)
    follower.stop()
    assert follower.latest == PLAN
    assert follower.problem == ""
    wait_until((tmp_path / "state" / "plan.json").exists)
    assert plans.load(tmp_path / "state" / "plan.json", "n1") == PLAN


def test_the_saved_plan_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "plan.json"
    plans.save(file, PLAN)
    plans.save(file, PLAN)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [file] == list(file.parent.iterdir())


def test_a_refused_token_leaves_the_saved_plan_in_force_and_says_why(
    directory_server: Any, directory: Directory, tmp_path: Path
) -> None:
    plans.save(tmp_path / "plan.json", PLAN)
    directory_server.answers["/v1/nodes/n1/plan"] = (401, None)
    follower = PlanFollower(directory, "n1", tmp_path)
    follower.start()
    wait_until(lambda: "401" in follower.problem)
    follower.stop()
    assert follower.latest == PLAN


def test_another_node_s_plan_is_refused(directory_server: Any, directory: Directory, tmp_path: Path) -> None:
    foreign = msgspec.structs.replace(PLAN, node="n2")
    directory_server.plan_lines = [msgspec.json.encode(PlanLine(foreign)) + b"\n"]
    follower = PlanFollower(directory, "n1", tmp_path)
    follower.start()
    wait_until(lambda: follower.problem == "")
    follower.stop()
    assert follower.latest is None


@pytest.mark.parametrize("content", [b"", b"{", b'{"node": 3}', b"\xff\xfe"])
def test_a_damaged_file_is_no_plan(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    assert plans.load(tmp_path / "plan.json", "n1") is None
