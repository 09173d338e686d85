"""The LatencyProbe resource: frozen structs whose types say what one field can hold, and what its values mean.

parsing.py makes them of a document and holds the rules that take several fields; crds/latencyprobe.yaml says the same.
"""

import re
from collections.abc import Mapping
from decimal import Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from latencyprobe.api import API_VERSION
from latencyprobe.plan import Role
from latencyprobe.protocol import Protocol
from latencyprobe.stages import StagesAs

MAX_DURATION_NS = 3_600_000_000_000
PAUSES_NS = range(10_000_000, 600_000_000_000 + 1)
_UNIT_NS = {"ns": 1, "us": 1_000, "ms": 1_000_000, "s": 1_000_000_000, "m": 60_000_000_000}

# \Z and not $, which would let a final newline pass.
_DURATION = r"^[1-9][0-9]{0,8}(ns|us|ms|s|m)\Z"
_LABEL_NAME = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)"
_LABEL_KEY = rf"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?{_LABEL_NAME}\Z"

Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?\Z", max_length=63)]
Duration = Annotated[str, Meta(pattern=_DURATION)]
Port = (
    Annotated[int, Meta(ge=1, le=65535)]
    | Annotated[str, Meta(pattern=r"^(?=.*[a-z])[a-z0-9]+(-[a-z0-9]+)*\Z", max_length=15)]
)
LabelKey = Annotated[str, Meta(pattern=_LABEL_KEY, max_length=317)]
LabelValue = Annotated[str, Meta(pattern=rf"^{_LABEL_NAME}?\Z", max_length=63)]


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class LabelRequirement(_Spec, frozen=True):
    """One `matchExpressions` entry."""

    key: LabelKey
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: Annotated[tuple[LabelValue, ...], Meta(max_length=32)] = ()


class LabelSelector(_Spec, frozen=True):
    """A Kubernetes label selector; empty selects all."""

    match_labels: Annotated[dict[Annotated[str, Meta(max_length=317)], LabelValue], Meta(max_length=16)] = {}
    match_expressions: Annotated[tuple[LabelRequirement, ...], Meta(max_length=16)] = ()


class TargetSpec(_Spec, frozen=True):
    """`spec.targets[]`. `ports`: container port names or numbers; empty = every listening port. `pause`: a duration.
    `tls` None: by the ports. `peers`: what replicas say to each other counts too. `protocol`: how the RPCs on a
    connection are told from each other.
    """

    name: Name
    pod_selector: LabelSelector = LabelSelector()
    ports: Annotated[tuple[Port, ...], Meta(max_length=32)] = ()
    role: Role = Role.SERVER
    setup_turns: Annotated[int, Meta(ge=0, le=8)] = 0
    pause: Duration = "250ms"
    tls: bool | None = None
    peers: bool = False
    protocol: Protocol = Protocol.TURNS


class ClientsSpec(_Spec, frozen=True):
    """`spec.clients`: whose halves are measured too, for targets of role Server."""

    scope: Literal["None", "Namespace", "Cluster"] = "Namespace"
    pod_selector: LabelSelector = LabelSelector()


class ObjectiveSpec(_Spec, frozen=True):
    """`spec.objectives[]`. `threshold` and `window` are durations, `goal` a decimal percent string."""

    name: Name
    target: Name
    threshold: Duration
    goal: Annotated[str, Meta(pattern=r"^(?!0+(\.0+)?\Z)[0-9]{1,2}(\.[0-9]{1,5})?\Z")]
    window: Literal["1d", "7d", "28d", "30d", "90d"] = "28d"
    perspective: Role | None = None
    min_events: Annotated[int, Meta(ge=1, le=1_000_000_000)] = 100
    errors_count_as_bad: bool = True


class SpansSpec(_Spec, frozen=True):
    """`spec.spans`. `slower_than` None: the target's smallest threshold, else 100ms. `stages`: how spans show them."""

    slower_than: Duration | None = None
    ratio: Annotated[str, Meta(pattern=r"^(0(\.[0-9]{1,6})?|1(\.0+)?)\Z", max_length=8)] = "0.01"
    max_per_second: Annotated[int, Meta(ge=0, le=100_000)] = 100
    stages: StagesAs = StagesAs.SPANS


