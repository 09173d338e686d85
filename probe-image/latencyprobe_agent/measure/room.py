"""Which targets a node has no room for, so that no namespace takes the room of the others. Pure.

The kernel's tables are bounded. Where all targets of a node together need more, those of the namespace that needs most
are left out, the largest first, until the rest fits: who asks for no more than an equal share is never touched. Of
cgroups the innermost are left out. docs/design/directory.md, "Rules and target sets".
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple

from latencyprobe.plan import NodePlan
from latencyprobe_agent.identity.cgroups import OF_POD
from latencyprobe_agent.measure.matches import ANY_ADDRESS, ANY_PORT, Part, parts_of, with_wildcards
from latencyprobe_agent.vocabulary.records import RuleSide


class Room(NamedTuple):
    """Of a node: half of the maps `rules`, `target_sets` and `scopes` of bpf/maps.bpf.h, as the old and the new are in
    them while a plan changes. `of_pod`: cgroups of one pod."""

    rules: int = 65_536
    sets: int = 511
    cgroups: int = 8_192
    of_pod: int = OF_POD


class Need(NamedTuple):
    """More than there is room for: how many `all` targets need, and how many each (id) has a part in. `what`: the noun;
    `remedy`: what asks for less."""

    what: str
    room: int
    all: int
    of: Counter[str]
    remedy: str


ROOM = Room()


def fitting(plan: NodePlan, room: Room = ROOM) -> tuple[dict[str, tuple[Part, Part]], dict[str, str]]:
    """Return the parts of each pod (`parts_of()`) without the targets (ids) that cannot be measured, and of these why:
    who needs how much of what, and the remedy."""
    namespaces = {target.id: target.namespace for target in plan.targets}
    refused: dict[str, str] = {}
    parts = parts_of(plan)
    while need := _too_much(set(chain.from_iterable(parts.values())), room):
        of: Counter[str] = Counter()
        for target, part in need.of.items():
            of[namespaces[target]] += part
        namespace = min(of, key=lambda name: (-of[name], name))
        excess = need.all - need.room
        for target in sorted(need.of, key=lambda target: (-need.of[target], target)):
            if namespaces[target] == namespace and excess > 0:
                excess -= need.of[target]
                refused[target] = (
                    f"there is room for {need.room:,} {need.what} on a node, and {need.all:,} are asked for, most "
                    f"of them by namespace {namespace}, {need.of[target]:,} by this target: {need.remedy}"
                )
        parts = parts_of(plan, refused.keys())
    return parts, refused


def followed(
    plan: NodePlan, cgroups: Mapping[str, Sequence[int]], room: Room = ROOM
) -> tuple[dict[str, Sequence[int]], dict[str, str]]:
    """Return the cgroups of each pod that there is room for. `cgroups`: of each pod (uid) that is measured, the
    outermost first. Also of targets (ids) why their pods are measured in part: those of the pod's own namespace, as
    nobody else can change it."""
    pods = {pod.uid: pod for pod in plan.pods}
    needs: dict[str, dict[str, int]] = defaultdict(dict)
    for uid, ids in cgroups.items():
        needs[pods[uid].namespace if uid in pods else ""][uid] = min(len(ids), room.of_pod)
    shares = _shares({namespace: sum(of.values()) for namespace, of in needs.items()}, room.cgroups)
    given = {uid: most for namespace, of in needs.items() for uid, most in _shares(of, shares[namespace]).items()}
    short = {uid for uid, ids in cgroups.items() if given[uid] < len(ids)}
    told: dict[str, str] = {}
    for target in plan.targets if short else ():
        for uid in (*(pod.uid for pod in target.pods), *target.callers):
            if uid in short and uid in pods and pods[uid].namespace == target.namespace:
                told[target.id] = (
                    f"in part: pod {pods[uid].name} nests more cgroups than there is room for, {room.of_pod:,} of a "
                    f"pod and {room.cgroups:,} of a node, and its sockets in the innermost are not seen: let its "
                    "programs make fewer, or spread them over more pods and nodes"
                )
    return {uid: ids[: given[uid]] for uid, ids in cgroups.items()}, told


def _shares(needs: Mapping[str, int], room: int) -> dict[str, int]:
    """Share `room` out: who needs no more than an equal share has all of it, and the others what that leaves."""
    given: dict[str, int] = {}
    for name in sorted(needs, key=lambda name: (needs[name], name)):
        given[name] = min(needs[name], room // (len(needs) - len(given)))
        room -= given[name]
    return given


def _too_much(parts: Set[Part], room: Room) -> Need | None:
    """Rules first: there are never more combinations to look at than there is room for rules."""
    return _rules(parts, room.rules) or _sets(parts, room.sets)


def _rules(parts: Set[Part], room: int) -> Need | None:
    """Count the rules, with those that wildcards multiply, without making them."""
    total, of = 0, Counter[str]()
    for part in parts:
        total += len(part.matches) + len(part.replicas)
        of.update(dict.fromkeys(part.replicated, len(part.replicas)))
        any_port: dict[RuleSide, list[frozenset[str]]] = {side: [] for side in RuleSide}
        any_address: dict[RuleSide, list[frozenset[str]]] = {side: [] for side in RuleSide}
        for (address, port, side), ids in part.matches:
            of.update(ids)
            if (address == ANY_ADDRESS) != (port == ANY_PORT):
                (any_port if port == ANY_PORT else any_address)[side].append(ids)
        for side in RuleSide:
            total += len(any_port[side]) * len(any_address[side])
            for some, times in ((any_port, len(any_address[side])), (any_address, len(any_port[side]))):
                for ids in some[side] if times else ():
                    of.update(dict.fromkeys(ids, times))
    remedy = "name fewer ports, name them where it has none, or select fewer pods"
    return Need("rules", room, total, of, remedy) if total > room else None


def _sets(parts: Set[Part], room: int) -> Need | None:
    found = {frozenset(ids) for part in parts for ids in with_wildcards(dict(part.matches)).values()}
    of = Counter(chain.from_iterable(found))
    remedy = "let targets share fewer pods and ports with others"
    return Need("combinations of targets", room, len(found), of, remedy) if len(found) > room else None
