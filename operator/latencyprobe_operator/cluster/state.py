"""The cluster as it is now: trimmed objects with the indices that planning and identities need.

Beside them what changed, so that the work of planning follows the change.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Set

from latencyprobe_operator.cluster.decoding import Trimmed
from latencyprobe_operator.cluster.objects import Key, Namespace, Node, Pod, Service, Slice, key_of


class Changes:
    """`namespaces`: those whose objects changed; `nodes`: that came or went; `pods_on`: nodes whose pods came, changed
    or went; `addresses`: of pods and Services that did."""

    def __init__(self) -> None:
        self.namespaces: set[str] = set()
        self.nodes: set[str] = set()
        self.pods_on: set[str] = set()
        self.addresses: set[str] = set()

    def __bool__(self) -> bool:
        return bool(self.namespaces or self.nodes)

    def add(self, later: "Changes") -> None:
        """Take later changes as well."""
        self.namespaces |= later.namespaces
        self.nodes |= later.nodes
        self.pods_on |= later.pods_on
        self.addresses |= later.addresses


class ClusterState:
    """Objects by kind and namespace, pods by node, pods and Services by address."""

    def __init__(self) -> None:
        self._kinds: dict[str, dict[str, dict[str, Trimmed]]] = defaultdict(dict)
        self._pods_on: dict[str, dict[str, Pod]] = {}  # by uid
        self._pods_at: dict[str, tuple[Pod, ...]] = {}
        self._services_at: dict[str, Service] = {}
        self._nodes_at: dict[str, str] = {}
        self._changes = Changes()

    def replace(self, kind: str, items: Iterable[Trimmed]) -> None:
        """Take a whole list: what is not in it is gone."""
        gone = {(ns, name) for ns, names in self._kinds[kind].items() for name in names}
        for item in items:
            gone.discard(key_of(item))
            self.put(kind, item)
        for key in gone:
            self.drop(kind, key)

    def put(self, kind: str, item: Trimmed) -> None:
        """Take an added or changed object. One that is equal in every field we read changes nothing."""
        ns, name = key_of(item)
        names = self._kinds[kind].setdefault(ns, {})
        old = names.get(name)
        if old == item:
            return
        if old is not None:
            self._unindex(old)
        names[name] = item
        self._index(item)
        if not (isinstance(item, Node) and isinstance(old, Node) and old.uid == item.uid):
            self._note(kind, ns, name)  # plans read which nodes there are, not their labels

    def drop(self, kind: str, key: Key) -> None:
        """Forget a deleted object."""
        names = self._kinds[kind].get(key[0], {})
        old = names.pop(key[1], None)
        if old is None:
            return
        if not names:
            del self._kinds[kind][key[0]]
        self._unindex(old)
        self._note(kind, *key)

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
        """Return the Service that owns a cluster address."""
        return self._services_at.get(address)

    def node_at(self, address: str) -> str:
        """Return the node that has an address, else an empty name."""
        return self._nodes_at.get(address, "")

    def _index(self, item: Trimmed) -> None:
        if isinstance(item, Pod):
            if item.node:
                self._pods_on.setdefault(item.node, {})[item.uid] = item
            for address in _own_addresses(item):
                self._pods_at[address] = (*self._pods_at.get(address, ()), item)
        elif isinstance(item, Service):
            for address in item.addresses:
                self._services_at[address] = item
        elif isinstance(item, Node):
            self._nodes_at.update(dict.fromkeys(item.addresses, item.name))
        self._note_owner(item)

    def _unindex(self, item: Trimmed) -> None:
        if isinstance(item, Pod):
            _drop_from(self._pods_on, item)
            for address in _own_addresses(item):
                others = tuple(pod for pod in self._pods_at.get(address, ()) if pod is not item)
                if others:
                    self._pods_at[address] = others
                else:
                    self._pods_at.pop(address, None)
        elif isinstance(item, Service):
            for address in item.addresses:
                if self._services_at.get(address) == item:
                    del self._services_at[address]
        elif isinstance(item, Node):
            for address in item.addresses:
                self._nodes_at.pop(address, None)
        self._note_owner(item)

    def _note_owner(self, item: Trimmed) -> None:
        if isinstance(item, Pod | Service):
            self._changes.addresses.update(item.addresses)
        if isinstance(item, Pod) and item.node:
            self._changes.pods_on.add(item.node)

    def _note(self, kind: str, namespace: str, name: str) -> None:
        if kind == "nodes":
            self._changes.nodes.add(name)
        else:
            self._changes.namespaces.add(name if kind == "namespaces" else namespace)


def _own_addresses(pod: Pod) -> tuple[str, ...]:
    """Return the addresses that are the pod's alone: none of the node's, and none that another may have by now."""
    return () if pod.host_network or pod.terminal else pod.addresses


def _drop_from(pods_on: dict[str, dict[str, Pod]], pod: Pod) -> None:
    here = pods_on.get(pod.node, {})
    if here.get(pod.uid) is pod:
        del here[pod.uid]
    if not here:
        pods_on.pop(pod.node, None)
