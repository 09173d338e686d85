"""The cluster's state: what changed, and who has an address."""

from typing import Any

from msgspec.structs import replace

from latencyprobe_operator.cluster.objects import Namespace, Node
from latencyprobe_operator.cluster.state import Changes, ClusterState, Left


def changed(state: ClusterState) -> tuple[set[str], set[str]]:
    changes = state.take_changes()
    return changes.namespaces, changes.nodes


def test_changes_name_namespaces_and_are_handed_out_once(make: Any) -> None:
    state = make.state()
    state.take_changes()
    state.put("pods", make.pod("cart-1"))
    state.put("namespaces", Namespace("bank"))
    assert changed(state) == ({"shop", "bank"}, set())
    assert not state.take_changes()


def test_object_that_is_equal_in_every_field_changes_nothing(make: Any) -> None:
    state = make.state(make.pod("cart-1"))
    state.take_changes()
    state.put("pods", make.pod("cart-1"))
    assert not state.take_changes()


def test_nodes_count_as_changed_when_they_come_or_go_but_not_for_their_label(make: Any) -> None:
    state = make.state()
    state.take_changes()
    state.put("nodes", Node("uid-n1", "n1", measure=True))
    assert not state.take_changes()
    state.put("nodes", Node("uid-new", "n1"))
    assert changed(state) == (set(), {"n1"})
    state.drop("nodes", ("", "n1"))
    assert changed(state) == (set(), {"n1"})


def test_later_changes_are_added_to_earlier_ones(make: Any) -> None:
    whole, state = Changes(), make.state()
    whole.add(state.take_changes())
    state.put("pods", make.pod("cart-1", namespace="bank"))
    whole.add(state.take_changes())
    assert (whole.namespaces, whole.nodes, whole.pods_on) == ({"shop", "bank"}, {"n1", "n2", "n3"}, {"n1"})


def test_changed_pods_name_their_nodes_and_addresses_the_old_ones_too(make: Any) -> None:
    state = make.state(make.pod("cart-1", addresses=("10.0.0.1",)), make.service("cart"))
    assert state.take_changes().addresses == {"10.0.0.1", "10.96.0.7"}
    state.put("pods", make.pod("cart-1", node="n2", addresses=("10.0.0.2",)))
    changes = state.take_changes()
    assert (changes.pods_on, changes.addresses) == ({"n1", "n2"}, {"10.0.0.1", "10.0.0.2"})
    state.drop("pods", ("shop", "cart-1"))
    changes = state.take_changes()
    assert (changes.pods_on, changes.addresses) == ({"n2"}, {"10.0.0.2"})


def test_pods_are_found_by_their_node(make: Any) -> None:
    one, other = make.pod("cart-1"), make.pod("cart-2")
    state = make.state(one, other, make.pod("cart-3", node="n2"), make.pod("pending", node=""))
    assert list(state.pods_on("n1")) == [one, other]
    assert state.nodes_with_pods() == {"n1", "n2"}
    state.put("pods", make.pod("cart-3", node="n1"))
    assert (len(state.pods_on("n1")), len(state.pods_on("n2"))) == (3, 0)
    assert state.nodes_with_pods() == {"n1"}


def test_whole_list_replaces_what_is_not_in_it(make: Any) -> None:
    state = make.state(make.pod("cart-1"), make.pod("cart-2", namespace="bank"))
    state.replace("pods", [make.pod("cart-3")])
    assert {pod.name for pod in state.pods()} == {"cart-3"}


def test_address_follows_its_pod(make: Any) -> None:
    state = make.state(make.pod("cart-1", addresses=("10.0.0.1",)))
    state.put("pods", make.pod("cart-1", addresses=("10.0.0.2",)))
    assert [[pod.name for pod in state.pods_at(f"10.0.0.{i}")] for i in (1, 2)] == [[], ["cart-1"]]
    state.drop("pods", ("shop", "cart-1"))
    assert list(state.pods_at("10.0.0.2")) == []


def test_host_network_and_ended_pods_have_no_address_of_their_own(make: Any) -> None:
    state = make.state(
        make.pod("cart-1", addresses=("10.0.0.1",), host_network=True),
        make.pod("cart-2", addresses=("10.0.0.1",), terminal=True),
    )
    assert list(state.pods_at("10.0.0.1")) == []


def test_addresses_of_services_and_nodes_go_with_them(make: Any) -> None:
    service = make.service("cart", address="10.96.0.7")
    state = make.state(service)
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1",)))
    assert (state.service_at("10.96.0.7"), state.node_at("192.0.2.1")) == (service, "n1")
    state.drop("services", ("shop", "cart"))
    state.drop("nodes", ("", "n1"))
    assert (state.service_at("10.96.0.7"), state.node_at("192.0.2.1")) == (None, "")


def test_address_that_several_say_they_have_is_nobodys_and_the_last_ones_once_the_others_are_gone(make: Any) -> None:
    state = make.state(*(replace(make.service(name, address=""), balancers=("203.0.113.9",)) for name in ("a", "b")))
    for name in ("n1", "n2"):
        state.put("nodes", Node(f"uid-{name}", name, addresses=("192.0.2.1",)))
    assert (state.service_at("203.0.113.9"), state.node_at("192.0.2.1")) == (None, "")
    state.drop("services", ("shop", "a"))
    state.drop("nodes", ("", "n1"))
    found = state.service_at("203.0.113.9")
    assert (found and found.name, state.node_at("192.0.2.1")) == ("b", "n2")


