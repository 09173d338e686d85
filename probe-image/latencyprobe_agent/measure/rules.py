"""Compile a node plan into the kernel's look-up tables: which socket belongs to which targets.

Receives a plan and the cgroups of its pods, returns `Rules`. A socket finds its group by its cgroup and its rule by
(address, group, port, side); pods with equal rules share a group, so callers x endpoints do not multiply. Several
targets may match one socket: each distinct combination is a target set. docs/design/directory.md, "Rules and target
sets".
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from operator import or_
from typing import Any

from latencyprobe.plan import DEFAULT_PAUSE_NS, NodePlan, SpanPolicy, Target, WaitPolicy
from latencyprobe.protocol import Protocol
from latencyprobe.stages import StagesAs
from latencyprobe_agent.measure.matches import HOST, Match, Part, with_wildcards
from latencyprobe_agent.measure.room import ROOM, Room, fitting, followed
from latencyprobe_agent.vocabulary.records import THRESHOLDS, EvidenceFlags, RuleSide

NO_EVIDENCE = EvidenceFlags(0)
NO_WAITS = WaitPolicy()

_A_MEMBER = 1  # in place of a target set: of these the kernel asks only whether there is a rule
_TLS_TURNS = 2  # that of the ClientHello, and one whose answer may hold session tickets
MAX_SETS = 1022  # the array `target_sets` of bpf/maps.bpf.h, without index 0 and the canary's

Group = frozenset[tuple[Match, int]]  # what pods with equal rules share: match and target set


@dataclass(frozen=True)
class TargetSet:
    """The targets (ids, in the plan's order) that one socket belongs to.

    `thresholds_ns`: those of all of them, ascending, distinct, at most 8. `spans`: the widest of their policies.
    `probe`: `namespace/probe` of the first, whose span budget the set draws on. `evidence`: what any of them asks for.
    `setup_turns`: the most of theirs, those of TLS included. `pause_ns`: the longest of theirs, which takes no part of
    a turn for a new one. `waits`: the widest of their policies. `protocol`: HTTP2 if one of them says so. `tls`: one of
    them does.
    """

    targets: tuple[str, ...]
    thresholds_ns: tuple[int, ...]
    setup_turns: int
    spans: SpanPolicy
    probe: str
    evidence: EvidenceFlags = NO_EVIDENCE
    pause_ns: int = DEFAULT_PAUSE_NS
    waits: WaitPolicy = NO_WAITS
    protocol: Protocol = Protocol.TURNS
    tls: bool = False

    @property
    def namespace(self) -> str:
        """That of `probe`: of the room of the node, whose share the set draws on."""
        return self.probe.partition("/")[0]


@dataclass(frozen=True)
class Rules:
    """Everything that the kernel must know of a plan.

    `scopes`: cgroup id → (server group, client group), 0 = none. `rules`: (16-byte address, group, port, side) → index
    of a target set; those of side MEMBER are in server groups, for both ends. `host`: groups of all sockets in no
    scope. `sets`: index (from 1) → target set; sets that no rule names any more stay, before those in force, as late
    records and counts do name them. `refused`: target id → why part of it is not measured. `pods`: groups by uid, as in
    `scopes`; `left_out`: those of `refused` whatever cgroups there are.
    """

    scopes: Mapping[int, tuple[int, int]] = field(default_factory=dict)
    rules: Mapping[tuple[bytes, int, int, RuleSide], int] = field(default_factory=dict)
    sets: Mapping[int, TargetSet] = field(default_factory=dict)
    host: tuple[int, int] = (0, 0)
    refused: Mapping[str, str] = field(default_factory=dict)
    groups: Mapping[Group, int] = field(default_factory=dict)
    next_group: int = 1
    pods: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)

    @cached_property
    def in_force(self) -> Mapping[int, TargetSet]:
        """Those of `sets` that rules name, by index. Those of side MEMBER name none."""
        named = {index for (*_, side), index in self.rules.items() if side is not RuleSide.MEMBER}
        return {index: self.sets[index] for index in named}

    def used_again(self, before: "Rules") -> set[int]:
        """Return the indexes of sets that were another set's `before`."""
        return {index for index, one in self.sets.items() if before.sets.get(index, one) != one}


NO_RULES = Rules()


def compile_rules(
    plan: NodePlan, cgroups: Mapping[str, Sequence[int]], previous: Rules = NO_RULES, room: Room = ROOM
) -> Rules:
    """Compile `plan`. `cgroups`: pod uid → ids of the cgroups at or below the pod's folder, the outermost first.

    With `previous`, what is in force: equal sets and groups keep their numbers and no number gets a new meaning, so the
    tables can be changed in place while sockets look rules up.
    """
    parts, refused = fitting(plan, room)
    numbering = _Numbering(plan.targets, previous, refused)
    groups = {uid: (numbering.group(server), numbering.group(client)) for uid, (server, client) in parts.items()}
    compiled = Rules(
        rules={
            (address, number, port, side): index
            for group, number in numbering.groups.items()
            for (address, port, side), index in group
        },
        sets=numbering.sets,
        host=groups.get(HOST, (0, 0)),
        groups=numbering.groups,
        next_group=numbering.next_group,
        pods=groups,
        left_out=numbering.refused,
    )
    return followed_in(compiled, plan, cgroups, room)


def followed_in(rules: Rules, plan: NodePlan, cgroups: Mapping[str, Sequence[int]], room: Room = ROOM) -> Rules:
    """Return the rules that `plan` was compiled to, with other cgroups: in time that follows the cgroups, not the
    plan."""
    measured = {uid: cgroups[uid] for uid, pair in rules.pods.items() if any(pair) and uid in cgroups}
    scoped, in_part = followed(plan, measured, room)
    scopes = {cgroup: rules.pods[uid] for uid, ids in scoped.items() for cgroup in ids}
    return replace(rules, scopes=scopes, refused={**in_part, **rules.left_out})


class _Numbering:
    """Gives target sets and groups their numbers, those of the rules in force first."""

    def __init__(self, targets: Iterable[Target], previous: Rules, refused: Mapping[str, str]) -> None:
        self._targets = {t.id: t for t in targets}
        self._order = {target: order for order, target in enumerate(self._targets)}
        self._previous = previous
        self._live: dict[TargetSet, int] = {}
        self._known = {target_set: index for index, target_set in previous.sets.items()}
        self._indexes: dict[frozenset[str], int] = {}
        self._numbers: dict[Part, int] = {}
        self.groups: dict[Group, int] = {}
        self.next_group = previous.next_group
        self.refused = dict(refused)

    @property
    def sets(self) -> dict[int, TargetSet]:
        live = {index: s for s, index in self._live.items()}
        return {index: s for index, s in self._previous.sets.items() if index not in live} | live

    def group(self, part: Part) -> int:
        """Number of the group with these matches and replicas, 0 for none."""
        if part not in self._numbers:
            self._numbers[part] = self._number(part)
        return self._numbers[part]

    def _number(self, part: Part) -> int:
        numbered = ((match, self._set(ids)) for match, ids in with_wildcards(dict(part.matches)).items())
        group = frozenset((match, index) for match, index in numbered if index)
        group |= {((*end, RuleSide.MEMBER), _A_MEMBER) for end, _ in part.replicas}
        if not group:
            return 0
        if group not in self.groups:
            self.groups[group] = self._previous.groups.get(group, self.next_group)
            self.next_group = max(self.next_group, self.groups[group] + 1)
        return self.groups[group]

    def _set(self, ids: frozenset[str]) -> int:
        if ids not in self._indexes:
            self._indexes[ids] = self._index(ids)
        return self._indexes[ids]

    def _index(self, ids: frozenset[str]) -> int:
        target_set = self._merge([self._targets[one] for one in sorted(ids, key=self._order.__getitem__)])
        if target_set not in self._live:
            known = self._known.get(target_set, 0)
            taken = known in self._live.values()  # by another one, in this plan
            self._live[target_set] = known if known and not taken else self._free_index()
        return self._live[target_set]

    def _free_index(self) -> int:
        """Return a number that never had a meaning, else one whose set is gone: `Room.sets` leaves one."""
        fresh = max([0, *self._previous.sets, *self._live.values()]) + 1
        if fresh <= MAX_SETS:
            return fresh
        taken = {*self._live.values(), *self._previous.in_force}
        return next(index for index in range(1, MAX_SETS + 1) if index not in taken)

    def _merge(self, targets: Sequence[Target]) -> TargetSet:
        members: list[Target] = []
        thresholds: set[int] = set()
        for target in targets:
            if len(thresholds.union(target.thresholds_ns)) > THRESHOLDS:
                with_ids = ", ".join(t.id for t in members)
                self.refused[target.id] = (
                    f"shares sockets with {with_ids}, and together they have more than {THRESHOLDS} thresholds: "
                    "give their objectives common thresholds"
                )
                continue
            members.append(target)
            thresholds.update(target.thresholds_ns)
        return TargetSet(
            targets=tuple(t.id for t in members),
            thresholds_ns=tuple(sorted(thresholds)),
            setup_turns=max(t.setup_turns + (_TLS_TURNS if t.tls else 0) for t in members),
            spans=_widest([t.spans for t in members]),
            probe=f"{members[0].namespace}/{members[0].probe}",
            evidence=_flags({name for t in members for name in t.evidence}),
            pause_ns=max(t.pause_ns for t in members),
            protocol=Protocol.HTTP2 if any(t.protocol is Protocol.HTTP2 for t in members) else Protocol.TURNS,
            waits=WaitPolicy(
                slow_call_ns=min((t.waits.slow_call_ns for t in members if t.waits.slow_call_ns), default=0),
                slow_offcpu_ns=min((t.waits.slow_offcpu_ns for t in members if t.waits.slow_offcpu_ns), default=0),
                stacks=any(t.waits.stacks for t in members),
                user_stacks=any(t.waits.user_stacks for t in members),
            ),
            tls=any(t.tls for t in members),
        )


def _flags(evidence: Iterable[str]) -> EvidenceFlags:
    """Return the flags of evidence; a newer operator may ask for some that this agent has not."""
    known = (EvidenceFlags.__members__.get(name.upper(), NO_EVIDENCE) for name in evidence)
    return reduce(or_, known, NO_EVIDENCE)


_WIDER: Mapping[str, Callable[..., Any]] = {
    "slower_than_ns": min,
    "ratio": max,
    "max_per_second": max,
    "stages": partial(max, key=list(StagesAs).index),
}


def _widest(policies: Sequence[SpanPolicy]) -> SpanPolicy:
    """Return the policy that lets through whatever one of them does."""
    fields = SpanPolicy.__struct_fields__
    return SpanPolicy(**{name: _WIDER[name](getattr(policy, name) for policy in policies) for name in fields})
