"""What a container's cgroup tells is read as it stands there; what it does not tell is absent and never 0."""

import os
import resource
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from latencyprobe_agent.identity.pressure import (
    CgroupFiles,
    Hierarchies,
    Place,
    Quota,
    Reading,
    find_hierarchies,
    parse_cpu_stat,
    parse_pressure,
    place_of_process,
    tells_pressure,
)
from tests.support.cgroup_trees import TREES, Tree, cgroupfs, hybrid, systemd

every_tree = pytest.mark.parametrize("make_tree", TREES.values(), ids=TREES)


@pytest.fixture(autouse=True)
def few_files() -> Iterator[None]:
    """Opening files raises the limit of this process: put it back."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


def read(tree: Tree) -> Reading:
    with closing(CgroupFiles(find_hierarchies(tree.unified), Place(tree.path, tree.path))) as files:
        found = files.read()
    assert found is not None
    return found


@every_tree
def test_a_containers_quota_and_its_pods_and_what_it_waited_for_are_read(
    tmp_path: Path, make_tree: Callable[[Path], Tree]
) -> None:
    tree = make_tree(tmp_path)
    tree.throttle(120, 30, 1_750_000)
    tree.throttle(240, 0, 0, level="pod")
    tree.press(cpu=1_900_000, memory=40_000, io=600)
    found = read(tree)
    assert found.quotas == (Quota(120, 30, 1_750_000, 100_000), Quota(240, 0, 0, 0))
    assert found.some_us == {"cpu": 1_900_000, "memory": 40_000, "io": 600}
    assert found.full_us == {"cpu": 950_000, "memory": 20_000, "io": 300}


@every_tree
def test_where_the_cpu_controller_is_is_found(tmp_path: Path, make_tree: Callable[[Path], Tree]) -> None:
    tree = make_tree(tmp_path)
    version = 2 if tree.cpu == tree.unified else 1
    assert find_hierarchies(tree.unified) == Hierarchies(tree.unified, tree.cpu, version)


def test_without_a_cpu_controller_there_is_no_quota_to_be_told(tmp_path: Path) -> None:
    tree = systemd(tmp_path)
    (tree.unified / "cgroup.controllers").write_text("memory pids\n")
    tree.press(io=7)
    assert find_hierarchies(tree.unified).cpu is None
    assert read(tree).quotas == ()


def test_a_level_without_the_controller_can_have_no_quota() -> None:
    assert parse_cpu_stat("usage_usec 81234\nuser_usec 70000\nsystem_usec 11234\n") == Quota()


def test_pressure_of_the_cpu_has_no_full_before_5_13(tmp_path: Path) -> None:
    assert parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=12345\n") == {"some": 12345}
    tree = cgroupfs(tmp_path)
    (tree.container / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=12345\n")
    assert (read(tree).some_us, read(tree).full_us) == ({"cpu": 12345}, {"cpu": 0})


def test_without_psi_nothing_is_told_of_pressure_and_quotas_are(tmp_path: Path) -> None:
    tree = hybrid(tmp_path)
    tree.throttle(5, 1, 40)
    assert not tells_pressure(tree.unified)
    assert (read(tree).some_us, read(tree).full_us) == ({}, {})
    assert read(tree).quotas[0].throttled_us == 40
    tree.press(cpu=1)
    (tree.unified / "cpu.pressure").write_text("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
    assert tells_pressure(tree.unified)


def test_a_kernel_that_shows_the_files_and_refuses_to_tell_tells_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tree, pread = systemd(tmp_path), os.pread
    tree.throttle(5, 1, 40)
    tree.press(cpu=1, memory=1)
    inode = (tree.container / "memory.pressure").stat().st_ino

    def refusing(file: int, size: int, at: int) -> bytes:
        if os.fstat(file).st_ino == inode:
            raise OSError(95, "Operation not supported")
        return pread(file, size, at)

    monkeypatch.setattr(os, "pread", refusing)
    assert read(tree).some_us == {"cpu": 1}


def test_a_cgroup_that_was_removed_is_no_reading(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = systemd(tmp_path)
    tree.throttle(5, 1, 40)
    files = CgroupFiles(find_hierarchies(tree.unified), Place(tree.path, tree.path))

    def gone(*_: int) -> bytes:
        raise OSError(19, "No such device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "pread", gone)
        assert files.read() is None
    files.close()
    assert CgroupFiles(find_hierarchies(tree.unified), Place("/gone", "/gone")).empty


def test_files_stay_open_and_are_closed_once(tmp_path: Path) -> None:
    tree = systemd(tmp_path)
    tree.throttle(5, 1, 40)
    tree.press(cpu=1, memory=1, io=1)
    before = len(list(Path("/proc/self/fd").iterdir()))
    files = CgroupFiles(find_hierarchies(tree.unified), Place(tree.path, tree.path))
    for _ in range(3):
        assert files.read() is not None
    assert len(list(Path("/proc/self/fd").iterdir())) == before + 3 + 3  # one level has no cpu.stat
    files.close()
    files.close()
    assert len(list(Path("/proc/self/fd").iterdir())) == before


def test_no_file_stays_open_where_there_is_no_room_for_all(tmp_path: Path) -> None:
    tree = systemd(tmp_path)
    tree.throttle(5, 1, 40)
    tree.press(cpu=1, memory=1, io=1)
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    hierarchies, before = find_hierarchies(tree.unified), sorted(Path("/proc/self/fd").iterdir())
    pid = os.fork()  # a hard limit is lowered for good
    if not pid:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + 2, len(before) + 2))
            CgroupFiles(hierarchies, Place(tree.path, tree.path))
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 24, "too many open files"
    assert hard == resource.getrlimit(resource.RLIMIT_NOFILE)[1]


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ("0::/system.slice/redis.service\n", Place("/system.slice/redis.service", "/system.slice/redis.service")),
        ("4:cpu,cpuacct:/docker/ab\n1:name=systemd:/a:b\n0::/system.slice/x\n", Place("/system.slice/x", "/docker/ab")),
        ("2:cpu:/lp\n", Place("", "/lp")),
    ],
)
def test_a_process_is_in_one_cgroup_of_each_hierarchy(tmp_path: Path, text: str, place: Place) -> None:
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "cgroup").write_text(text)
    assert place_of_process(77, tmp_path) == place
    assert place_of_process(78, tmp_path) is None
