from pathlib import Path

import numpy as np
import pytest

from latencyprobe.plan import Container, NodePlan, Pod
from latencyprobe_agent.identity.cgroups import Cgroup, CgroupTree
from latencyprobe_agent.identity.resources import PodResources, ProcessResources, Resources
from tests.support.cgroup_layouts import LAYOUTS, container_id, make, uid

CART = Container("cart", "ab" * 32)
POD = Pod("uid-1", "shop", "cart-0", ("10.0.0.1",), (CART,), {"service.name": "cart", "k8s.pod.uid": "uid-1"})
PLAN = NodePlan("n1", 1, "", (), (), pods=(POD,))


def pod_of(name: str, uid: str) -> Pod:
    ids = [container_id(f"{name}/{container}") for container in ("main", "etcd")]
    containers = tuple(Container(f"c{number}", id_) for number, id_ in enumerate(ids))
    return Pod(uid, "shop", name, (), containers, {"service.name": name})


def test_a_container_has_the_pod_s_attributes_and_its_own() -> None:
    attributes = PodResources(PLAN, {7: Cgroup("uid-1", CART.id)}).attributes(7)
    assert attributes["service.name"] == "cart"
    assert attributes["k8s.container.name"] == "cart"
    assert attributes["container.id"] == CART.id
    assert attributes["service.instance.id"] == "shop.cart-0.cart"
    assert attributes["telemetry.sdk.name"] == "latencyprobe"


def test_what_a_container_says_of_itself_comes_before_what_its_pod_says() -> None:
    cart = Container("cart", "ab" * 32, {"service.name": "own-name", "service.instance.id": "own-id"})
    pod = Pod("uid-1", "shop", "cart-0", (), (cart,), {"service.name": "cart"})
    attributes = PodResources(NodePlan("n1", 1, "", (), (), pods=(pod,)), {7: Cgroup("uid-1", cart.id)}).attributes(7)
    assert (attributes["service.name"], attributes["service.instance.id"]) == ("own-name", "own-id")


def test_an_annotated_instance_id_is_kept() -> None:
    pod = Pod("uid-1", "shop", "cart-0", (), (CART,), {"service.instance.id": "mine"})
    plan = NodePlan("n1", 1, "", (), (), pods=(pod,))
    assert PodResources(plan, {7: Cgroup("uid-1", CART.id)}).attributes(7)["service.instance.id"] == "mine"


def test_a_cgroup_of_the_pod_but_of_no_container_has_no_container() -> None:
    attributes = PodResources(PLAN, {7: Cgroup("uid-1", "")}).attributes(7)
    assert attributes["service.name"] == "cart"
    assert "k8s.container.name" not in attributes


def test_an_unknown_cgroup_is_not_guessed() -> None:
    resources = PodResources(PLAN, {7: Cgroup("uid-2", "cd" * 32)})
    for owner in (7, 8, 0):
        assert resources.attributes(owner)["service.name"] == "unknown_service"
        assert resources.attributes(owner)["k8s.node.name"] == "n1"


def test_a_static_pod_is_found_by_its_container_though_its_folder_bears_another_uid() -> None:
    resources = PodResources(PLAN, {7: Cgroup("0c" * 16, CART.id)})
    assert resources.pod_cgroups() == {"uid-1": [7]}
    assert resources.attributes(7)["service.name"] == "cart"