class SyscallsSpec(_Spec, frozen=True):
    """`spec.evidence.syscalls`: waits of servers in system calls that take longer than the duration `slower_than`.
    `stacks`: User: the program's beside the kernel's."""

    slower_than: Duration = "20ms"
    stacks: Literal["None", "Kernel", "User"] = "Kernel"


class OffCpuSpec(_Spec, frozen=True):
    """`spec.evidence.offcpu`: waits of servers for a CPU that take longer than the duration `slower_than`."""

    slower_than: Duration = "20ms"


class EvidenceSpec(_Spec, frozen=True):
    """`spec.evidence`: which signals explain slow exchanges. Signals of the agent name the fields that ask for them."""

    retransmits: bool = True
    handshakes: bool = True
    tcprt: bool = False
    syscalls: SyscallsSpec | None = None
    offcpu: OffCpuSpec | None = None


def signal_of(field: str) -> str:
    """Return the signal that a field of `spec.evidence` asks for: of the same name, but for waits."""
    return "waits" if field in ("syscalls", "offcpu") else field


class LatencyProbeSpec(_Spec, frozen=True):
    """`spec` of a LatencyProbe."""

    targets: Annotated[tuple[TargetSpec, ...], Meta(min_length=1, max_length=32)]
    clients: ClientsSpec = ClientsSpec()
    objectives: Annotated[tuple[ObjectiveSpec, ...], Meta(max_length=32)] = ()
    spans: SpansSpec = SpansSpec()
    evidence: EvidenceSpec = EvidenceSpec()
    suspend: bool = False


class LatencyProbe(msgspec.Struct, frozen=True):
    """A parsed and checked LatencyProbe. `uid` and `generation` are empty and 0 when it was read from a file."""

    namespace: str
    name: str
    spec: LatencyProbeSpec
    uid: str = ""
    generation: int = 0


class Metadata(_Spec, frozen=True):
    """`metadata` of a LatencyProbe, as the API server writes it."""

    name: Name
    namespace: Name = "default"
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    uid: str = ""
    generation: int = 0
    generate_name: str = ""
    resource_version: str = ""
    creation_timestamp: str | None = None
    deletion_timestamp: str | None = None
    deletion_grace_period_seconds: int = 0
    finalizers: tuple[str, ...] = ()
    owner_references: tuple[dict[str, Any], ...] = ()
    managed_fields: tuple[dict[str, Any], ...] = ()


class Resource(_Spec, frozen=True):
    """A LatencyProbe as its document has it, whole."""

    api_version: Annotated[str, Meta(pattern=rf"^{re.escape(API_VERSION)}\Z")]
    kind: Literal["LatencyProbe"]
    metadata: Metadata
    spec: LatencyProbeSpec
    status: Any = None


# Of all structs here, as documents spell them.
FIELDS = {field.encode_name for struct in _Spec.__subclasses__() for field in msgspec.structs.fields(struct)}
PAUSE_TEXT = "a duration from 10ms to 10m, such as 250ms"
DURATION_TEXT = "a duration such as 25ms: a whole number above 0 with ns, us, ms, s or m, at most 1 h"


def duration_ns(text: str) -> int:
    """Return a spec's duration (`25ms`) in ns. Raises ValueError on anything that the schema refuses."""
    match = re.match(r"([1-9][0-9]{0,8})(ns|us|ms|s|m)\Z", text)
    if match is None or (value := int(match[1]) * _UNIT_NS[match[2]]) > MAX_DURATION_NS:
        raise ValueError(f"{text!r} is not {DURATION_TEXT}")
    return value


@lru_cache(maxsize=256)
def goal_fraction(text: str) -> Fraction:
    """Return a goal (`99.9`, percent) as an exact fraction of 1."""
    return Fraction(Decimal(text)) / 100


def selector_matches(selector: LabelSelector, labels: Mapping[str, str]) -> bool:
    """Return whether a Kubernetes label selector selects an object with these labels.

    `NotIn` holds for a label that is absent. Source: apimachinery, labels.Requirement.Matches.
    """

    def holds(requirement: LabelRequirement) -> bool:
        present = requirement.key in labels
        match requirement.operator:
            case "In":
                return present and labels[requirement.key] in requirement.values
            case "NotIn":
                return not present or labels[requirement.key] not in requirement.values
            case "Exists":
                return present
            case "DoesNotExist":
                return not present

    return selector.match_labels.items() <= labels.items() and all(map(holds, selector.match_expressions))
