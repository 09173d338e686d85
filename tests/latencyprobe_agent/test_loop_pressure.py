"""Once a second: what each owner's container was held up by; who ends is let go, what nobody tells is no 0."""

import logging
import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from latencyprobe_agent.identity.pressure import Place
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.loop import pressure
from latencyprobe_agent.loop.pressure import PressureReader
from tests.support.cgroup_trees import TREES, Tree, systemd


class Placed(FakeResources):
    """Owners 7 and 8 are in the container, 9 is nowhere."""

    def __init__(self, tree: Tree) -> None:
        super().__init__()
        self.places = dict.fromkeys((7, 8), Place(tree.path, tree.path))

    def place(self, owner: int) -> Place | None:
        return self.places.get(owner)


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    found = systemd(tmp_path)
    found.throttle(10, 0, 0)
    found.press(cpu=0, memory=0, io=0)
    return found


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[PressureReader]:
    with closing(PressureReader(tmp_path)) as reader:
        yield reader


@pytest.mark.parametrize("make_tree", TREES.values(), ids=TREES)
def test_owners_of_one_container_are_told_the_same_from_the_second_reading_on(
    tmp_path: Path, reader: PressureReader, make_tree: Callable[[Path], Tree]
) -> None:
    tree = make_tree(tmp_path)
    tree.throttle(10, 0, 0)
    tree.press(cpu=0, memory=0, io=0)
    assert reader.read([7, 8, 0], Placed(tree)) == {}
    tree.throttle(20, 2, 3)
    tree.press(cpu=5, memory=0, io=1)
    found = reader.read([7, 8, 0], Placed(tree))
    assert found[7] is found[8]
    assert found[7].us == {"throttled": 3, "cpu": 5, "memory": 0, "io": 1}
    assert (found[7].container, reader.unread) == (tree.path, {})
    version = 2 if tree.cpu == tree.unified else 1
    psi = dict.fromkeys(("pressure.cpu", "pressure.memory", "pressure.io"), "psi")
    assert reader.variants == {"pressure.throttled": f"cgroup{version}", **psi}


def test_who_is_nowhere_is_counted(tree: Tree, reader: PressureReader) -> None:
    reader.read([7, 9], Placed(tree))
    assert reader.unread == {"no_cgroup": 1}


def test_a_container_that_ends_is_let_go_and_others_go_on(tree: Tree, reader: PressureReader) -> None:
    open_before = len(list(Path("/proc/self/fd").iterdir()))
    reader.read([7], Placed(tree))
    assert len(list(Path("/proc/self/fd").iterdir())) > open_before
    assert reader.read([9], Placed(tree)) == {}
    assert len(list(Path("/proc/self/fd").iterdir())) == open_before


def test_what_the_kernel_does_not_tell_is_logged_once_and_counted_and_absent(
    tree: Tree, reader: PressureReader, caplog: pytest.LogCaptureFixture
) -> None:
    for kind in ("cpu", "memory", "io"):
        (tree.container / f"{kind}.pressure").unlink()
    with caplog.at_level(logging.WARNING):
        for _ in range(4):
            found = reader.read([7], Placed(tree))
    assert found[7].us == {"throttled": 0}
    assert reader.unread == {"cpu": 1, "memory": 1, "io": 1}
    assert reader.variants["pressure.memory"] == "unsupported"
    assert len([record for record in caplog.records if "waiting for memory" in record.getMessage()]) == 1


def test_more_containers_than_can_be_read_are_counted(
    tree: Tree, reader: PressureReader, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pressure, "_CONTAINERS", 1)
    placed = Placed(tree)
    placed.places[9] = Place(tree.path.rpartition("/")[0], tree.path.rpartition("/")[0])
    reader.read([7, 9], placed)
    assert reader.unread == {"limit": 1}


def test_where_few_files_may_be_open_the_others_keep_theirs(tree: Tree, reader: PressureReader) -> None:
    """All of a node's containers would take the last one: no connection could be made, no cgroup looked for."""
    pid = os.fork()  # a hard limit is lowered for good
    if not pid:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        reader.read([7], Placed(tree))
        os._exit(reader.unread != {"limit": 1})
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
