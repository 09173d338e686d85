from pathlib import Path

import pytest

from latencyprobe.errors import Unsupported
from latencyprobe_agent.identity.cgroups import OF_POD, Cgroup, CgroupTree, find_root, levels
from tests.support.cgroup_layouts import LAYOUTS, container_id, make, uid

UID = "0a1b2c3d-1111-2222-3333-444455556666"
UNDERSCORED = UID.replace("-", "_")
ID = "ab" * 32

SHAPES = {
    "systemd driver": f"kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDERSCORED}.slice/"
    f"cri-containerd-{ID}.scope",
    "cgroupfs driver": f"kubepods/burstable/pod{UID}/{ID}",
    "guaranteed, systemd": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
    "guaranteed, cgroupfs": f"kubepods/pod{UID}/{ID}",
    "second node of a shared kernel": f"n2/kubepods/besteffort/pod{UID}/{ID}",
    "cri-o": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-{ID}.scope",
    "libpod leaf": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/libpod-{ID}.scope",
    "docker": f"kubepods.slice/kubepods-pod{UNDERSCORED}.slice/docker-{ID}.scope",
    "containerd, cgroupfs path with slice": f"system.slice/kubepods-pod{UNDERSCORED}.slice:cri-containerd:{ID}",
    "kind": f"kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-besteffort.slice/"
    f"kubelet-kubepods-besteffort-pod{UNDERSCORED}.slice/cri-containerd-{ID}.scope",
}


def scan(root: Path) -> dict[int, Cgroup]:
    tree = CgroupTree(root)
    tree.survey()
    return dict(tree.scan())


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_a_container_folder_is_known_by_pod_and_container(tmp_path: Path, shape: str) -> None:
    leaf = tmp_path / shape
    leaf.mkdir(parents=True)
    assert scan(tmp_path)[leaf.stat().st_ino] == Cgroup(UID, ID, f"/{shape}")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_what_a_container_nests_belongs_to_it(tmp_path: Path, shape: str) -> None:
    nested = tmp_path / shape / "container" / "init.scope"
    nested.mkdir(parents=True)
    assert scan(tmp_path)[nested.stat().st_ino] == Cgroup(UID, ID, f"/{shape}")


@pytest.mark.parametrize("shape", SHAPES.values(), ids=SHAPES.keys())
def test_quotas_that_hold_for_a_container_are_its_own_and_those_up_to_its_pods(shape: str) -> None:
    container = f"/{shape}"
    pod = container.rpartition("/")[0]
    assert levels(container) == ((container,) if ":" in shape else (container, pod))


def test_quotas_that_hold_for_a_process_are_all_below_the_root() -> None:
    assert levels("/system.slice/redis.service") == ("/system.slice/redis.service", "/system.slice")
    assert levels("/") == levels("") == ()


def test_the_monitor_of_crio_is_the_pods_but_no_container(tmp_path: Path) -> None:
    path = f"/kubepods.slice/kubepods-pod{UNDERSCORED}.slice/crio-conmon-{ID}.scope"
    monitor = tmp_path / path[1:]
    monitor.mkdir(parents=True)
    assert scan(tmp_path)[monitor.stat().st_ino] == Cgroup(UID, "", path)


def test_a_static_pod_is_known_by_its_hash(tmp_path: Path) -> None:
    leaf = tmp_path / "kubepods/burstable" / f"pod{'0c' * 16}" / ID
    leaf.mkdir(parents=True)
    found = scan(tmp_path)[leaf.stat().st_ino]
    assert (found.pod, found.container) == ("0c" * 16, ID)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_folder_of_a_node_has_its_owner_and_no_other(tmp_path: Path, layout: str) -> None:
    owners = make(tmp_path, layout)
    expected = {}
    for cgroup_id, owner in owners.items():
        pod, _, container = owner.partition("/")
        expected[cgroup_id] = (uid(pod), container_id(owner) if container else "")
    assert {cgroup_id: (found.pod, found.container) for cgroup_id, found in scan(tmp_path).items()} == expected


def test_foreign_folders_belong_to_nobody(tmp_path: Path) -> None:
    for name in ("system.slice/ssh.service", f"docker/{ID}", "kubepods/burstable/podling", "user.slice/pod-1"):
        (tmp_path / name).mkdir(parents=True)
    assert scan(tmp_path) == {}


def test_a_pod_that_starts_and_one_that_ends_are_seen_without_a_new_survey(tmp_path: Path) -> None:
    parent = tmp_path / "kubepods/burstable"
    parent.mkdir(parents=True)
    tree = CgroupTree(tmp_path)
    tree.survey()
    assert tree.scan() == {}
    leaf = parent / f"pod{UID}" / ID
    leaf.mkdir(parents=True)
    assert {cgroup.pod for cgroup in tree.scan().values()} == {UID}
    leaf.rmdir()
    leaf.parent.rmdir()
    assert tree.scan() == {}


def test_all_folders_of_a_pod_are_its_own(tmp_path: Path) -> None:
    pod = tmp_path / "kubepods" / f"pod{UID}"
    (pod / ID).mkdir(parents=True)
    found = scan(tmp_path)
    assert {UID} == {cgroup.pod for cgroup in found.values()}
    assert {pod.stat().st_ino, (pod / ID).stat().st_ino} == set(found)


def test_of_a_pod_that_nests_without_end_so_many_are_followed_its_containers_first(tmp_path: Path) -> None:
    pod = tmp_path / "kubepods" / f"pod{UID}"
    other = tmp_path / "kubepods" / f"pod{UID[:-1]}7" / ID
    other.mkdir(parents=True)
    containers = [pod / (digit * 64) for digit in "abc"]
    for container in containers:
        for number in range(OF_POD):
            (container / str(number)).mkdir(parents=True)
    found = scan(tmp_path)
    assert len([one for one in found.values() if one.pod == UID]) == OF_POD + 1, "one more says that there are more"
    assert list(found.values()).count(Cgroup(UID, "", f"/kubepods/pod{UID}")) == 1
    assert {folder.stat().st_ino for folder in [pod, *containers, other, other.parent]} <= set(found)
    inodes = [cgroup_id for cgroup_id, one in found.items() if one.pod == UID]
    assert {folder.stat().st_ino for folder in [pod, *containers]} == set(inodes[:4])


def test_the_v2_tree_of_a_hybrid_host_is_found(tmp_path: Path) -> None:
    (tmp_path / "unified").mkdir()
    (tmp_path / "unified" / "cgroup.controllers").touch()
    assert find_root(mount=tmp_path) == tmp_path / "unified"


def test_version_1_alone_is_refused_with_the_remedy(tmp_path: Path) -> None:
    with pytest.raises(Unsupported, match="unified_cgroup_hierarchy") as refused:
        find_root(tmp_path)
    assert refused.value.reason == "CgroupV1"