def test_address_of_a_node_is_the_nodes_though_a_load_balancer_uses_it(make: Any) -> None:
    state = make.state(replace(make.service("cart"), balancers=("192.0.2.1",)))
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1",)))
    assert (state.service_at("192.0.2.1"), state.node_at("192.0.2.1")) == (None, "n1")


def test_addresses_of_nodes_and_load_balancers_that_change_hands_are_named(make: Any) -> None:
    state = make.state()
    state.take_changes()
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1", "192.0.2.2")))
    assert state.take_changes().addresses == {"192.0.2.1", "192.0.2.2"}
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1", "192.0.2.3"), measure=True))
    assert state.take_changes().addresses == {"192.0.2.2", "192.0.2.3"}
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1", "192.0.2.3"), unready="KubeletNotReady"))
    assert state.take_changes().addresses == set(), "who it is has not changed"
    state.drop("nodes", ("", "n1"))
    assert state.take_changes().addresses == {"192.0.2.1", "192.0.2.3"}
    state.put("services", replace(make.service("cart"), balancers=("203.0.113.9",)))
    assert state.take_changes().addresses == {"10.96.0.7", "203.0.113.9"}


def test_a_pod_has_its_address_until_it_ends_whoever_has_asked_for_its_deletion(make: Any) -> None:
    pod = make.pod("cart-1")
    state = make.state(pod)
    state.take_changes()
    state.put("pods", replace(pod, terminating=True))
    changes = state.take_changes()
    assert (changes.addresses, changes.pods_on) == (set(), {pod.node})
    state.put("pods", replace(pod, terminating=True, terminal=True))
    assert state.take_changes().addresses == {*pod.addresses}


def test_of_two_pods_at_an_address_the_end_of_one_is_told(make: Any) -> None:
    old, new = (replace(make.pod(name), addresses=("10.0.0.9",)) for name in ("cart-1", "cart-2"))
    state = make.state(old, new)
    state.take_changes()
    state.put("pods", replace(old, terminating=True))
    assert state.take_changes().addresses == {"10.0.0.9"}, "now it is the other one's"


def test_slices_are_found_by_the_service_that_they_name_now(make: Any) -> None:
    pod, cart, pay = make.pod("cart-1"), make.service("cart"), make.service("pay", address="10.96.0.8")
    slices = [replace(make.slice_of("cart", pod), name=name) for name in ("cart-a", "cart-b")]
    state = make.state(cart, pay, *slices)
    assert (list(state.slices_of(cart)), list(state.slices_of(pay))) == (slices, [])
    moved = replace(slices[0], service="pay")
    state.put("endpointslices", moved)
    assert (list(state.slices_of(cart)), list(state.slices_of(pay))) == (slices[1:], [moved])
    state.drop("endpointslices", ("shop", "cart-b"))
    assert list(state.slices_of(cart)) == []


def test_namespaces_are_kept_apart(make: Any) -> None:
    cart, slice_ = make.pod("cart-1"), make.slice_of("cart", make.pod("cart-1"))
    state = make.state(cart, slice_, make.service("cart"))
    assert list(state.pods("shop")) == [cart]
    assert list(state.slices("shop")) == [slice_]
    assert (list(state.pods("bank")), list(state.slices("bank")), state.services("bank")) == ([], [], {})
    assert state.pod(("shop", "cart-1")) is cart
    assert state.pod(("bank", "cart-1")) is None


def test_who_has_an_address_no_more_is_told_with_when(make: Any) -> None:
    now_s = [10.0]
    state = ClusterState(clock=lambda: now_s[0])
    names = ("gone", "ended", "moved", "again")
    gone, ended, moved, again = (make.pod(name, addresses=(f"10.0.0.{n}",)) for n, name in enumerate(names, 1))
    for pod in (gone, ended, moved, again, make.pod("on-the-host", host_network=True, addresses=("192.0.2.1",))):
        state.put("pods", pod)
    assert state.take_changes().left == []
    now_s[0] = 11.0
    state.put("pods", terminating := replace(gone, terminating=True))
    assert state.take_changes().left == [], "until it has ended it has its address"
    now_s[0] = 12.0
    for name in ("gone", "on-the-host"):
        state.drop("pods", ("shop", name))
    state.put("pods", replace(ended, terminal=True))
    now_s[0] = 13.0
    state.put("pods", replace(moved, addresses=("10.0.0.5",)))
    state.put("pods", replace(again, uid="another"))
    assert state.take_changes().left == [
        Left("10.0.0.1", terminating, 12.0),
        Left("10.0.0.2", ended, 12.0),
        Left("10.0.0.3", moved, 13.0),
        Left("10.0.0.4", None, 13.0),
    ]


def test_nobody_has_left_for_sure_where_another_claims_the_address(make: Any) -> None:
    state = make.state(*(make.pod(name, addresses=("10.0.0.1",)) for name in ("a", "b")))
    state.take_changes()
    state.drop("pods", ("shop", "a"))
    assert [(one.address, one.pod) for one in state.take_changes().left] == [("10.0.0.1", None)]
