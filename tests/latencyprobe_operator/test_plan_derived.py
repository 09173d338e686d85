"""What follows from plans."""

from msgspec.structs import replace

from latencyprobe.plan import NodePlan, Pod
from latencyprobe_operator.plan.derived import Derived

PLAN = NodePlan("n1", 1, "d1", (), ())


def test_it_is_found_once_for_a_plan_and_what_is_equal_is_that_of_the_plan_before() -> None:
    made = []

    def make(plan: NodePlan) -> list[str]:
        made.append(plan.generation)
        return [plan.node]

    derived = Derived(make)
    first = derived.of(PLAN)
    assert derived.of(PLAN) is first
    assert derived.of(replace(PLAN, generation=2)) is first
    assert [1, 2] == made


def test_what_follows_from_parts_that_are_the_same_is_not_looked_for_again() -> None:
    made = []

    def make(plan: NodePlan) -> list[str]:
        made.append(plan.generation)
        return [plan.node]

    derived = Derived(make, lambda plan: plan.pods)
    pods = Pod("u1", "shop", "cart-1", (), (), {}), Pod("u2", "shop", "cart-2", (), (), {})
    first = derived.of(replace(PLAN, pods=pods))
    assert derived.of(replace(PLAN, generation=2, pods=(*pods,))) is first
    derived.of(replace(PLAN, generation=3, pods=pods[:1]))
    derived.of(replace(PLAN, generation=4, pods=(replace(pods[0]),)))
    assert [1, 3, 4] == made


def test_other_nodes_are_forgotten() -> None:
    other = replace(PLAN, node="n2")
    derived = Derived(lambda plan: [plan.node])
    gone, kept = derived.of(PLAN), derived.of(other)
    derived.keep({"n2"})
    assert derived.of(PLAN) is not gone
    assert derived.of(other) is kept
