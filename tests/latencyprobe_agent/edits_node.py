"""A node whose plan the operator's planner makes: its pods and connections, and a kernel that counts what they do. For
test_edits.py: of two LatencyProbes one is edited."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import numpy as np

from latencyprobe import parsing, spec
from latencyprobe_agent.directory.client import FakeDirectory
from latencyprobe_agent.directory.peers import Peers
from latencyprobe_agent.directory.remote_join import RemoteJoinPost
from latencyprobe_agent.kernel.programs import FakePrograms
from latencyprobe_agent.loop.control import FakeControl
from latencyprobe_agent.measure.counts import COUNTS
from latencyprobe_agent.measure.matches import ANY_ADDRESS, ANY_PORT, packed
from latencyprobe_agent.measure.rules import NO_RULES, Rules
from latencyprobe_agent.vocabulary.records import COUNTS_KEY, EXCHANGE, ExchangeClass, Excluded, Outcome, Role, RuleSide
from latencyprobe_operator.cluster.objects import Container, Namespace, Node, Pod, Service, Slice, SliceEndpoint
from latencyprobe_operator.cluster.state import ClusterState
from latencyprobe_operator.plan.planner import Planner

MS = 1_000_000
NEIGHBOUR: dict[str, Any] = {  # on the same sockets, never edited
    "targets": [{"name": "shared", "podSelector": {"matchLabels": {"app": "cart"}}, "peers": True}],
    "clients": {"scope": "Cluster"},
    "objectives": [
        {"name": "near", "target": "shared", "threshold": "10ms", "goal": "99", "errorsCountAsBad": False},
        {"name": "far", "target": "shared", "threshold": "25ms", "goal": "99", "perspective": "Client"},
    ],
}


def probe(name: str, document: dict[str, Any]) -> spec.LatencyProbe:
    metadata = {"name": name, "namespace": "shop", "uid": f"uid-{name}", "generation": 1}
    kind = {"apiVersion": "latencyprobe.dev/v1alpha1", "kind": "LatencyProbe"}
    return parsing.parse({**kind, "metadata": metadata, "spec": document})


class Half(NamedTuple):
    """One end of a connection, in `pod`. `port`: the local one of a server, of a client what it dialled."""

    pod: Pod
    side: RuleSide
    address: str
    port: int


def pod(number: int, app: str, tier: str, namespace: str = "shop") -> Pod:
    uid = f"00000000-0000-4000-8000-00000000000{number}"
    labels = {"app": app, "tier": tier}
    containers = (Container("main", f"{number:x}" * 64),)
    run_by = ("StatefulSet", f"{app}-{tier}")
    addresses = (f"10.0.0.{number}",)
    return Pod(uid, namespace, f"{app}-{number}", "n1", labels, addresses, containers, (), (), (), *run_by)


GOLDEN_CART, SILVER_CART, REPLICA = pod(1, "cart", "gold"), pod(2, "cart", "silver"), pod(6, "cart", "gold")
GOLDEN_WEB, SILVER_WEB = pod(3, "web", "gold"), pod(4, "web", "silver")
TELLER = pod(5, "web", "gold", "bank")
PODS = (GOLDEN_CART, SILVER_CART, REPLICA, GOLDEN_WEB, SILVER_WEB, TELLER)
SERVICE = Service("shop", "cart", ("10.96.0.7",), (("web", 80),))
CONNECTIONS = [  # (client, dialled address, dialled port, server, its port)
    (GOLDEN_WEB, "10.96.0.7", 80, GOLDEN_CART, 8080),
    (SILVER_WEB, "10.0.0.1", 8080, GOLDEN_CART, 8080),
    (GOLDEN_WEB, "10.0.0.2", 8081, SILVER_CART, 8081),
    (GOLDEN_WEB, "203.0.113.9", 9000, None, 0),
    (TELLER, "10.0.0.1", 8080, GOLDEN_CART, 8080),
    (GOLDEN_CART, "10.0.0.2", 9000, SILVER_CART, 9000),
    (REPLICA, "10.0.0.1", 8080, GOLDEN_CART, 8080),
]
EXCHANGES = [(1 * MS, Outcome.OK), (15 * MS, Outcome.RESET), (30 * MS, Outcome.OK), (60 * MS, Outcome.OK)]


def ends() -> Iterator[list[Half]]:
    """Both halves of each connection, of which a pod of this node is an end."""
    for client, address, port, server, local_port in CONNECTIONS:
        dialling = Half(client, RuleSide.PEER, address, port)
        yield [dialling, Half(server, RuleSide.LOCAL, client.addresses[0], local_port)] if server else [dialling]


def cluster() -> ClusterState:
    state = ClusterState()
    state.put("nodes", Node("uid-n1", "n1"))
    state.put("namespaces", Namespace("shop", cluster_scope=True))
    state.put("services", SERVICE)
    endpoints = (SliceEndpoint(GOLDEN_CART.uid, GOLDEN_CART.addresses),)
    state.put("endpointslices", Slice("shop", "cart-abc", "cart", (("web", 8080),), endpoints))
    for one in PODS:
        state.put("pods", one)
    return state


class Kernel(FakePrograms):
    """A set in force counts what its sockets do; the counts of others stay as they are."""

    def __init__(self, cgroups: dict[str, int], make_halves: Any) -> None:
        super().__init__()
        self.rows = defaultdict(lambda: np.zeros(1, COUNTS))
        self._cgroups = cgroups
        self._make_halves = make_halves
        self._records: list[dict[str, Any]] = []
        self._sequence = 0
        self.rules = NO_RULES
        self.when_told: Callable[[], object] = lambda: None

    def apply(self, rules: Rules, **_: object) -> None:
        self.when_told()  # sockets do not wait for the agent
        self.rules = rules

    def load(self) -> None:
        """Let each connection do its exchanges once."""
        for both in ends():
            for duration_ns, outcome in EXCHANGES:
                self._sequence += 1
                for half in both:
                    self._end(half, duration_ns, outcome)

    def _end(self, half: Half, duration_ns: int, outcome: Outcome) -> None:
        index, cgroup = self._set_of(half), self._cgroups[half.pod.uid]
        if not index:
            return
        role = Role.SERVER if half.side is RuleSide.LOCAL else Role.CLIENT
        total = self.rows[np.array((cgroup, index, role), COUNTS_KEY).tobytes()]
        if self._is_peer_traffic(half):
            total["classes"][0, ExchangeClass.PEER] += 1
            total["excluded"][0, Excluded.PEER] += 1
            return
        total["outcomes"][0, outcome] += 1
        total["classes"][0, ExchangeClass.PINGPONG] += 1
        total["histogram"][0, 300] += 1
        for place, threshold_ns in enumerate(self.rules.sets[index].thresholds_ns):
            total["within"][0, place] += duration_ns <= threshold_ns
            total["failed_within"][0, place] += duration_ns <= threshold_ns and outcome is not Outcome.OK
        stages = (0, 0, duration_ns, 0) if role is Role.SERVER else (0, duration_ns, 0, 0)
        fields = {"start_ns": time.clock_gettime_ns(time.CLOCK_BOOTTIME), "peer": half.address}
        fields |= {"target_set": index, "cgroup_id": cgroup, "outcome": outcome, "request_seq": self._sequence}
        self._records.append({"role": role, "stages": stages, **fields})

    def _set_of(self, half: Half) -> int:
        server_group, client_group = self.rules.scopes.get(self._cgroups[half.pod.uid], (0, 0))
        group = server_group if half.side is RuleSide.LOCAL else client_group
        addresses = [packed(half.address), ANY_ADDRESS] if half.side is RuleSide.PEER else [ANY_ADDRESS]
        keys = [(address, group, port, half.side) for address in addresses for port in (half.port, ANY_PORT)]
        return next((self.rules.rules[key] for key in keys if group and key in self.rules.rules), 0)

    def _is_peer_traffic(self, half: Half) -> bool:
        server_group, _ = self.rules.scopes[self._cgroups[half.pod.uid]]
        keys = [(packed(half.address), server_group, port, RuleSide.MEMBER) for port in (half.port, ANY_PORT)]
        return any(key in self.rules.rules for key in keys)

    def drain(self, limit: int) -> np.ndarray:
        some, self._records = self._records[:limit], self._records[limit:]
        return self._make_halves(*some).rec if some else np.zeros(0, EXCHANGE)


class Operator(FakeControl):
    """The plan that the planner makes."""

    def __init__(self) -> None:
        super().__init__(peers=Peers(None), remote_join=RemoteJoinPost(FakeDirectory().remote_join))
        self._planner, self._state = Planner(1000, b"k" * 32), cluster()

    def edit(self, document: dict[str, Any]) -> None:
        probes = {("shop", name): probe(name, one) for name, one in (("mine", document), ("neighbour", NEIGHBOUR))}
        self._planner.update(probes, self._state, self._state.take_changes())
        self.current = self._planner.plan_of("n1")
