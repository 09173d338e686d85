"""The LatencyProbe resource: frozen structs, parsed once and strictly, with the same verdict as the CRD schema."""

from typing import Literal

import msgspec

from latencyprobe.plan import Role

API_VERSION = "latencyprobe.dev/v1alpha1"


class _Spec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel", omit_defaults=True):
    pass


class LabelSelector(_Spec):
    """A Kubernetes label selector; empty selects all."""

    match_labels: dict[str, str] = {}
    match_expressions: tuple["LabelRequirement", ...] = ()


class LabelRequirement(_Spec):
    """One `matchExpressions` entry."""

    key: str
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    values: tuple[str, ...] = ()


class TargetSpec(_Spec):
    """`spec.targets[]`. `ports`: container port names or numbers; empty = every listening port."""

    name: str
    pod_selector: LabelSelector = LabelSelector()
    ports: tuple[int | str, ...] = ()
    role: Role = Role.SERVER
    setup_turns: int = 0


class ClientsSpec(_Spec):
    """`spec.clients`: whose halves are measured too, for targets of role Server."""

    scope: Literal["None", "Namespace", "Cluster"] = "Namespace"
    pod_selector: LabelSelector = LabelSelector()


class ObjectiveSpec(_Spec):
    """`spec.objectives[]`. `threshold` and `window` are durations, `goal` a decimal percent string."""

    name: str
    target: str
    threshold: str
    goal: str
    window: Literal["1d", "7d", "28d", "30d", "90d"] = "28d"
    perspective: Role | None = None
    min_events: int = 100
    errors_count_as_bad: bool = True


class SpansSpec(_Spec):
    """`spec.spans`. `slower_than` None: the target's smallest threshold, else 100ms."""

    slower_than: str | None = None
    ratio: str = "0.01"
    max_per_second: int = 100


class LatencyProbeSpec(_Spec):
    """`spec` of a LatencyProbe."""

    targets: tuple[TargetSpec, ...]
    clients: ClientsSpec = ClientsSpec()
    objectives: tuple[ObjectiveSpec, ...] = ()
    spans: SpansSpec = SpansSpec()
    suspend: bool = False


class LatencyProbe(msgspec.Struct, frozen=True):
    """A parsed and checked LatencyProbe. `uid` and `generation` are empty and 0 when it was read from a file."""

    namespace: str
    name: str
    spec: LatencyProbeSpec
    uid: str = ""
    generation: int = 0
