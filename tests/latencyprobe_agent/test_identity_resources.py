from pathlib import Path

from latencyprobe.plan import Container, NodePlan, Pod
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.resources import PodResources, ProcessResources

CART = Container("cart", "ab" * 32)
POD = Pod("uid-1", "shop", "cart-0", ("10.0.0.1",), (CART,), {"service.name": "cart", "k8s.pod.uid": "uid-1"})
PLAN = NodePlan("n1", 1, "", (), (), pods=(POD,))


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
