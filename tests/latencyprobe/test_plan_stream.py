"""What changes from a plan to the next: it makes exactly the operator's plan, or none."""

import hashlib
import random
from typing import Any

import msgspec
import pytest

from latencyprobe.plan import (
    Endpoint,
    NodePlan,
    PlannedObjective,
    Pod,
    Replicas,
    Role,
    SpanPolicy,
    Target,
    TargetPod,
)
from latencyprobe.plan_digest import digest_of
from latencyprobe.plan_stream import Differences, PlanChange, applied

SPANS = SpanPolicy(1, 0.01, 100)
PLAN = NodePlan("n1", 1, "", (), (), pair_key=b"k" * 32)


def finished(plan: NodePlan) -> NodePlan:
    return msgspec.structs.replace(plan, digest=digest_of(plan))


def plan(*targets: Target, **fields: Any) -> NodePlan:
    return finished(msgspec.structs.replace(PLAN, targets=targets, **fields))


def target(name: str, *endpoints: Endpoint, **fields: Any) -> Target:
    return Target(f"a/p/{name}", "a", "p", "u", name, Role.SERVER, (1,), 0, SPANS, endpoints=endpoints, **fields)


def endpoints(count: int) -> tuple[Endpoint, ...]:
    found = (Endpoint(f"10.0.{i >> 8}.{i & 255}", 80) for i in range(count))
    return tuple(sorted(found, key=msgspec.structs.astuple))


def any_plan(r: random.Random) -> NodePlan:
    def some_endpoints() -> tuple[Endpoint, ...]:
        found = {Endpoint(f"10.0.0.{r.randint(1, 6)}", r.choice([80, 0]), r.choice(["", "svc"])) for _ in range(4)}
        return tuple(sorted(found, key=msgspec.structs.astuple))

    targets = tuple(
        target(
            name,
            *some_endpoints(),
            pods=tuple(TargetPod(f"u{i}", (80,)) for i in range(r.randint(0, 2))),
            callers=tuple(f"c{i}" for i in range(r.randint(0, 2))),
            replicas=tuple(
                Replicas((f"u{i}",), r.choice([None, (), some_endpoints()])) for i in range(r.randint(0, 2))
            ),
        )
        for name in "abc"
        if r.random() < 0.7
    )
    pods = tuple(Pod(f"u{i}", "a", r.choice("xy"), (), (), {}) for i in range(5) if r.random() < 0.7)
    objectives = tuple(
        PlannedObjective(f"o{i}", "a", "o", Role.SERVER, 0, True, "h", "99", "1d", 1) for i in range(r.randint(0, 2))
    )
    return plan(*targets, pods=pods, objectives=objectives, generation=r.randint(1, 1 << 40))


def sent(change: PlanChange | None) -> PlanChange:
    assert change is not None
    return msgspec.json.decode(msgspec.json.encode(change), type=PlanChange)


def test_what_is_made_of_a_plan_and_its_change_is_the_next_plan() -> None:
    seed = random.randrange(1 << 30)
    print(f"seed {seed}")
    r, differences = random.Random(seed), Differences()
    old = any_plan(r)
    for _ in range(1_000):
        new = any_plan(r)
        assert applied(old, sent(differences.between(old, new))) == new
        old = new


def test_one_endpoint_of_thousands_is_all_that_goes_to_each_caller() -> None:
    before, after = endpoints(5_000), endpoints(5_001)[1:]
    old, new = (plan(target("a", *some, callers=("c",))) for some in (before, after))
    change = sent(Differences().between(old, new))
    assert [(len(e.added), len(e.removed)) for e in change.targets[0].endpoints] == [(1, 1)]
    assert len(msgspec.json.encode(change)) < 700
    assert applied(old, change) == new


def test_nodes_that_share_a_list_share_what_changed_in_it() -> None:
    differences, before, after = Differences(), endpoints(9), endpoints(8)
    changes = []
    for caller in ("c", "d"):
        old, new = (
            plan(msgspec.structs.replace(target("a", callers=(caller,)), endpoints=some)) for some in (before, after)
        )
        change = differences.between(old, new)
        assert change is not None
        changes.append(change.targets[0].endpoints[0])
    assert changes[0] is changes[1]


def test_lists_of_differences_that_are_kept_are_few_and_never_taken_for_others() -> None:
    differences = Differences()
    for i in range(3 * Differences.KEPT):
        old, new = plan(target("a", *endpoints(i % 7))), plan(target("a", *endpoints(i % 5)))
        assert applied(old, sent(differences.between(old, new))) == new
        assert len(differences._known) <= Differences.KEPT


def test_a_change_of_another_plan_is_not_used() -> None:
    one, two, three = (plan(target(name)) for name in "abc")
    change = sent(Differences().between(one, two))
    assert applied(None, change) is None
    assert applied(three, change) is None


@pytest.mark.parametrize("field", ["targets", "pods", "gone", "order", "objectives"])
def test_a_change_that_lacks_something_is_not_used(field: str) -> None:
    objective = PlannedObjective("o", "a", "o", Role.SERVER, 0, True, "h", "99", "1d", 1)
    old = plan(target("a"), pods=(Pod("u1", "a", "x", (), (), {}),))
    new = plan(
        target("a", *endpoints(1)), target("b"), pods=(Pod("u2", "a", "x", (), (), {}),), objectives=(objective,)
    )
    whole = sent(Differences().between(old, new))
    lacking = msgspec.json.decode(msgspec.json.encode(whole))
    del lacking[field]
    assert applied(old, whole) == new
    assert applied(old, msgspec.convert(lacking, PlanChange)) is None


def test_a_change_of_a_newer_operator_that_says_more_than_we_read_is_not_used() -> None:
    old, new = plan(target("a")), plan(target("a", *endpoints(1)))
    change = sent(Differences().between(old, new))
    theirs = msgspec.json.decode(msgspec.json.encode(new.targets[0]))
    for read in (True, False):
        digest = digest_of(new, [hashlib.sha256(msgspec.json.encode(theirs)).digest()])
        assert (applied(old, msgspec.structs.replace(change, digest=digest)) == new) is read
        theirs["newer"] = True


def test_another_pairing_key_is_more_than_a_change_can_say() -> None:
    old = plan(target("a"))
    assert Differences().between(old, finished(msgspec.structs.replace(old, pair_key=b"n" * 32))) is None
