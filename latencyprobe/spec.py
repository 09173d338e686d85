"""The LatencyProbe resource: frozen structs, parsed once and strictly, with the same verdict as the CRD schema.

Receives documents (a file's, or those kopf hands over), returns `LatencyProbe`, or raises `SpecError` with the
field's path. What one field can say stands in its type; what only several fields can say stands in `_rules`.
The operator, the standalone agent and `latencyprobe validate` call it; crds/latencyprobe.yaml says the same in CEL.
"""

import difflib
import re
from collections.abc import Iterator, Mapping
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from latencyprobe import manifest
from latencyprobe.errors import SpecError
from latencyprobe.manifest import API_VERSION, KIND
from latencyprobe.plan import Role

MAX_THRESHOLDS = 8  # per target: the kernel keeps one counter for each, LP_THRESHOLDS in bpf/events.h
MAX_DURATION_NS = 3_600_000_000_000
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
    """`spec.targets[]`. `ports`: container port names or numbers; empty = every listening port."""

    name: Name
    pod_selector: LabelSelector = LabelSelector()
    ports: Annotated[tuple[Port, ...], Meta(max_length=32)] = ()
    role: Role = Role.SERVER
    setup_turns: Annotated[int, Meta(ge=0, le=8)] = 0


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
    """`spec.spans`. `slower_than` None: the target's smallest threshold, else 100ms."""

    slower_than: Duration | None = None
    ratio: Annotated[str, Meta(pattern=r"^(0(\.[0-9]{1,6})?|1(\.0+)?)\Z", max_length=8)] = "0.01"
    max_per_second: Annotated[int, Meta(ge=0, le=100_000)] = 100


class EvidenceSpec(_Spec, frozen=True):
    """`spec.evidence`: which signals explain slow exchanges. The names are those of the agent's signals."""

    retransmits: bool = True
    handshakes: bool = True
    tcprt: bool = False


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


class _Metadata(_Spec, frozen=True):
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


class _Resource(_Spec, frozen=True):
    api_version: Annotated[str, Meta(pattern=rf"^{re.escape(API_VERSION)}\Z")]
    kind: Literal["LatencyProbe"]
    metadata: _Metadata
    spec: LatencyProbeSpec
    status: Any = None


_FIELDS = {field.encode_name for struct in _Spec.__subclasses__() for field in msgspec.structs.fields(struct)}
_DURATION_TEXT = "a duration such as 25ms: a whole number above 0 with ns, us, ms, s or m, at most 1 h"
_EXPECTED = {  # by the field's last name, else by its type, for every complaint about its value
    "bool": "true or false",
    "apiVersion": API_VERSION,
    "kind": KIND,
    "name": "a DNS label: a-z, 0-9 and -, at most 63 characters",
    "namespace": "a DNS label: a-z, 0-9 and -, at most 63 characters",
    "target": "the name of a target",
    "ports": "a port from 1 to 65535, or a container port's name (a-z, 0-9, -, at most 15 characters)",
    "role": "Server or Client",
    "perspective": "Server or Client",
    "scope": "None, Namespace or Cluster",
    "setupTurns": "a whole number from 0 to 8",
    "threshold": _DURATION_TEXT,
    "slowerThan": _DURATION_TEXT,
    "goal": 'a percentage above 0 and below 100, in quotes, such as "99.9"',
    "window": "1d, 7d, 28d, 30d or 90d",
    "minEvents": "a whole number from 1 to 1000000000",
    "ratio": 'a share from 0 to 1, in quotes, such as "0.01"',
    "maxPerSecond": "a whole number from 0 to 100000",
    "operator": "In, NotIn, Exists or DoesNotExist",
    "key": "a label's name, such as app or example.com/app",
    "values": "label values of at most 63 characters",
    "matchLabels": "label names of at most 317 characters with values of at most 63",
}


def parse(document: object, *, source: str = "") -> LatencyProbe:
    """Return the LatencyProbe that `document` (the whole resource as dicts and lists) describes.

    `source` (a file) opens the message. Raises SpecError with the first problem.
    """
    for problem in problems(document, source=source):
        raise problem
    resource = msgspec.convert(_normal(document), _Resource)
    metadata = resource.metadata
    return LatencyProbe(metadata.namespace, metadata.name, resource.spec, metadata.uid, metadata.generation)


def problems(document: object, *, source: str = "") -> list[SpecError]:
    """Return everything that is wrong with `document`, in the order of its fields; empty when it is a LatencyProbe."""
    document = _normal(document)
    try:
        resource = msgspec.convert(document, _Resource)
    except msgspec.ValidationError as first:
        # msgspec stops at the first: each list entry is asked alone for the rest.
        found = [_translate(first, document)]
        spec = document.get("spec") if isinstance(document, dict) else None
        for field, kind in (("targets", TargetSpec), ("objectives", ObjectiveSpec)):
            entries = spec.get(field) if isinstance(spec, dict) else None
            for i, entry in enumerate(entries if isinstance(entries, list) else ()):
                try:
                    msgspec.convert(entry, kind)
                except msgspec.ValidationError as error:
                    found.append(_translate(error, document, f".spec.{field}[{i}]"))
    else:
        found = list(_rules(resource.spec))
    distinct = {error[0]: error for error in reversed(found)}
    return [SpecError(path, problem, source) for path, problem in reversed(distinct.values())]


def load_file(path: str | Path) -> tuple[LatencyProbe, ...]:
    """Return the LatencyProbes of a YAML file; documents of other API groups beside them are left alone.

    Raises SpecError: what `manifest.documents` says, a wrong LatencyProbe, or the same one twice.
    """
    probes = tuple(parse(document, source=f"{path}{place}") for place, document in manifest.documents(path))
    names = [f"{probe.namespace}/{probe.name}" for probe in probes]
    for name in names:
        if names.count(name) > 1:
            raise SpecError("metadata.name", f"{name} is in this file twice: give each its own name", str(path))
    return probes


