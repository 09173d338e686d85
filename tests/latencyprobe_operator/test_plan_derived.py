"""What follows from plans."""

from msgspec.structs import replace

from latencyprobe.plan import NodePlan
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


def test_other_nodes_are_forgotten() -> None:
    other = replace(PLAN, node="n2")
    derived = Derived(lambda plan: [plan.node])
    gone, kept = derived.of(PLAN), derived.of(other)
    derived.keep({"n2"})
    assert derived.of(PLAN) is not gone
    assert derived.of(other) is kept
