"""The cluster as it is now: trimmed objects with the indices that planning and identities need.

Beside them what changed, so that the work of planning follows the change.
"""

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Set
from typing import NamedTuple, TypeVar

from msgspec import structs

from latencyprobe_operator.cluster.decoding import Trimmed
from latencyprobe_operator.cluster.namespace_room import ROOM, NamespaceRoom, size_of
from latencyprobe_operator.cluster.objects import Key, Namespace, Node, Pod, Service, Slice, key_of

K = TypeVar("K")
T = TypeVar("T")


class Left(NamedTuple):
    """That a pod has an address no more. `pod`: None where another claims it too; `at_s`: when that was told, by the
    state's clock."""

    address: str
    pod: Pod | None
    at_s: float


class Changes:
    """`namespaces`: those whose objects changed; `nodes`: that came or went; `pods_on`: nodes whose pods came, changed
    or went; `addresses`: of pods and Services that did, but for pods of which no more has changed than that their
    deletion was asked for, and of nodes whose addresses did; `left`: addresses that pods had, in this order."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.nodes: set[str] = set()
        self.pods_on: set[str] = set()
        self.addresses: set[str] = set()
        self.left: list[Left] = []

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.nodes)

    def add(self, later: "Changes") -> None:
        """Take later changes as well."""
        self.namespaces |= later.namespaces
        self.nodes |= later.nodes
        self.pods_on |= later.pods_on
        self.addresses |= later.addresses
        self.left += later.left


class ClusterState:
    """Objects by kind and namespace, pods by node, EndpointSlices by Service, pods, Services and nodes by address: all
    that claim it. `room`: how much of each namespace is kept; `clock`: in s."""

    def __init__(self, room: int = ROOM, clock: Callable[[], float] = time.monotonic) -> None:
        self.room = NamespaceRoom(room)
        self._kinds: dict[str, dict[str, dict[str, Trimmed]]] = defaultdict(dict)
        self._pods_on: dict[str, dict[str, Pod]] = {}  # by uid
        self._pods_at: dict[str, tuple[Pod, ...]] = {}
        self._services_at: dict[str, tuple[Service, ...]] = {}
        self._nodes_at: dict[str, tuple[Node, ...]] = {}
        self._slices_of: dict[Key, dict[str, Slice]] = {}  # by name
        self._changes = Changes()
        self._clock = clock

    def replace(self, kind: str, items: Collection[Trimmed]) -> None:
        """Take a whole list: what is not in it is gone."""
        known = {(ns, name) for ns, names in self._kinds[kind].items() for name in names}
        left_out = {(ns, name) for ns, names in self.room.left_out.items() for of, name in names if of == kind}
        for key in (known | left_out) - {key_of(item) for item in items}:
            self.drop(kind, key)
        for item in items:
            self.put(kind, item)

    def put(self, kind: str, item: Trimmed) -> None:
        """Take an added or changed object. One that is equal in every field we read changes nothing."""
        ns, name = key_of(item)
        names = self._kinds[kind].setdefault(ns, {})
        old = names.get(name)
        if old == item:
            return
        if ns and not self.room.take(ns, kind, name, size_of(item), size_of(old)):
            self._remove(kind, (ns, name))
            return
        if old is not None:
            self._unindex(old)
        names[name] = item
        self._index(item)
        self._note_owners(old, item)
        if isinstance(item, Node):
            known = old if isinstance(old, Node) else None
            self._changes.addresses |= {*item.addresses} ^ {*(known.addresses if known else ())}
            if known is not None and known.uid == item.uid:
                return  # plans read which nodes there are, not what they are like
        self._note(kind, ns, name)

    def drop(self, kind: str, key: Key) -> None:
        """Forget a deleted object."""
        old = self._kinds[kind].get(key[0], {}).get(key[1])
        was_left_out = bool(key[0]) and self.room.gone(key[0], kind, key[1], size_of(old))
        if old is not None or was_left_out:
            self._remove(kind, key)

    def lacks(self, kind: str) -> bool:
        """Return whether objects of a kind are missing here for which there may be room now."""
        return self.room.lacks(kind)

    def take_changes(self) -> Changes:
        """Return what changed since the last call."""
        changes, self._changes = self._changes, Changes()
        return changes

    def pods(self, namespace: str | None = None) -> Iterator[Pod]:
        """Iterate over the pods of a namespace, or of all."""
        spaces = self._kinds["pods"]
        for names in spaces.values() if namespace is None else (spaces.get(namespace, {}),):
            yield from names.values()  # type: ignore[misc]  # the kind fixes the type

    def pods_on(self, node: str) -> Iterable[Pod]:
        """Return the pods that are bound to a node."""
        return self._pods_on.get(node, {}).values()

    def nodes_with_pods(self) -> Set[str]:
        """Return the nodes that pods are bound to, known or not."""
        return self._pods_on.keys()

    def pod(self, key: Key) -> Pod | None:
        """Return a pod by namespace and name."""
        return self._kinds["pods"].get(key[0], {}).get(key[1])  # type: ignore[return-value]  # the kind fixes the type

    def services(self, namespace: str) -> dict[str, Service]:
        """Return the Services of a namespace by name."""
        return self._kinds["services"].get(namespace, {})  # type: ignore[return-value]  # the kind fixes the type

    def slices(self, namespace: str) -> Iterable[Slice]:
        """Return the EndpointSlices of a namespace."""
        return self._kinds["endpointslices"].get(namespace, {}).values()  # type: ignore[return-value]  # as above

    def slices_of(self, service: Service) -> Iterable[Slice]:
        """Return the EndpointSlices that say they are a Service's."""
        return self._slices_of.get(key_of(service), {}).values()

    def nodes(self) -> dict[str, Node]:
        """Return the nodes by name."""
        return self._kinds["nodes"].get("", {})  # type: ignore[return-value]  # the kind fixes the type

    def namespace(self, name: str) -> Namespace | None:
        """Return a namespace; None while it is unknown."""
        return self._kinds["namespaces"].get("", {}).get(name)  # type: ignore[return-value]  # the kind fixes the type

    def pods_at(self, address: str) -> Iterable[Pod]:
        """Return the pods that claim an address as their own (never host-network or ended ones)."""
        return self._pods_at.get(address, ())

    def service_at(self, address: str) -> Service | None:
        """Return the Service whose address it is; None of one that several share, or a node has."""
        return None if address in self._nodes_at else _only(self._services_at, address)

    def node_at(self, address: str) -> str:
        """Return the node that has an address; an empty name of one that nobody has, or several say they have."""
        node = _only(self._nodes_at, address)
        return node.name if node is not None else ""

    def _remove(self, kind: str, key: Key) -> None:
        """Take an object out, if it is there."""
        names = self._kinds[kind].get(key[0], {})
        old = names.pop(key[1], None)
        if not names:
            self._kinds[kind].pop(key[0], None)
        if old is not None:
            self._unindex(old)
            self._note_owners(old, None)
        if isinstance(old, Node):
            self._changes.addresses.update(old.addresses)
        self._note(kind, *key)

    def _index(self, item: Trimmed) -> None:
        if isinstance(item, Pod):
            if item.node:
                self._pods_on.setdefault(item.node, {})[item.uid] = item
            _claim(self._pods_at, _own_addresses(item), item)
        elif isinstance(item, Service):
            _claim(self._services_at, {*item.addresses, *item.balancers}, item)
        elif isinstance(item, Node):
            _claim(self._nodes_at, {*item.addresses}, item)
        elif isinstance(item, Slice):
            self._slices_of.setdefault((item.namespace, item.service), {})[item.name] = item

    def _unindex(self, item: Trimmed) -> None:
        if isinstance(item, Pod):
            _drop_from(self._pods_on, item.node, item.uid, item)
            _release(self._pods_at, _own_addresses(item), item)
        elif isinstance(item, Service):
            _release(self._services_at, {*item.addresses, *item.balancers}, item)
        elif isinstance(item, Node):
            _release(self._nodes_at, {*item.addresses}, item)
        elif isinstance(item, Slice):
            _drop_from(self._slices_of, (item.namespace, item.service), item.name, item)

    def _note_owners(self, old: Trimmed | None, new: Trimmed | None) -> None:
        for pod in (one for one in (old, new) if isinstance(one, Pod) and one.node):
            self._changes.pods_on.add(pod.node)
        if isinstance(old, Pod) and isinstance(new, Pod) and self._only_ends(old, new):
            return
        for item in (one for one in (old, new) if isinstance(one, Pod | Service)):
            self._changes.addresses.update(item.addresses)
            if isinstance(item, Service):
                self._changes.addresses.update(item.balancers)
        if isinstance(old, Pod):
            self._note_left(old, new if isinstance(new, Pod) and new.uid == old.uid else None)

    def _note_left(self, old: Pod, new: Pod | None) -> None:
        kept = () if new is None else _own_addresses(new)
        for address in _own_addresses(old):
            if address not in kept:
                alone = not any(pod.uid != old.uid for pod in self._pods_at.get(address, ()))
                self._changes.left.append(Left(address, old if alone else None, self._clock()))

    def _only_ends(self, old: Pod, new: Pod) -> bool:
        """Return whether a pod is the only one at its addresses, as before, and no more has changed than that its
        deletion was asked for: until it has ended it makes and answers RPCs."""
        return structs.replace(old, terminating=new.terminating) == new and all(
            len(self._pods_at.get(address, ())) <= 1 for address in new.addresses
        )

    def _note(self, kind: str, namespace: str, name: str) -> None:
        if kind == "nodes":
            self._changes.nodes.add(name)
        else:
            self._changes.namespaces.add(name if kind == "namespaces" else namespace)


def _own_addresses(pod: Pod) -> tuple[str, ...]:
    """Return the addresses that are the pod's alone: none of the node's, and none that another may have by now."""
    return () if pod.host_network or pod.terminal else pod.addresses


def _claim(index: dict[str, tuple[T, ...]], addresses: Iterable[str], item: T) -> None:
    for address in addresses:
        index[address] = (*index.get(address, ()), item)


def _release(index: dict[str, tuple[T, ...]], addresses: Iterable[str], item: T) -> None:
    for address in addresses:
        others = tuple(one for one in index.get(address, ()) if one is not item)
        if others:
            index[address] = others
        else:
            index.pop(address, None)


def _only(index: dict[str, tuple[T, ...]], address: str) -> T | None:
    found = index.get(address, ())
    return found[0] if len(found) == 1 else None


def _drop_from(index: dict[K, dict[str, T]], key: K, name: str, item: T) -> None:
    here = index.get(key, {})
    if here.get(name) is item:
        del here[name]
    if not here:
        index.pop(key, None)
