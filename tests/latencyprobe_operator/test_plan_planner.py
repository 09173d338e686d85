"""Node plans: whole, stable, and free of other tenants."""

import json
from collections.abc import Iterable
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe.spec import LatencyProbe
from latencyprobe_operator.cluster.objects import Node, Pod
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan import building
from latencyprobe_operator.plan import planner as planner_
from latencyprobe_operator.plan.planner import Planner, Work
from latencyprobe_operator.plan.targets import finished

EPOCH = 1000


# pods that no plan tells of each other
ALONE = [{"name": "cart", "podSelector": {"matchLabels": {"app": "cart"}}, "ports": ["http"], "peers": True}]


def planned(planner: Planner, state: ClusterState, *probes: LatencyProbe) -> frozenset[str]:
    return planner.update({(p.namespace, p.name): p for p in probes}, state, state.take_changes())


def test_plan_names_targets_callers_and_their_pods(make: Any) -> None:
    planner = Planner(EPOCH, b"k" * 32)
    planned(planner, make.state(make.pod("cart-1"), make.pod("web-1", node="n2")), make.probe())
    plan = planner.plan_of("n2")
    assert [t.id for t in plan.targets] == ["shop/checkout/cart"]
    assert [p.name for p in plan.pods] == ["web-1"]
    assert plan.pods[0].resource["service.name"] == "web-1"
    assert plan.pair_key == b"k" * 32
    assert planner.nodes == {"n1", "n2"}


