"""Which targets a node has no room for, so that no namespace takes the room of the others. Pure.

The kernel's tables are bounded. Where all targets of a node together need more, those of the namespace that needs most
are left out, the largest first, until the rest fits: who asks for no more than an equal share is never touched. Of
cgroups the innermost are left out. docs/design/directory.md, "Rules and target sets".
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from itertools import chain
from typing import NamedTuple

from latencyprobe.plan import NodePlan
from latencyprobe.shares import shares
from latencyprobe_agent.identity.cgroups import OF_POD
from latencyprobe_agent.measure.matches import Part, parts_of, unreadable
from latencyprobe_agent.measure.tallies import Combinations, Rules, Tally


class Room(NamedTuple):
    """Of a node: half of the maps `rules`, `target_sets` and `scopes` of bpf/maps.bpf.h, as the old and the new are in
    them while a plan changes. `of_pod`: cgroups of one pod."""

    rules: int = 65_536
    sets: int = 511
    cgroups: int = 8_192
    of_pod: int = OF_POD


ROOM = Room()


def fitting(plan: NodePlan, room: Room = ROOM) -> tuple[dict[str, tuple[Part, Part]], dict[str, str]]:
    """Return the parts of each pod (`parts_of()`) without the targets (ids) that cannot be measured, and of these why:
    who needs how much of what, and the remedy."""
    namespaces = {target.id: target.namespace for target in plan.targets}
    refused: dict[str, str] = {}
    try:
        parts = parts_of(plan)
    except ValueError:  # parsed again here only, as a plan has thousands
        refused = {
            target: f"callers dial it at {address!r}, which is no address: give that Service another one, and please "
            "report it, as the operator leaves these out"
            for target, address in unreadable(plan).items()
        }
        parts = parts_of(plan, refused.keys())
    # rules first: there are never more combinations to look at than there is room for rules
    for tally, most in ((Rules, room.rules), (Combinations, room.sets)):
        if more := _left_out(tally(set(chain.from_iterable(parts.values())), most), namespaces):
            refused |= more
            parts = parts_of(plan, refused.keys())
    return parts, refused


def _left_out(tally: Tally, namespaces: Mapping[str, str]) -> dict[str, str]:
    """Take targets (ids) off until the rest fits, and return why."""
    refused: dict[str, str] = {}
    while (asked := tally.all) > tally.room:
        of: dict[str, list[str]] = defaultdict(list)
        for target in tally.targets:
            of[namespaces[target]].append(target)
        needs = {name: tally.of(targets) for name, targets in of.items()}
        namespace = min(needs, key=lambda name: (-needs[name], name))
        parts = {target: tally.of([target]) for target in of[namespace]}
        for target, part in sorted(parts.items(), key=lambda one: (-one[1], one[0])):
            if tally.all > tally.room:
                tally.take_off(target)
                refused[target] = (
                    f"there is room for {tally.room:,} {tally.what} on a node, and {asked:,} are asked for, most "
                    f"of them by namespace {namespace}, {part:,} by this target: {tally.remedy}"
                )
    return refused


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
    given_to = shares({namespace: sum(of.values()) for namespace, of in needs.items()}, room.cgroups)
    given = {uid: most for namespace, of in needs.items() for uid, most in shares(of, given_to[namespace]).items()}
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
