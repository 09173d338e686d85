"""What the plan stream carries: a node's plan, and from then on what changes in it.

Pure; the operator takes the `Differences` of two plans, the agent makes `applied` of its own and the difference. A plan
that is not the operator's to the byte, by its digest, is never used (docs/design/directory.md, "Changes of a plan").
"""

from collections.abc import Mapping

import msgspec

from latencyprobe.plan import Endpoint, NodePlan, PlannedObjective, Pod, RemoteJoinMessage, Target
from latencyprobe.plan_digest import digest_of

Endpoints = tuple[Endpoint, ...]


class _Wire(msgspec.Struct, frozen=True, omit_defaults=True):  # unknown fields are ignored: wire.py
    pass


class EndpointsChange(_Wire, frozen=True):
    """What came into a list of endpoints, and what went."""

    added: Endpoints = ()
    removed: Endpoints = ()


class TargetChange(_Wire, frozen=True):
    """A target that is new or another one, its lists of endpoints left empty. `endpoints`: what changed in these, its
    own first, then its replicas', since the plan before, where a missing one is empty."""

    target: Target
    endpoints: tuple[EndpointsChange, ...]


class PlanChange(_Wire, frozen=True):
    """What makes the plan with the digest `digest` of the one with `base`. `order`: the ids of all targets, None as
    before; `objectives`: all, None as before; `pods`: new or other ones; `gone`: uids of pods."""

    base: str
    digest: str
    generation: int
    targets: tuple[TargetChange, ...] = ()
    order: tuple[str, ...] | None = None
    objectives: tuple[PlannedObjective, ...] | None = None
    pods: tuple[Pod, ...] = ()
    gone: tuple[str, ...] = ()


class PlanLine(_Wire, frozen=True):
    """One line of the plan stream: a plan or, for agents that take it, what changed in the last one; what concerns the
    remote join; `forget`: addresses that have another owner, or one of which other targets are measured; or (without
    any) a heartbeat. `unconfirmed_s`: for how long the API server has not confirmed to the operator what it knows of
    the cluster, 0 while all is well; `return_s`: over how many seconds agents come back when this stream ends, 0: at
    once; `status_s`: how often they shall hand in their status, 0: as usual."""

    plan: NodePlan | None = None
    remote_join: RemoteJoinMessage | None = None
    unconfirmed_s: int = 0
    change: PlanChange | None = None
    forget: tuple[str, ...] = ()
    return_s: float = 0.0
    status_s: float = 0.0


class Differences:
    """Differences of plans. What changed in a list of endpoints is found once for all nodes that share it."""

    KEPT = 64  # lists; two for each target that changed of late are enough

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], tuple[Endpoints, Endpoints, EndpointsChange]] = {}

    def between(self, old: NodePlan, new: NodePlan) -> PlanChange | None:
        """Return what makes `new` of `old`; None where more differs than a change can say."""
        if _rest(old, new) != new:
            return None
        targets = {target.id: target for target in old.targets}
        order = tuple(target.id for target in new.targets)
        came, gone = _differences(old.pods, new.pods)
        return PlanChange(
            base=old.digest,
            digest=new.digest,
            generation=new.generation,
            targets=tuple(self._target(targets.get(t.id), t) for t in new.targets if _differs(targets.get(t.id), t)),
            order=None if order == tuple(targets) else order,
            objectives=None if new.objectives == old.objectives else new.objectives,
            pods=came,
            gone=gone,
        )

    def _target(self, old: Target | None, new: Target) -> TargetChange:
        before, after = _lists(old), _lists(new)
        before += ((),) * (len(after) - len(before))
        changes = tuple(self._endpoints(*pair) for pair in zip(before, after, strict=False))
        return TargetChange(_with_lists(new, ((),) * len(after)), changes)

    def _endpoints(self, old: Endpoints, new: Endpoints) -> EndpointsChange:
        if old is new:
            return EndpointsChange()
        known = self._known.get((id(old), id(new)))
        if known is not None:
            return known[2]
        before, after = set(old), set(new)
        found = EndpointsChange(tuple(e for e in new if e not in before), tuple(e for e in old if e not in after))
        if len(self._known) >= self.KEPT:
            del self._known[next(iter(self._known))]
        self._known[id(old), id(new)] = (old, new, found)  # the lists themselves too: so their ids stay theirs
        return found


def applied(old: NodePlan | None, change: PlanChange) -> NodePlan | None:
    """Return the plan that a change makes of `old`; None if it is not exactly the one that was meant."""
    if old is None or old.digest != change.base:
        return None
    targets: dict[str, Target] = {target.id: target for target in old.targets}
    order = change.order if change.order is not None else tuple(targets)
    for one in change.targets:
        targets[one.target.id] = _applied(targets.get(one.target.id), one)
    pods = {pod.uid: pod for pod in (*old.pods, *change.pods)}
    new = msgspec.structs.replace(
        old,
        generation=change.generation,
        digest=change.digest,
        targets=tuple(targets[id_] for id_ in order if id_ in targets),
        objectives=old.objectives if change.objectives is None else change.objectives,
        pods=tuple(pods[uid] for uid in sorted(pods.keys() - set(change.gone))),
    )
    return new if digest_of(new) == change.digest else None


def _applied(old: Target | None, change: TargetChange) -> Target:
    before = _lists(old)
    before += ((),) * (len(change.endpoints) - len(before))
    pairs = zip(before, change.endpoints, strict=False)
    return _with_lists(change.target, tuple(_changed(list_, edit) for list_, edit in pairs))


def _changed(endpoints: Endpoints, change: EndpointsChange) -> Endpoints:
    if not change.added and not change.removed:
        return endpoints
    return tuple(sorted({*endpoints} - {*change.removed} | {*change.added}, key=msgspec.structs.astuple))


def _lists(target: Target | None) -> tuple[Endpoints, ...]:
    """Return a target's lists of endpoints: its own, then those of its replicas that have one."""
    if target is None:
        return ()
    return (target.endpoints, *(group.endpoints for group in target.replicas if group.endpoints is not None))


def _with_lists(target: Target, lists: tuple[Endpoints, ...]) -> Target:
    """Return the target with other lists, in the order of `_lists`; missing ones are empty."""
    rest = iter(lists)
    own = next(rest, ())
    replicas = tuple(
        group if group.endpoints is None else msgspec.structs.replace(group, endpoints=next(rest, ()))
        for group in target.replicas
    )
    return msgspec.structs.replace(target, endpoints=own, replicas=replicas)


def _differences(old: tuple[Pod, ...], new: tuple[Pod, ...]) -> tuple[tuple[Pod, ...], tuple[str, ...]]:
    """Return the pods that are new or other ones, and the uids of those that are gone."""
    if old == new:  # as mostly: others' pods changed
        return (), ()
    known = {pod.uid: pod for pod in old}
    came = tuple(pod for pod in new if _differs(known.get(pod.uid), pod))
    return came, tuple(sorted(known.keys() - {pod.uid for pod in new}))


def _differs(old: object, new: object) -> bool:
    return old is not new and old != new


def _rest(old: NodePlan, new: NodePlan) -> NodePlan:
    """Return the old plan with all of the new one that a change can say."""
    said: Mapping[str, object] = {
        name: getattr(new, name) for name in ("generation", "digest", "targets", "objectives", "pods")
    }
    return msgspec.structs.replace(old, **said)