def duration_ns(text: str) -> int:
    """Return a spec's duration (`25ms`) in ns. Raises ValueError on anything that the schema refuses."""
    match = re.match(r"([1-9][0-9]{0,8})(ns|us|ms|s|m)\Z", text)
    if match is None or (value := int(match[1]) * _UNIT_NS[match[2]]) > MAX_DURATION_NS:
        raise ValueError(f"{text!r} is not {_DURATION_TEXT}")
    return value


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


def _rules(spec: LatencyProbeSpec) -> Iterator[tuple[str, str]]:
    """Yield (path, problem) for each rule that no single field's type can say."""
    for field in ("targets", "objectives"):
        names: list[str] = [entry.name for entry in getattr(spec, field)]
        for i, name in enumerate(names):
            if name in names[:i]:
                yield f"spec.{field}[{i}].name", f"{name!r} is taken by {field}[{names.index(name)}]: names are unique"
    for i, target in enumerate(spec.targets):
        at = f"spec.targets[{i}]"
        yield from _selector_rules(f"{at}.podSelector", target.pod_selector)
        thresholds = set()
        for o in spec.objectives:
            if o.target == target.name and not _too_long(o.threshold):
                thresholds.add(duration_ns(o.threshold))
        if len(thresholds) > MAX_THRESHOLDS:
            problem = f"target {target.name!r} has {len(thresholds)} distinct thresholds: at most {MAX_THRESHOLDS}"
            yield "spec.objectives", problem
        for j, port in enumerate(target.ports):
            if isinstance(port, str) and target.role is Role.CLIENT:
                yield f"{at}.ports[{j}]", f"{port!r}: role Client needs port numbers, as the caller dials them"
    yield from _selector_rules("spec.clients.podSelector", spec.clients.pod_selector)
    for i, o in enumerate(spec.objectives):
        at = f"spec.objectives[{i}]"
        if _too_long(o.threshold):
            yield f"{at}.threshold", f"{o.threshold!r}: expected {_DURATION_TEXT}"
        roles = {target.name: target.role for target in spec.targets}
        if o.target not in roles:
            yield f"{at}.target", f"{o.target!r} names no target: expected one of {', '.join(roles)}"
        elif (roles[o.target], o.perspective) == (Role.CLIENT, Role.SERVER):
            yield f"{at}.perspective", f"'Server': target {o.target!r} has role Client and measures no server halves"
        elif (roles[o.target], o.perspective, spec.clients.scope) == (Role.SERVER, Role.CLIENT, "None"):
            yield f"{at}.perspective", "'Client' needs spec.clients.scope Namespace or Cluster: it is None"
    if spec.spans.slower_than is not None and _too_long(spec.spans.slower_than):
        yield "spec.spans.slowerThan", f"{spec.spans.slower_than!r}: expected {_DURATION_TEXT}"


def _selector_rules(at: str, selector: LabelSelector) -> Iterator[tuple[str, str]]:
    for i, requirement in enumerate(selector.match_expressions):
        if (requirement.operator in ("In", "NotIn")) != bool(requirement.values):
            needs = "takes no values" if requirement.values else "needs values"
            yield f"{at}.matchExpressions[{i}].values", f"operator {requirement.operator} {needs}"


def _too_long(duration: str) -> bool:
    try:
        duration_ns(duration)
    except ValueError:
        return True
    return False


def _normal(value: object) -> object:
    """Return a document as the API server sees it: without known fields that are null, and with 80.0 as 80."""
    if isinstance(value, dict):
        kept = {k: v for k, v in value.items() if v is not None or k not in _FIELDS}
        return {k: v if k == "matchLabels" else _normal(v) for k, v in kept.items()}
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return [_normal(entry) for entry in value] if isinstance(value, list) else value


def _translate(error: msgspec.ValidationError, document: object, prefix: str = "") -> tuple[str, str]:
    """Return msgspec's complaint as (path, problem), with the value that was seen and what is expected."""
    match = re.match(r"(?s)(.*?)(?: - at (?:`key` in )?`\$(.*?)`)?\Z", str(error))
    assert match is not None
    what, path = match[1], (prefix + (match[2] or "")).removesuffix("[...]")
    seen: Any = document
    for field, index in re.findall(r"\.(\w+)|\[(\d+)\]", path):
        seen = seen[field or int(index)]
    path = path.removeprefix(".")
    if field := re.match(r"Object contains unknown field `(.*)`\Z", what):
        close = difflib.get_close_matches(field[1], _FIELDS, n=1)
        return f"{path}.{field[1]}".lstrip(
            "."
        ), f"unknown field: {f'did you mean {close[0]}?' if close else 'remove it'}"
    if field := re.match(r"Object missing required field `(.*)`\Z", what):
        return f"{path}.{field[1]}".lstrip("."), f"missing: expected {_EXPECTED.get(field[1], 'a value')}"
    if isinstance(seen, list) and (length := re.search(r"length ([<>])= (\d+)", what)):
        return path, f"{len(seen)} entries: expected at {'most' if length[1] == '<' else 'least'} {length[2]}"
    last = re.sub(r"\[\d+\]", "", path).rpartition(".")[2]
    expected = what.removeprefix("Expected ").partition(", got")[0].replace("`", "")
    return path, f"{repr(seen)[:80]}: expected {_EXPECTED.get(last) or _EXPECTED.get(expected, expected)}"
