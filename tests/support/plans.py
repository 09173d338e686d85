"""Plans of a node, as the operator would write them."""

from msgspec.structs import replace

from latencyprobe.plan import Endpoint, NodePlan, Replicas, Role, SpanPolicy, Target, TargetPod

POLICY = SpanPolicy(slower_than_ns=100, ratio=0.1, max_per_second=10)
PODS = tuple(f"p{i}" for i in range(66))
ENDPOINTS = tuple(Endpoint(f"10.0.0.{i}", 0) for i in range(66))


def target(name="web", role=Role.SERVER, thresholds=(100,), **fields) -> Target:
    defaults = {"namespace": "shop", "probe": "cart", "probe_uid": "u", "setup_turns": 0, "spans": POLICY}
    return Target(id=f"shop/cart/{name}", name=name, role=role, thresholds_ns=thresholds, **{**defaults, **fields})


def of(namespace: str, name: str, **fields) -> Target:
    """Like `target()`, of another namespace."""
    return replace(target(name, namespace=namespace, probe="probe", **fields), id=f"{namespace}/probe/{name}")


def plan_of(*targets, **fields) -> NodePlan:
    return NodePlan(node="n1", generation=1, digest="", targets=targets, objectives=(), **fields)


def replicas_of(uids, ends) -> tuple[Replicas, ...]:
    return (Replicas(tuple(uids), tuple(Endpoint(address, port) for address, port in ends)),)


def greedy(namespace: str = "greedy") -> list[Target]:
    """One target without ports, which all pods of the namespace call, and 31 targets of 32 ports which they dial: each
    address takes a rule for each port."""
    dialled = (tuple(range(1000 + 32 * i, 1032 + 32 * i)) for i in range(31))
    return [
        of(namespace, "any", pods=tuple(TargetPod(uid, ()) for uid in PODS), callers=PODS, endpoints=ENDPOINTS),
        *(
            of(namespace, f"dial{i}", role=Role.CLIENT, pods=tuple(TargetPod(uid, ports) for uid in PODS))
            for i, ports in enumerate(dialled)
        ),
    ]