@pytest.mark.parametrize("layout", [name for name in LAYOUTS if name.startswith("two nodes")])
def test_of_two_nodes_on_one_host_each_has_its_own_pods_and_the_others_are_unknown(tmp_path: Path, layout: str) -> None:
    owners = make(tmp_path, layout)
    tree = CgroupTree(tmp_path)
    tree.survey()
    cgroups = tree.scan()
    for node, names in {"n1": ("guaranteed", "web", "static"), "n2": ("other", "twin")}.items():
        # what the API server says of the mirror of a pod from a file is another uid
        pods = tuple(pod_of(name, uid(name) if name != "static" else "mirror") for name in names)
        resources = PodResources(NodePlan(node, 1, "", (), (), pods=pods), cgroups)
        said = {cgroup_id: str(resources.attributes(cgroup_id)["service.name"]) for cgroup_id in owners}
        own = {
            i: name for i, owner in owners.items() if (name := owner.partition("/")[0]) in names and owner != "static"
        }
        assert {i: name for i, name in said.items() if name != "unknown_service"} == own
        assert sorted(i for ids in resources.pod_cgroups().values() for i in ids) == sorted(own)


def test_folder_in_a_pod_that_bears_another_pods_container_stays_the_pods() -> None:
    other = Pod("uid-2", "bank", "web-0", (), (), {"service.name": "web"})
    resources = PodResources(NodePlan("n1", 1, "", (), (), pods=(POD, other)), {7: Cgroup("uid-2", CART.id)})
    assert (resources.attributes(7)["service.name"], resources.pod_cgroups()) == ("web", {"uid-2": [7]})


def test_kinds_of_containers_are_each_named_and_what_ended_is_not_taken_for_what_runs() -> None:
    ids = {name: container_id(f"cart/{name}") for name in ("setup", "proxy", "debug")}
    running = tuple(Container(name, id_) for name, id_ in ids.items() if name != "setup")
    pod = Pod("uid-1", "shop", "cart-0", ("10.0.0.1",), (CART, *running), {"service.name": "cart"})
    owners = {"cart": CART.id, **ids, "pause": container_id("cart/pause")}
    cgroups = {number: Cgroup("uid-1", id_) for number, id_ in enumerate(owners.values())}
    resources = PodResources(NodePlan("n1", 1, "", (), (), pods=(pod,)), cgroups)
    said = [resources.attributes(number).get("k8s.container.name") for number in cgroups]
    assert said == ["cart", None, "proxy", "debug", None], "setup has ended, and nobody names the sandbox"
    assert {resources.attributes(number)["service.name"] for number in cgroups} == {"cart"}


def test_container_that_was_restarted_has_its_pod_at_once_and_its_name_with_the_next_plan() -> None:
    again = Container("cart", container_id("cart/again"))
    cgroups = {7: Cgroup("uid-1", CART.id), 8: Cgroup("uid-1", again.id)}
    before = PodResources(PLAN, cgroups)
    assert before.attributes(8)["service.name"] == "cart"
    assert before.attributes(8)["container.id"] == again.id
    assert "k8s.container.name" not in before.attributes(8)
    pod = Pod("uid-1", "shop", "cart-0", ("10.0.0.1",), (again,), {"service.name": "cart"})
    after = PodResources(NodePlan("n1", 2, "", (), (), pods=(pod,)), {8: cgroups[8]}, before)
    assert after.attributes(8)["container.id"] == again.id
    assert after.attributes(7)["container.id"] == CART.id, "what comes late of the one before is its own"


def test_pod_that_is_made_again_under_its_name_and_address_is_another(tmp_path: Path) -> None:
    again = Container("cart", container_id("cart/again"))
    pod = Pod("uid-9", "shop", "cart-0", ("10.0.0.1",), (again,), {"service.name": "cart", "k8s.pod.uid": "uid-9"})
    before = PodResources(PLAN, {7: Cgroup("uid-1", CART.id)})
    plan = NodePlan("n1", 2, "", (), (), pods=(pod,))
    after = PodResources(plan, {7: Cgroup("uid-1", CART.id), 8: Cgroup("uid-9", again.id)}, before)
    assert [after.attributes(owner)["k8s.pod.uid"] for owner in (7, 8)] == ["uid-1", "uid-9"]
    assert after.pod_cgroups() == {"uid-9": [8]}, "the one that is ending is not measured"


