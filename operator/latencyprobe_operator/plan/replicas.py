"""Replicas: pods of a target that are one application, on each node with all that reaches them.

Pure. What they say to each other on the target's ports (replication, gossip) is no RPC: the agent's rules leave it out.
"""

from collections import defaultdict
from collections.abc import Sequence

import msgspec

from latencyprobe import plan
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.resources import replica_group


class Group(msgspec.Struct, frozen=True):
    """Replicas of one node. `pods`: their uids; `endpoints`: what reaches any replica, wherever it runs; `all`: these
    are the target's."""

    pods: tuple[str, ...]
    endpoints: tuple[plan.Endpoint, ...]
    all: bool

    def planned(self, *, known: bool) -> plan.Replicas:
        """Return them as a node's plan has them. `known`: it has the target's endpoints anyway."""
        return plan.Replicas(self.pods, None if self.all and known else self.endpoints)


def replicas(reached: Sequence[tuple[Pod, plan.Endpoint]]) -> dict[str, tuple[Group, ...]]:
    """Return the replicas of each node. `reached`: a target's pods and what reaches them.

    A pod in the host's network is none: others share its address. Neither is one that runs alone.
    """
    pods: defaultdict[tuple[str, ...], dict[str, Pod]] = defaultdict(dict)
    endpoints: defaultdict[tuple[str, ...], set[plan.Endpoint]] = defaultdict(set)
    for pod, endpoint in reached:
        group = replica_group(pod)
        if group is not None and not pod.host_network:
            pods[group][pod.uid] = pod
            endpoints[group].add(endpoint)
    in_all = len({endpoint for _, endpoint in reached})
    found: defaultdict[str, list[Group]] = defaultdict(list)
    for group, of_it in sorted(pods.items()):
        if len(of_it) > 1:
            all_endpoints = tuple(sorted(endpoints[group], key=msgspec.structs.astuple))
            here: defaultdict[str, list[str]] = defaultdict(list)
            for pod in of_it.values():
                here[pod.node].append(pod.uid)
            for node, uids in here.items():
                found[node].append(Group(tuple(sorted(uids)), all_endpoints, len(all_endpoints) == in_all))
    return {node: tuple(some) for node, some in found.items()}
