"""slo/objective.py: what a LatencyProbe's objectives are counted and judged by."""

from pathlib import Path

from latencyprobe import parsing, planning
from latencyprobe.plan import Role
from latencyprobe.sli import SliRow
from latencyprobe.slo.objective import ObjectiveKey, key_of, objectives

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_objectives_carry_what_the_evaluation_needs() -> None:
    (probe,) = parsing.load_file(EXAMPLES / "checkout.yaml")
    found = objectives(probe)
    assert [("cart", 25_000_000, "99.9"), ("cart", 50_000_000, "99"), ("cart-database", 5_000_000, "99.5")] == [
        (objective.target, objective.threshold_ns, objective.goal) for objective in found
    ]
    assert [Role.SERVER, Role.CLIENT, Role.CLIENT] == [objective.key.perspective for objective in found]
    assert [objective.hash for objective in planning.objectives(probe)] == [objective.key.hash for objective in found]


def test_row_belongs_to_the_key_it_was_made_from() -> None:
    key = ObjectiveKey("shop", "checkout", "u1", "fast", "h1", Role.SERVER)
    assert key == key_of(SliRow(*key, minute=60))
