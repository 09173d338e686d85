"""The node plan: what one agent has to measure, as the operator's planner or the standalone local plan writes it.

Frozen wire types: the directory streams them as JSON (`GET /v1/nodes/{node}/plan`), the agent keeps the last one on
disk and compiles it into kernel rules (`latencyprobe_agent.measure.rules`). Durations are integers in ns. Ids are
`namespace/probe/target` and `namespace/probe/objective`.
"""

import enum
from typing import Annotated

import msgspec

from latencyprobe.protocol import Protocol
from latencyprobe.stages import SERVER, StagesAs


class Role(enum.StrEnum):
    """Which end of the connection a target measures, or an objective judges."""

    SERVER = "Server"
    CLIENT = "Client"


DEFAULT_PAUSE_NS = 250_000_000  # docs/design/measurement.md, "State machine"


class _Wire(msgspec.Struct, frozen=True, omit_defaults=True):  # unknown fields are ignored: wire.py
    pass


class Container(_Wire, frozen=True):
    """A running container. `id`: 64 hex digits, without the runtime's `containerd://`. `resource`: attributes that it
    has instead of its pod's (its own `OTEL_SERVICE_NAME`, its image's version)."""

    name: str
    id: str
    resource: dict[str, str] = {}


class Pod(_Wire, frozen=True):
    """A pod of this node that is a target or a caller. `resource` holds the OpenTelemetry resource attributes of the
    pod (docs/design/directory.md, "Resource attributes") without the per-container ones (`k8s.container.name`,
    `container.id`, `service.instance.id`), which the agent adds."""

    uid: str
    namespace: str
    name: str
    addresses: tuple[str, ...]
    containers: tuple[Container, ...]
    resource: dict[str, str]


class TargetPod(_Wire, frozen=True):
    """A selected pod with the target's ports resolved in it (names differ from pod to pod). Role Server: local ports,
    `()` = every listening port. Role Client: the ports it dials."""

    uid: str
    ports: tuple[int, ...]


class Endpoint(_Wire, frozen=True):
    """An address that callers dial to reach a target: a pod's own, or a Service's whose EndpointSlice names that pod.
    `port` 0: any port of that address (a pod of a target without ports)."""

    address: str
    port: int
    service: str = ""  # name of the Service when it is one of its addresses


class Replicas(_Wire, frozen=True):
    """Pods of a target that are one application. `pods`: uids of those on this node. `endpoints`: what reaches any of
    them, wherever it runs; None: `Target.endpoints`, which is not sent twice."""

    pods: tuple[str, ...]
    endpoints: tuple[Endpoint, ...] | None = None


class SpanPolicy(_Wire, frozen=True):
    """Which exchanges become spans: slow, failed, a consistent share; `max_per_second` per node. With what `stages`."""

    slower_than_ns: int
    ratio: float
    max_per_second: int
    stages: StagesAs = StagesAs.SPANS


class WaitPolicy(_Wire, frozen=True):
    """Which waits of servers are recorded: in system calls, and for a CPU, that take longer; 0: none. `stacks`: with
    the kernel's stack; `user_stacks`: with the program's too."""

    slow_call_ns: int = 0
    slow_offcpu_ns: int = 0
    stacks: bool = False
    user_stacks: bool = False


class Target(_Wire, frozen=True):
    """One target of one LatencyProbe, as far as it concerns this node.

    `pods`: selected pods on this node. `callers`: uids of pods on this node whose client halves are wanted;
    `endpoints`: what they dial. With `NodePlan.host` both are empty: `ports` and `clients` say it all.
    `thresholds_ns`: ascending, distinct, at most 8. `evidence`: signals that explain its exchanges: names of the fields
    of `spec.evidence` that are on. `pause_ns`: without a byte either way, after which a message is no part of the turn
    before it. `setup_turns`: without those of `tls`. `replicas`: those whose traffic among each other is left out.
    `protocol`: connections that are none of HTTP/2 have turns.
    """

    id: str
    namespace: str
    probe: str
    probe_uid: str
    name: str
    role: Role
    thresholds_ns: tuple[int, ...]
    setup_turns: int
    spans: SpanPolicy
    pods: tuple[TargetPod, ...] = ()
    callers: tuple[str, ...] = ()
    endpoints: tuple[Endpoint, ...] = ()
    ports: tuple[int, ...] = ()
    clients: bool = False
    evidence: tuple[str, ...] = ()
    pause_ns: int = DEFAULT_PAUSE_NS
    tls: bool = False
    replicas: tuple[Replicas, ...] = ()
    waits: WaitPolicy = WaitPolicy()
    protocol: Protocol = Protocol.TURNS


class PlannedObjective(_Wire, frozen=True):
    """What a node counts for one objective; `slo.objective.Objective` is what becomes of the counts.

    `hash` identifies its definition (threshold, errors_count_as_bad, role): a new hash starts a new series. `goal` and
    `window` as in the spec, for display."""

    id: str
    target: str
    name: str
    perspective: Role
    threshold_index: int
    errors_count_as_bad: bool
    hash: str
    goal: str
    window: str
    min_events: int


class NodePlan(_Wire, frozen=True):
    """Everything for one node. `generation` only grows; `digest` is of all the rest, so that an unchanged plan is
    recognised. `host`: no pods, rules hold for every socket of the machine (standalone). `suspend`: an
    administrator has stopped all measuring, so not even programs without anything to measure shall be attached."""

    node: str
    generation: int
    digest: str
    targets: tuple[Target, ...]
    objectives: tuple[PlannedObjective, ...]
    pods: tuple[Pod, ...] = ()
    pair_key: bytes = b""  # 32 random bytes, base64 on the wire; never logged
    idle_timeout_ns: int = 2_000_000_000
    host: bool = False
    suspend: bool = False

    def __repr__(self) -> str:
        """Leave the pairing key out of logs."""
        return f"NodePlan(node={self.node!r}, generation={self.generation}, targets={len(self.targets)})"


