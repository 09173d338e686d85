import logging
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

from latencyprobe.errors import DirectoryError
from latencyprobe.plan import NodePlan, Pod, RemoteJoinMessage
from latencyprobe.plan_digest import digest_of
from latencyprobe.plan_stream import Differences, PlanLine
from latencyprobe_agent.directory import plans
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.plans import PlanFollower
from tests.support.waiting import wait_until

PLAN = NodePlan("n1", 7, "digest", (), (), pair_key=b"k" * 32)
OTHER = msgspec.structs.replace(PLAN, generation=8, pods=(Pod("u", "shop", "cart-1", (), (), {}),))


@pytest.fixture
def directory() -> FakeDirectory:
    return FakeDirectory()


@pytest.fixture
def follower(directory: FakeDirectory, tmp_path: Path) -> Iterator[PlanFollower]:
    """Follows into `tmp_path`, once it is started."""
    made = PlanFollower(directory, "n1", tmp_path)
    yield made
    made.stop()


def test_a_plan_is_taken_and_survives_a_restart_without_the_operator(
    directory: FakeDirectory, follower: PlanFollower, tmp_path: Path
) -> None:
    directory.lines = [PlanLine(PLAN)]
    follower.start()
    wait_until((tmp_path / "plan.json").exists, "the plan is saved")
    assert follower.latest == PLAN
    assert follower.problem == ""
    assert plans.load(tmp_path / "plan.json", "n1") == PLAN


def test_the_saved_plan_is_readable_by_its_owner_only(tmp_path: Path) -> None:
    file = tmp_path / "state" / "plan.json"
    plans.save(file, PLAN)
    plans.save(file, PLAN)
    assert file.stat().st_mode & 0o777 == 0o600
    assert [file] == list(file.parent.iterdir())


def test_a_refused_token_leaves_the_saved_plan_in_force_and_says_why(
    directory: FakeDirectory, follower: PlanFollower, tmp_path: Path
) -> None:
    plans.save(tmp_path / "plan.json", PLAN)
    directory.error = DirectoryError("401: no such token")
    follower.start()
    wait_until(lambda: follower.problem == "401: no such token", seen=lambda: follower.problem)
    assert follower.latest == PLAN


def test_a_new_stream_forgets_all_identities_and_a_line_those_that_it_names(
    directory: FakeDirectory, tmp_path: Path
) -> None:
    directory.lines = [PlanLine(PLAN), PlanLine(), PlanLine(forget=("10.0.0.1",))]
    forgotten: list[object] = []
    follower = PlanFollower(directory, "n1", tmp_path, on_forget=forgotten.append)
    follower.start()
    wait_until(lambda: len(forgotten) > 1, "the line that names one")
    follower.stop()
    assert forgotten == [None, ("10.0.0.1",)]


def test_another_node_s_plan_is_refused(directory: FakeDirectory, tmp_path: Path) -> None:
    directory.lines = [PlanLine(msgspec.structs.replace(PLAN, node="n2")), PlanLine(remote_join=RemoteJoinMessage())]
    heard: list[RemoteJoinMessage] = []
    follower = PlanFollower(directory, "n1", tmp_path, heard.append)
    follower.start()
    wait_until(lambda: heard, "the line behind the plan")
    follower.stop()
    assert follower.latest is None


def test_age_of_a_plan_is_that_of_what_the_operator_made_it_of(
    directory: FakeDirectory, follower: PlanFollower, caplog: pytest.LogCaptureFixture
) -> None:
    directory.lines = [PlanLine(PLAN), PlanLine(unconfirmed_s=3_600)]
    assert follower.age_s < 3_600
    with caplog.at_level(logging.INFO):
        follower.start()
        wait_until(lambda: "the operator has its API server again" in caplog.text, "heartbeats without an age follow")
    assert "the operator has lost its API server: the plan is 3600 s old, and holds" in caplog.text
    assert follower.latest == PLAN
    assert follower.age_s < 3_600


@pytest.mark.parametrize("content", [b"", b"{", b'{"node": 3}', b'{"node": "n\xff"}', b'{"x": ' + b"[" * 9999])
def test_a_damaged_file_is_no_plan(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "plan.json").write_bytes(content)
    assert plans.load(tmp_path / "plan.json", "n1") is None


def test_a_change_makes_the_next_plan_and_is_saved(
    directory: FakeDirectory, follower: PlanFollower, tmp_path: Path
) -> None:
    first, second = (msgspec.structs.replace(p, digest=digest_of(p)) for p in (PLAN, OTHER))
    directory.lines = [PlanLine(first), PlanLine(change=Differences().between(first, second))]
    follower.start()
    wait_until(lambda: follower.latest == second, seen=lambda: follower.latest)
    wait_until(lambda: plans.load(tmp_path / "plan.json", "n1") == second, "it is saved, after it is told")


def test_a_change_that_does_not_make_the_operators_plan_is_not_used_and_whole_plans_are_asked_for(
    directory: FakeDirectory, follower: PlanFollower, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plans, "_FIRST_RETRY_S", 0.01)
    first, second = (msgspec.structs.replace(p, digest=digest_of(p)) for p in (PLAN, OTHER))
    change = Differences().between(first, second)
    assert change is not None
    taken: list[NodePlan] = []
    monkeypatch.setattr(plans, "save", lambda _, plan: taken.append(plan))
    directory.lines = [PlanLine(first), PlanLine(change=msgspec.structs.replace(change, pods=()))]
    directory.whole = [PlanLine(second)]
    follower.start()
    wait_until(lambda: follower.latest == second, seen=lambda: follower.latest)
    assert taken == [first, second]
