"""The API server's objects as they are sent, as far as they are read: what else they hold is skipped.

Lists may be null, as Go writes them.
"""

import msgspec


class _Wire(msgspec.Struct, rename="camel"):
    pass


class Owner(_Wire):
    """`metadata.ownerReferences[]`."""

    kind: str
    name: str
    controller: bool = False


class Meta(_Wire):
    """`metadata`, as far as we read it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: list[Owner] | None = None
    deletion_timestamp: str | None = None


class Condition(_Wire):
    """`status.conditions[]`, of pods and nodes."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


class Env(_Wire):
    """`env[]` of a container."""

    name: str
    value: str = ""


class Port(_Wire):
    """`ports[]` of a container, a Service or an EndpointSlice."""

    name: str | None = ""
    container_port: int = 0
    port: int | None = 0
    protocol: str | None = "TCP"


class Container(_Wire):
    """`spec.containers[]`, `spec.initContainers[]`. `restart_policy`: `Always` makes a sidecar of the latter."""

    name: str
    image: str = ""
    restart_policy: str | None = None
    env: list[Env] | None = None
    ports: list[Port] | None = None


class PodSpec(_Wire):
    """`spec` of a Pod."""

    node_name: str = ""
    host_network: bool = False
    containers: list[Container] | None = None
    init_containers: list[Container] | None = None


class Running(_Wire):
    """`state.running`: that it is there is all."""


class ContainerState(_Wire):
    """`state` of a container."""

    running: Running | None = None


class ContainerStatus(_Wire):
    """`status.containerStatuses[]` and its like."""

    name: str
    container_id: str = msgspec.field(name="containerID", default="")
    state: ContainerState = msgspec.field(default_factory=ContainerState)


class Ip(_Wire):
    """`status.podIPs[]`, `status.loadBalancer.ingress[]`."""

    ip: str = ""


class PodStatus(_Wire):
    """`status` of a Pod."""

    phase: str = ""
    pod_ips: list[Ip] | None = msgspec.field(name="podIPs", default=None)
    container_statuses: list[ContainerStatus] | None = None
    init_container_statuses: list[ContainerStatus] | None = None
    ephemeral_container_statuses: list[ContainerStatus] | None = None


class Pod(_Wire):
    """A Pod."""

    metadata: Meta
    spec: PodSpec
    status: PodStatus = msgspec.field(default_factory=PodStatus)


class Requirement(_Wire):
    """One of `matchFields[]`."""

    key: str = ""
    values: list[str] | None = None


class Term(_Wire):
    """One of `nodeSelectorTerms[]`."""

    match_fields: list[Requirement] | None = None


class NodeSelector(_Wire):
    """`requiredDuringSchedulingIgnoredDuringExecution`."""

    node_selector_terms: list[Term] | None = None


class NodeAffinity(_Wire):
    """`spec.affinity.nodeAffinity`."""

    required: NodeSelector | None = msgspec.field(name="requiredDuringSchedulingIgnoredDuringExecution", default=None)


class Affinity(_Wire):
    """`spec.affinity`."""

    node_affinity: NodeAffinity | None = None


class AgentSpec(_Wire):
    """`spec` of an agent's pod."""

    affinity: Affinity | None = None


class Waiting(_Wire):
    """`state.waiting`."""

    reason: str = ""


class Terminated(_Wire):
    """`state.terminated`, `lastState.terminated`."""

    exit_code: int = 0
    reason: str = ""


class AgentContainerState(_Wire):
    """`state`, `lastState` of an agent's container."""

    waiting: Waiting | None = None
    terminated: Terminated | None = None


class AgentContainerStatus(_Wire):
    """`status.containerStatuses[]` and its like of an agent's pod."""

    image: str = ""
    ready: bool = False
    state: AgentContainerState = msgspec.field(default_factory=AgentContainerState)
    last_state: AgentContainerState = msgspec.field(default_factory=AgentContainerState)


class AgentStatus(_Wire):
    """`status` of an agent's pod."""

    phase: str = ""
    reason: str = ""
    conditions: list[Condition] | None = None
    init_container_statuses: list[AgentContainerStatus] | None = None
    container_statuses: list[AgentContainerStatus] | None = None


class AgentPod(_Wire):
    """A pod of the agents' DaemonSet: what says why it does not run."""

    spec: AgentSpec
    status: AgentStatus = msgspec.field(default_factory=AgentStatus)


class Taint(_Wire):
    """`spec.taints[]` of a Node."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(_Wire):
    """`spec` of a Node."""

    taints: list[Taint] | None = None


class Address(_Wire):
    """`status.addresses[]` of a Node."""

    type: str
    address: str


class NodeStatus(_Wire):
    """`status` of a Node."""

    addresses: list[Address] | None = None
    conditions: list[Condition] | None = None


class Node(_Wire):
    """A Node."""

    metadata: Meta
    spec: NodeSpec = msgspec.field(default_factory=NodeSpec)
    status: NodeStatus = msgspec.field(default_factory=NodeStatus)


class ServiceSpec(_Wire):
    """`spec` of a Service."""

    cluster_ips: list[str] | None = msgspec.field(name="clusterIPs", default=None)
    ports: list[Port] | None = None


class LoadBalancer(_Wire):
    """`status.loadBalancer`."""

    ingress: list[Ip] | None = None


class ServiceStatus(_Wire):
    """`status` of a Service."""

    load_balancer: LoadBalancer = msgspec.field(default_factory=LoadBalancer)


class Service(_Wire):
    """A Service."""

    metadata: Meta
    spec: ServiceSpec
    status: ServiceStatus = msgspec.field(default_factory=ServiceStatus)


class TargetRef(_Wire):
    """`targetRef` of an endpoint."""

    kind: str = ""
    uid: str = ""


class Endpoint(_Wire):
    """`endpoints[]` of an EndpointSlice."""

    addresses: list[str] | None = None
    target_ref: TargetRef | None = None


class Slice(_Wire):
    """An EndpointSlice."""

    metadata: Meta
    endpoints: list[Endpoint] | None = None
    ports: list[Port] | None = None


class Object(_Wire):
    """Any object."""

    metadata: Meta