def test_a_workload_cannot_say_that_it_is_another_container() -> None:
    cart = Container("cart", CART.id, {"k8s.container.name": "pay", "container.id": "cd" * 32})
    pod = Pod("uid-1", "shop", "cart-0", (), (cart,), {"service.name": "cart"})
    attributes = PodResources(NodePlan("n1", 1, "", (), (), pods=(pod,)), {7: Cgroup("uid-1", CART.id)}).attributes(7)
    assert (attributes["k8s.container.name"], attributes["container.id"]) == ("cart", CART.id)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_no_two_owners_have_one_resource_whatever_containers_nest(tmp_path: Path, layout: str) -> None:
    owners = make(tmp_path, layout)
    for folder in [path for path in tmp_path.rglob("*") if path.stat().st_ino in owners]:
        (folder / "init" / "system.slice").mkdir(parents=True)
    tree = CgroupTree(tmp_path)
    tree.survey()
    cgroups = tree.scan()
    assert len(cgroups) > 2 * len(owners)
    names = sorted({owner.partition("/")[0] for owner in owners.values()})
    pods = tuple(Pod(uid(name), "shop", name, (), (), {"k8s.pod.uid": uid(name)}) for name in names)
    plan = NodePlan("n1", 1, "", (), (), pods=pods)
    before = PodResources(plan, cgroups)
    after = PodResources(plan, {i: one for i, one in cgroups.items() if i in owners}, before)
    left = PodResources(NodePlan("n1", 2, "", (), ()), cgroups, before)  # relabelled, for example; they run on
    every = np.array(sorted(cgroups), np.uint64)
    for resources in (before, after, left):
        whose = resources.whose(every).tolist()
        of = {owner: resources.attributes(owner) for owner in whose}
        told = [tuple(sorted(attributes.items())) for owner, attributes in of.items() if "k8s.pod.uid" in attributes]
        assert len(told) == len(set(told))
        assert {owner for owner, attributes in of.items() if "container.id" in attributes} <= owners.keys()
        assert [of[owner] for owner in whose] == [before.attributes(owner) for owner in every.tolist()]


@pytest.mark.parametrize("resources", [PodResources(PLAN, {}), ProcessResources("n1")])
def test_who_is_unknown_or_one_of_several_is_told_apart_by_its_node(resources: Resources) -> None:
    assert resources.attributes(0)["service.instance.id"] == "n1"


def test_only_pods_of_the_plan_have_cgroups_to_measure() -> None:
    cgroups = {6: Cgroup("uid-1", ""), 7: Cgroup("uid-1", CART.id), 8: Cgroup("uid-2", "")}
    assert PodResources(PLAN, cgroups).pod_cgroups() == {"uid-1": [6, 7]}


def test_a_container_that_has_ended_keeps_its_name_for_what_comes_late() -> None:
    before = PodResources(PLAN, {7: Cgroup("uid-1", CART.id)})
    after = PodResources(NodePlan("n1", 2, "", (), ()), {}, before)  # before anybody asked for it
    assert after.attributes(7) == before.attributes(7)
    assert after.attributes(7)["k8s.container.name"] == CART.name
    assert (before.ended(7), after.ended(7)) == (False, True)
    assert after.attributes(8)["service.name"] == "unknown_service"


def test_a_process_is_named_by_its_comm_even_after_its_end(tmp_path: Path) -> None:
    (tmp_path / "42").mkdir()
    (tmp_path / "42" / "comm").write_text("redis-server\n")
    resources = ProcessResources("host", tmp_path)
    first = dict(resources.attributes(42))
    (tmp_path / "42" / "comm").unlink()
    assert (first["service.name"], first["process.pid"], first["host.name"]) == ("redis-server", 42, "host")
    assert resources.attributes(42) == first


def test_a_process_that_nobody_saw_is_unknown(tmp_path: Path) -> None:
    attributes = ProcessResources("host", tmp_path).attributes(43)
    assert (attributes["service.name"], attributes["process.pid"]) == ("unknown_service", 43)
