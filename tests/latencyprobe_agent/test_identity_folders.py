from pathlib import Path

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe.plan import Container, NodePlan, Pod
from latencyprobe_agent.identity.folders import LATE_S, PodFolders
from tests.support.cgroup_layouts import make, uid
from tests.support.cgroup_trees import ID, TREES, UID

RUNNING = NodePlan("n1", 1, "", (), (), pods=(Pod("uid-1", "shop", "cart-0", (), (Container("cart", "ab" * 32),), {}),))
IDLE = NodePlan("n1", 1, "", (), (), pods=(Pod("uid-1", "shop", "cart-0", (), (), {}),))


class Folders(PodFolders):
    """With a clock that is set."""

    def __init__(self, root: Path) -> None:
        self.now_s = 1000.0
        super().__init__(root, 30.0, lambda: self.now_s)


@pytest.mark.parametrize("node", TREES)
def test_pods_are_found_in_the_tree_of_version_2_whatever_is_beside_it(tmp_path: Path, node: str) -> None:
    tree = TREES[node](tmp_path)
    found = Folders(tmp_path).scan()
    assert (found[tree.container.stat().st_ino].pod, found[tree.container.stat().st_ino].container) == (UID, ID)


def test_first_pods_of_a_node_are_found_by_the_next_survey(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    folders = Folders(tmp_path)
    assert folders.scan() == {}
    make(tmp_path, "containerd, cgroupfs driver")
    folders.now_s += 30
    assert uid("web") in {one.pod for one in folders.scan().values()}


def test_version_1_alone_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Unsupported):
        Folders(tmp_path).scan()


def test_runtime_that_keeps_pods_out_of_version_2_is_told_after_a_minute_with_the_remedy(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    folders = Folders(tmp_path)
    folders.scan()
    folders.found(RUNNING, {})
    folders.now_s += LATE_S - 1
    folders.found(RUNNING, {})
    assert folders.problem is None
    folders.now_s += 1
    problem = folders.problem
    assert problem is not None
    assert problem.reason == "PodsNotFound"
    assert str(tmp_path / "unified") in str(problem)
    assert "systemd.unified_cgroup_hierarchy=1" in str(problem)
    folders.found(RUNNING, {"uid-1": [7]})
    assert folders.problem is None


def test_pods_that_do_not_run_are_not_missed(tmp_path: Path) -> None:
    folders = Folders(tmp_path)
    folders.found(RUNNING, {})
    folders.now_s += LATE_S
    folders.found(IDLE, {})
    assert folders.problem is None
