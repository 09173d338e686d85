"""Replicas: pods of a target that are one application, on each node with all that reaches them.

Pure. What they say to each other on the target's ports (replication, gossip) is no RPC: the agent's rules leave it out.
"""

from collections import defaultdict
from collections.abc import Sequence, Set

import msgspec

from latencyprobe import plan
from latencyprobe_operator.cluster.objects import Pod
from latencyprobe_operator.plan.resources import replica_group


def replicas(reached: Sequence[tuple[Pod, plan.Endpoint]], known: Set[str]) -> dict[str, tuple[plan.Replicas, ...]]:
    """Return the replicas of each node. `reached`: a target's pods and what reaches them; `known`: nodes whose plan has
    all these endpoints.

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
    found: defaultdict[str, list[plan.Replicas]] = defaultdict(list)
    for group, of_it in sorted(pods.items()):
        if len(of_it) > 1:
            all_endpoints = tuple(sorted(endpoints[group], key=msgspec.structs.astuple))
            are_the_targets = len(all_endpoints) == in_all
            here: defaultdict[str, list[str]] = defaultdict(list)
            for pod in of_it.values():
                here[pod.node].append(pod.uid)
            for node, uids in here.items():
                again = None if are_the_targets and node in known else all_endpoints
                found[node].append(plan.Replicas(tuple(sorted(uids)), again))
    return {node: tuple(some) for node, some in found.items()}
