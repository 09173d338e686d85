"""Which sockets of which pod belong to which targets, as a plan says it: address, port and side. Pure."""

import ipaddress
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from itertools import chain
from typing import NamedTuple, TypeVar

from latencyprobe.plan import Endpoint, NodePlan, Role, Target
from latencyprobe_agent.vocabulary.records import RuleSide

T = TypeVar("T")

ANY_ADDRESS = bytes(16)
ANY_PORT = 0
HOST = ""  # in place of a pod's uid where rules hold for every socket of the machine

Match = tuple[bytes, int, RuleSide]  # address, port, side
Matches = Mapping[Match, frozenset[str]]  # target ids
End = tuple[bytes, int]  # address, port of a server


class Part(NamedTuple):
    """What one side of a pod's sockets belongs to: equal for pods that share a group of rules.

    `matches`: with target ids; `replicas`: ends that are replicas of this pod, itself included, with target ids.
    """

    matches: frozenset[tuple[Match, frozenset[str]]]
    replicas: frozenset[tuple[End, frozenset[str]]] = frozenset()


class _Asked(NamedTuple):
    """What a target wants of a pod, and by its place in the plan which target: pods of which the same is wanted share
    their parts. `ports`: of a pod that it selects; `replicas`: place in `Target.replicas`; neither: it calls."""

    target: int
    ports: tuple[int, ...] | None = None
    replicas: int | None = None


def parts_of(plan: NodePlan, without: Set[str] = frozenset()) -> dict[str, tuple[Part, Part]]:
    """Return what the server's and the client's sockets of each pod (by uid), or of HOST, belong to; `without` these
    targets (ids). Raises ValueError for an endpoint of another whose address is none."""
    if plan.host:
        matches = _host_matches(target for target in plan.targets if target.id not in without)
        return {HOST: (_part(matches, RuleSide.LOCAL), _part(matches, RuleSide.PEER))}
    asked: dict[str, list[_Asked]] = defaultdict(list)
    for at, target in enumerate(plan.targets):
        if target.id not in without:
            for pod in target.pods:
                asked[pod.uid].append(_Asked(at, pod.ports or (ANY_PORT,)))
            for uid in target.callers:
                asked[uid].append(_Asked(at))
            for number, replicas in enumerate(target.replicas):
                for uid in replicas.pods:
                    asked[uid].append(_Asked(at, replicas=number))
    ends = [frozenset() if one.id in without else frozenset(_ends(one.endpoints)) for one in plan.targets]
    made: dict[tuple[_Asked, ...], tuple[Part, Part]] = {}
    for of_pod in map(tuple, asked.values()):
        if of_pod not in made:
            made[of_pod] = _parts(plan.targets, of_pod, ends)
    return {uid: made[tuple(of_pod)] for uid, of_pod in asked.items()}


def _parts(targets: Sequence[Target], asked: Iterable[_Asked], ends: Sequence[Set[End]]) -> tuple[Part, Part]:
    """Return the parts of pods of which this is wanted. `ends`: what callers of each target dial."""
    matches: dict[Match, set[str]] = defaultdict(set)
    replicas: dict[End, set[str]] = defaultdict(set)
    for one in asked:
        target = targets[one.target]
        if one.replicas is not None:
            endpoints = target.replicas[one.replicas].endpoints
            for end in ends[one.target] if endpoints is None else _ends(endpoints):
                replicas[end].add(target.id)
        elif one.ports is None:
            for address, port in ends[one.target]:
                matches[address, port, RuleSide.PEER].add(target.id)
        else:
            side = RuleSide.LOCAL if target.role is Role.SERVER else RuleSide.PEER
            for port in one.ports:
                matches[ANY_ADDRESS, port, side].add(target.id)
    server = _part(matches, RuleSide.LOCAL)
    return server._replace(replicas=_shared(replicas)), _part(matches, RuleSide.PEER)


def unreadable(plan: NodePlan) -> dict[str, str]:
    """Return the targets (ids) with an endpoint whose address is none, and what it is."""
    found: dict[str, str] = {}
    for target in plan.targets:
        of_replicas = (endpoint for group in target.replicas for endpoint in group.endpoints or ())
        for endpoint in chain(target.endpoints, of_replicas):
            try:
                packed(endpoint.address)
            except ValueError:
                found[target.id] = endpoint.address
                break
    return found


def _ends(endpoints: Iterable[Endpoint]) -> Iterator[End]:
    return ((packed(endpoint.address), endpoint.port) for endpoint in endpoints)


def _part(matches: Mapping[Match, Set[str]], side: RuleSide) -> Part:
    return Part(_shared({match: ids for match, ids in matches.items() if match[2] is side}))


def _shared(asked: Mapping[T, Set[str]]) -> frozenset[tuple[T, frozenset[str]]]:
    """Return what is asked for, equal targets (ids) as one object."""
    one: dict[frozenset[str], frozenset[str]] = {}
    return frozenset((what, one.setdefault(same, same)) for what, ids in asked.items() for same in [frozenset(ids)])


def with_wildcards(matches: Matches) -> Matches:
    """Add to every match the targets of the wildcards that cover it: the kernel stops at its first, most exact hit.

    It looks up (address, port), (address, any), (any, port), (any, any).
    """
    ports = [(port, side) for address, port, side in matches if address == ANY_ADDRESS]
    exact = set(matches)
    for address, port, side in matches:
        if port == ANY_PORT:  # would hide (any address, port) for this address: make their crossings exact
            exact.update((address, p, side) for p, of in ports if of is side)
    unions: dict[tuple[frozenset[str], ...], frozenset[str]] = {}  # thousands of matches have a few

    def union(address: bytes, port: int, side: RuleSide) -> frozenset[str]:
        keys = ((a, p, side) for a in (address, ANY_ADDRESS) for p in (port, ANY_PORT))
        found = tuple(matches[key] for key in keys if key in matches)
        if found not in unions:
            unions[found] = frozenset().union(*found)
        return unions[found]

    return {match: union(*match) for match in exact}


def packed(address: str) -> bytes:
    """Return an address as records hold it: 16 bytes, IPv4 mapped. Raises ValueError for what is no address."""
    ip = ipaddress.ip_address(address)
    return ip.packed if ip.version == 6 else b"\0" * 10 + b"\xff\xff" + ip.packed


def _host_matches(targets: Iterable[Target]) -> Mapping[Match, Set[str]]:
    matches: dict[Match, set[str]] = defaultdict(set)
    for target in targets:
        if target.role is Role.SERVER:
            for port in target.ports or (ANY_PORT,):
                matches[ANY_ADDRESS, port, RuleSide.LOCAL].add(target.id)
            # without ports nothing shows which of the other end's sockets dial this target
            for port in target.ports if target.clients else ():
                matches[ANY_ADDRESS, port, RuleSide.PEER].add(target.id)
        else:
            for port in target.ports or (ANY_PORT,):
                matches[ANY_ADDRESS, port, RuleSide.PEER].add(target.id)
    return matches