NAME = 253  # characters: the longest name that Kubernetes allows
TraceId = Annotated[str, msgspec.Meta(pattern="^[0-9a-f]{32}$")]
LONGEST_NS = 1 << 50  # 13 days; thousands of them add up below 2^63
Natural = Annotated[int, msgspec.Meta(ge=0, le=LONGEST_NS)]
Name = Annotated[str, msgspec.Meta(max_length=NAME)]
Address = Annotated[str, msgspec.Meta(max_length=64)]  # the longest, an IPv6 one with a zone, has 61 characters


class Ask(_Wire, frozen=True):
    """Exchanges whose server halves are wanted (docs/design/measurement.md, "Remote join"). `address`: what their
    client dialled; empty on the way on to a server's agent. `spans`: the client halves are spans, so these shall be
    too.
    """

    keys: tuple[TraceId, ...]
    address: Address = ""
    spans: bool = False


class UnsentBytes(_Wire, frozen=True):
    """What an end had written and its kernel had not sent. `reason`, `bound`: codes, as in bpf/events.h."""

    reason: Annotated[int, msgspec.Meta(ge=1, lt=256)]
    size: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)]
    held_ns: Natural
    bound: Annotated[int, msgspec.Meta(ge=0, lt=256)] = 0


class ServerHalf(_Wire, frozen=True):
    """What a client's agent gets to know of the other half. `stages_ns`: in the order of `stages.SERVER`.

    Sizes are not told: the key is a hash over them, so they are equal. `service`, `namespace`, `pod`: as in its spans.
    `lost_ns`: what signals of evidence say that it lost, at most; `unsent`: what its kernel held of the response.
    """

    key: TraceId
    stages_ns: Annotated[tuple[Natural, ...], msgspec.Meta(min_length=len(SERVER), max_length=len(SERVER))]
    flags: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    srtt_us: Annotated[int, msgspec.Meta(ge=0, lt=1 << 32)] = 0
    service: Name = ""
    namespace: Name = ""
    pod: Name = ""
    lost_ns: Annotated[dict[Name, Natural], msgspec.Meta(max_length=8)] = {}
    unsent: UnsentBytes | None = None


class RemoteJoinMessage(_Wire, frozen=True):
    """Body of `POST /v1/remote-join`, and part of a plan line: what is wanted, and what was found for others."""

    asks: tuple[Ask, ...] = ()
    halves: tuple[ServerHalf, ...] = ()


class RemoteJoinAnswer(_Wire, frozen=True):
    """Keys that nobody will be asked for, with the reason; halves of the others may come in the plan stream."""

    refused: dict[str, str] = {}


class Identity(_Wire, frozen=True):
    """Owner of an address. `measured`: ids of the targets for which this pod's client half is measured by now."""

    address: str
    namespace: str = ""
    pod: str = ""
    uid: str = ""
    workload: str = ""
    service: str = ""  # service.name of the pod, or the Service's name for a Service address
    node: str = ""
    measured: tuple[str, ...] = ()


class IdentityRequest(_Wire, frozen=True):
    """Body of `POST /v1/identities`: at most `wire.MAX_ADDRESSES`."""

    addresses: tuple[Address, ...]


class PastIdentity(_Wire, frozen=True):
    """Who alone had an address until lately, from when until when: s before the answer."""

    identity: Identity
    began_ago_s: float
    ended_ago_s: float


class IdentityAnswer(_Wire, frozen=True):
    """Unknown addresses are answered with empty fields. Valid for `valid_s` and until the plan stream tells to forget
    an address. `told`: it will; else until the generation changes. `past`: of those that lately had another owner."""

    identities: tuple[Identity, ...]
    generation: int
    valid_s: float = 15.0
    told: bool = False
    past: tuple[PastIdentity, ...] = ()


class TargetStatus(_Wire, frozen=True):
    """What an agent sees of one target: exchanges by class, since its start. `refused`: why it, or part of it, is not
    measured; empty while it is. `lost`: empty, for operators that take no status without."""

    id: str
    seen: int
    classes: dict[str, int]
    lost: dict[str, int]
    refused: str = ""


class AgentStatus(_Wire, frozen=True):
    """Body of `POST /v1/nodes/{node}/status`: at start, on change, with a new plan stream, and every `wire.STATUS_S` or
    what that says. `variants`: by event; `error`: what is missing and what to do, empty while the agent measures.
    `spans_per_second`: what all LatencyProbes share, None where no spans are made; `spans_limited`: those
    (`namespace/probe`) that it left too few in the last minute; `safe_mode`: why the agent counts alone, empty while it
    does not; `untold`: by namespace, how many targets `targets` lacks. `boot_id`, `lost`: empty, for operators that
    take no status without."""

    instance: str
    boot_id: str
    version: str
    generation: int
    variants: dict[str, str]
    error: str
    targets: tuple[TargetStatus, ...]
    lost: dict[str, int]
    reason: str = ""  # stable CamelCase reason of `error`, such as KernelUnsupported
    failing: dict[str, str] = {}  # parts of the agent that raise and are skipped, and what they raise
    spans_per_second: int | None = None
    spans_limited: tuple[str, ...] = ()
    safe_mode: str = ""
    untold: dict[str, int] = {}
    refused: dict[str, str] = {}  # signals of evidence that cannot be attached, and why, with the remedy
    loading: tuple[str, ...] = ()  # signals of evidence that explain nothing yet