def test_unchanged_content_keeps_generation_and_digest(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1"))
    assert planned(planner, state, make.probe()) == {"n1"}
    before = planner.plan_of("n1")
    state.put("pods", make.pod("billing-1", namespace="bank"))
    state.put("nodes", Node("uid-n1", "n1", addresses=("192.0.2.1",)))
    assert planned(planner, state, make.probe()) == frozenset()
    assert planner.plan_of("n1") is before


def test_generation_grows_with_each_change_of_content(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1"))
    generations = []
    for number in range(1, 4):
        state.put("pods", make.pod(f"cart-{number}"))
        planned(planner, state, make.probe())
        generations.append(planner.plan_of("n1").generation)
    assert generations == sorted(set(generations))
    assert generations[0] > EPOCH


def test_pod_change_touches_only_the_nodes_that_it_concerns(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1", node="n1"), make.pod("cart-2", node="n2"))
    quiet = make.probe(clients={"scope": "None"}, targets=ALONE)
    planned(planner, state, quiet)
    state.put("pods", make.pod("cart-3", node="n3"))
    assert planned(planner, state, quiet) == {"n3"}


@pytest.mark.parametrize("step", ["look", "plan_pod"])
def test_update_that_fails_is_made_up_for_by_the_next_one(
    make: Any, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1"))
    probes = [make.probe(name, clients={"scope": "None"}, targets=ALONE) for name in ("one", "other")]
    planned(planner, state, *probes)
    module = planner_ if step == "look" else building
    works, calls = getattr(module, step), iter(range(9))

    def fails_at_the_second_call(*args: Any) -> Any:
        if next(calls) == 1:
            raise RuntimeError("unforeseen")
        return works(*args)

    monkeypatch.setattr(module, step, fails_at_the_second_call)
    for node in ("n2", "n3"):
        state.put("pods", make.pod(f"cart-{node}", node=node))
    with pytest.raises(RuntimeError):
        planned(planner, state, *probes)
    assert planned(planner, state, *probes) == {"n2", "n3"}
    assert [len(planner.plan_of(node).targets) for node in ("n1", "n2", "n3")] == [2, 2, 2]


def test_deleted_probe_leaves_an_empty_plan_with_a_higher_generation(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1"))
    planned(planner, state, make.probe())
    before = planner.plan_of("n1").generation
    assert planned(planner, state) == {"n1"}
    after = planner.plan_of("n1")
    assert (after.targets, after.pods, planner.nodes) == ((), (), frozenset())
    assert after.generation > before


def test_node_that_is_asked_for_before_it_has_work_gets_a_higher_generation_with_it(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state()
    empty = planner.plan_of("n1")
    state.put("pods", make.pod("cart-1"))
    planned(planner, state, make.probe())
    assert planner.plan_of("n1").generation > empty.generation


def test_plan_that_is_asked_for_while_the_planner_works_is_the_earlier_one(make: Any) -> None:
    """Else the node's plan would not be among those that changed, and nobody would be told of it."""
    planner, state, asked = Planner(EPOCH), make.state(make.pod("cart-1")), []

    def meanwhile() -> Work:
        work = planner.work({("shop", "checkout"): make.probe()}, state, state.take_changes())
        while True:
            try:
                next(work)
            except StopIteration as end:
                return cast("frozenset[str]", end.value)
            if planner.resolved and not asked:
                asked.append(planner.plan_of("n1"))
            yield

    assert finished(meanwhile()) == {"n1"}
    assert asked[0].targets == ()
    assert planner.plan_of("n1").targets
    assert planner.plan_of("n1").generation > asked[0].generation


def test_plan_of_a_deleted_node_is_forgotten(make: Any) -> None:
    planner, state = Planner(EPOCH), make.state(make.pod("cart-1"))
    planned(planner, state, make.probe())
    state.drop("pods", ("shop", "cart-1"))
    state.drop("nodes", ("", "n1"))
    planned(planner, state, make.probe())
    assert planner.plans == {}


def test_new_pairing_key_changes_every_plan(make: Any) -> None:
    planner, state = Planner(EPOCH, b"a" * 32), make.state(make.pod("cart-1"))
    planned(planner, state, make.probe())
    assert not planner.use_pair_key(b"a" * 32)
    assert planner.use_pair_key(b"b" * 32)
    assert planned(planner, state, make.probe()) == {"n1"}
    assert planner.plan_of("n1").pair_key == b"b" * 32


def test_same_probe_name_in_two_namespaces_stays_apart(make: Any) -> None:
    planner = Planner(EPOCH)
    state = make.state(make.pod("cart-1"), make.pod("cart-1", namespace="bank"), namespaces=("shop", "bank"))
    planned(planner, state, make.probe(), make.probe(namespace="bank"))
    pods = {t.id: [p.uid for p in t.pods] for t in planner.plan_of("n1").targets}
    assert pods == {"bank/checkout/cart": ["uid-bank-cart-1"], "shop/checkout/cart": ["uid-shop-cart-1"]}


TENANTS = ("t1", "t2", "t3")
labels = st.dictionaries(st.sampled_from(["app", "tier"]), st.sampled_from(["a", "b"]), max_size=2)


@st.composite
def pods(draw: st.DrawFn) -> list[Pod]:
    return [
        Pod(
            uid=f"canary-{tenant}-{i}",
            namespace=tenant,
            name=f"pod-{i}",  # the same names in every tenant
            node=draw(st.sampled_from(["n1", "n2", ""])),
            labels=draw(labels),
            addresses=(f"10.{TENANTS.index(tenant)}.0.{i}",),
            ports=(("http", 80),),
            numbers=(80,),
            host_network=draw(st.booleans()),
            terminal=draw(st.booleans()),
        )
        for tenant in TENANTS
        for i in range(draw(st.integers(0, 3)))
    ]


selectors = st.fixed_dictionaries({}, optional={"matchLabels": labels})
probes = st.builds(
    lambda selector, clients, scope: {
        "targets": [{"name": "x", "podSelector": selector}],
        "clients": {"scope": scope, "podSelector": clients},
        "objectives": [],
    },
    selectors,
    selectors,
    st.sampled_from(["None", "Namespace", "Cluster"]),
)


def canaries(text: str, others: Iterable[str]) -> list[str]:
    return [other for other in others if f"canary-{other}-" in text or f"10.{TENANTS.index(other)}." in text]


@given(pods(), st.dictionaries(st.sampled_from(TENANTS), probes, min_size=1))
def test_no_foreign_pod_or_address_in_a_tenants_targets(found: list[Pod], specs: dict[str, dict[str, Any]]) -> None:
    from latencyprobe import parsing

    state = ClusterState()
    state.replace("pods", found)
    state.replace("nodes", [Node("u1", "n1"), Node("u2", "n2")])
    planner = Planner(EPOCH)
    parsed = [
        parsing.parse(
            {
                "apiVersion": "latencyprobe.dev/v1alpha1",
                "kind": "LatencyProbe",
                "metadata": {"name": "same", "namespace": tenant, "uid": f"p-{tenant}", "generation": 1},
                "spec": document,
            }
        )
        for tenant, document in specs.items()
    ]
    planned(planner, state, *parsed)
    for plan in planner.plans.values():
        for target in plan.targets:
            others = [tenant for tenant in TENANTS if tenant != target.namespace]
            assert canaries(msgspec.json.encode(target).decode(), others) == []
        named = {u for t in plan.targets for u in (*(p.uid for p in t.pods), *t.callers)}
        assert {p.uid for p in plan.pods} == named


@given(pods(), probes, st.randoms())
def test_order_of_events_does_not_change_the_digest(found: list[Pod], document: dict[str, Any], random: Any) -> None:
    from latencyprobe import parsing

    desired = parsing.parse(
        {
            "apiVersion": "latencyprobe.dev/v1alpha1",
            "kind": "LatencyProbe",
            "metadata": {"name": "same", "namespace": "t1", "uid": "p", "generation": 1},
            "spec": document,
        }
    )
    digests = []
    for _ in range(2):
        state, planner = ClusterState(), Planner(EPOCH)
        state.replace("nodes", [Node("u1", "n1"), Node("u2", "n2")])
        random.shuffle(found)
        for pod in found:
            state.put("pods", pod)
            planned(planner, state, desired)
        planned(planner, state, desired)
        digests.append(json.dumps({node: planner.plan_of(node).digest for node in ("n1", "n2")}, sort_keys=True))
    assert digests[0] == digests[1]
