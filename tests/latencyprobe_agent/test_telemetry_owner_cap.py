"""owner_cap.py: rows of counts are shared out by namespace, each once for every target of its set."""

from collections import Counter

import numpy as np

from latencyprobe.plan import NodePlan, SpanPolicy, Target
from latencyprobe.plan import Role as Perspective
from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.measure.counts import COUNTS, Counts
from latencyprobe_agent.measure.rules import Rules, TargetSet
from latencyprobe_agent.measure.turn import InForce
from latencyprobe_agent.telemetry.owner_cap import OTHERS, OwnerCap
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, Outcome, Role

POLICY = SpanPolicy(10**9, 0.0, 100)


def in_force(**targets: int) -> InForce:
    """Return target sets by number, of so many targets each: `evil=3, shop=1` are sets 1 and 2."""
    of = [
        [Target(f"{name}/p/t{i}", name, "p", "", f"t{i}", Perspective.SERVER, (), 0, POLICY) for i in range(n)]
        for name, n in targets.items()
    ]
    sets = {
        at: TargetSet(tuple(t.id for t in some), (), 0, POLICY, f"{some[0].namespace}/p")
        for at, some in enumerate(of, 1)
    }
    return InForce(
        NodePlan("n1", 1, "", tuple(t for some in of for t in some), ()),
        Rules(sets=sets),
        FakeResources(by_process=True),
    )


def living(*rows: tuple[int, int, int]) -> Counts:
    """Target set, owner, events of each row."""
    keys, values = np.zeros(len(rows), COUNTS_KEY), np.zeros(len(rows), COUNTS)
    keys["role"] = Role.SERVER
    keys["target_set"], keys["owner"], values["outcomes"][:, Outcome.OK] = zip(*rows, strict=True)
    return Counts(keys, values)


def told(counts: Counts) -> dict[tuple[int, int], int]:
    """Return events by target set and owner, 0 for others."""
    where = zip(counts.keys["target_set"].tolist(), counts.keys["owner"].tolist(), strict=True)
    events = counts.values["outcomes"][:, Outcome.OK].tolist()
    return {(number, 0 if owner == OTHERS else owner): n for (number, owner), n in zip(where, events, strict=True)}


def test_one_namespace_takes_no_rows_from_another_and_makes_room_without_losing_a_count() -> None:
    cap, plan = OwnerCap(200, room=8), in_force(evil=1, shop=1)
    evil = [(1, owner, 10) for owner in range(1, 21)]
    cap.follow(plan, living(*evil))
    assert 9 == len(cap.fold(living(*evil)).keys), "eight and their others"
    both = living(*evil, (2, 50, 1), (2, 51, 1))
    found = told(cap.fold(both))
    assert (1, 1) == (found[2, 50], found[2, 51])
    assert {"evil"} == cap.room.share_out()
    cap.follow(plan, both, {1})
    later = living(*[(1, owner, 11) for owner in range(1, 21)], (2, 50, 1), (2, 51, 1))
    after = told(cap.fold(later))
    assert 5 == sum(number == 1 and owner > 0 for number, owner in after)
    assert 120 + 12 + 3 == after[1, 0], "who was folded before, and of who is folded now what he has gained"
    assert set() == cap.room.share_out()


def test_a_row_takes_room_for_each_target_of_its_set_and_others_have_as_much() -> None:
    cap, plan = OwnerCap(200, room=8), in_force(evil=9, shop=3)
    rows = living((1, 1, 5), (1, 2, 5), (2, 3, 5), (2, 4, 5), (2, 5, 5))
    cap.follow(plan, rows)
    assert {(2, 3): 5, (2, 4): 5, (2, 0): 5} == told(cap.told(cap.fold(rows))), "nine targets find no room at all"
    assert Counter(evil=2, shop=1) == cap.overflow


def test_what_others_have_no_room_to_tell_is_counted_on() -> None:
    cap, rows = OwnerCap(0, room=8), living((1, 1, 5), (2, 3, 5))
    cap.follow(in_force(evil=9, shop=3), rows)
    assert {(2, 0): 5} == told(cap.told(cap.fold(rows)))
    cap.follow(in_force(evil=4, shop=3), rows)
    assert {(1, 0): 6, (2, 0): 5} == told(cap.told(cap.fold(living((1, 1, 6), (2, 3, 5)))))
