"""Parsing a LatencyProbe: once and strictly, with the same verdict as the CRD schema.

Receives documents (a file's, or those kopf hands over), returns `LatencyProbe`, or raises `SpecError` with the
field's path. What one field can say stands in its type (spec.py); what only several fields can say stands in `_rules`.
The operator, the standalone agent and `latencyprobe validate` call it; crds/latencyprobe.yaml says the same in CEL.
"""

import difflib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import inspect

from latencyprobe import manifest
from latencyprobe.api import API_VERSION, KIND
from latencyprobe.errors import SpecError
from latencyprobe.plan import Role
from latencyprobe.spec import (
    DURATION_TEXT,
    FIELDS,
    PAUSE_TEXT,
    PAUSES_NS,
    LabelSelector,
    LatencyProbe,
    LatencyProbeSpec,
    ObjectiveSpec,
    Resource,
    TargetSpec,
    duration_ns,
)

MAX_THRESHOLDS = 8  # per target: the kernel keeps one counter for each, LP_THRESHOLDS in bpf/events.h

_HALF = re.compile("[\ud800-\udfff]")

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
    "pause": PAUSE_TEXT,
    "tls": "true or false",
    "protocol": "Turns or HTTP2",
    "threshold": DURATION_TEXT,
    "slowerThan": DURATION_TEXT,
    "goal": 'a percentage above 0 and below 100, in quotes, such as "99.9"',
    "window": "1d, 7d, 28d, 30d or 90d",
    "minEvents": "a whole number from 1 to 1000000000",
    "ratio": 'a share from 0 to 1, in quotes, such as "0.01"',
    "maxPerSecond": "a whole number from 0 to 100000",
    "stages": "Spans, Events or None",
    "stacks": "None, Kernel or User",
    "syscalls": "fields such as slowerThan: 20ms, or {}",
    "offcpu": "fields such as slowerThan: 20ms, or {}",
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
    resource = msgspec.convert(_normal(document, _RESOURCE), Resource)
    metadata = resource.metadata
    return LatencyProbe(metadata.namespace, metadata.name, resource.spec, metadata.uid, metadata.generation)


def problems(document: object, *, source: str = "") -> list[SpecError]:
    """Return everything that is wrong with `document`, in the order of its fields; empty when it is a LatencyProbe."""
    document = _normal(document, _RESOURCE)
    try:
        resource = msgspec.convert(document, Resource)
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
    source = manifest.called(path)
    probes = tuple(parse(document, source=f"{source}{place}") for place, document in manifest.documents(path))
    names = [f"{probe.namespace}/{probe.name}" for probe in probes]
    for name in names:
        if names.count(name) > 1:
            raise SpecError("metadata.name", f"{name} is in this file twice: give each its own name", source)
    return probes


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
        if _too_long(target.pause) or duration_ns(target.pause) not in PAUSES_NS:
            yield f"{at}.pause", f"{target.pause!r}: expected {PAUSE_TEXT}"
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
            yield f"{at}.threshold", f"{o.threshold!r}: expected {DURATION_TEXT}"
        roles = {target.name: target.role for target in spec.targets}
        if o.target not in roles:
            yield f"{at}.target", f"{o.target!r} names no target: expected one of {', '.join(roles)}"
        elif (roles[o.target], o.perspective) == (Role.CLIENT, Role.SERVER):
            yield f"{at}.perspective", f"'Server': target {o.target!r} has role Client and measures no server halves"
        elif (roles[o.target], o.perspective, spec.clients.scope) == (Role.SERVER, Role.CLIENT, "None"):
            yield f"{at}.perspective", "'Client' needs spec.clients.scope Namespace or Cluster: it is None"
    if spec.spans.slower_than is not None and _too_long(spec.spans.slower_than):
        yield "spec.spans.slowerThan", f"{spec.spans.slower_than!r}: expected {DURATION_TEXT}"
    for name, of in (("syscalls", spec.evidence.syscalls), ("offcpu", spec.evidence.offcpu)):
        if of is not None and _too_long(of.slower_than):
            yield f"spec.evidence.{name}.slowerThan", f"{of.slower_than!r}: expected {DURATION_TEXT}"


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


def _normal(value: object, kind: inspect.Type | None = None) -> object:
    """Return a document as the API server sees it: without fields and labels that are null, with 80.0 as 80 where a
    number is wanted, and with U+FFFD for half a character (a surrogate alone). `kind`: what is wanted here, None where
    nothing is."""
    if isinstance(value, str):
        return _HALF.sub("\ufffd", value)
    if isinstance(value, float) and isinstance(kind, inspect.IntType) and value.is_integer():
        return int(value)
    if isinstance(value, list):
        item = _kind(kind.item_type) if isinstance(kind, inspect.VarTupleType) else None
        return [_normal(entry, item) for entry in value]
    if not isinstance(value, dict):
        return value
    fields = {f.encode_name: _kind(f.type) for f in kind.fields} if isinstance(kind, inspect.StructType) else {}
    kept = {k: v for k, v in value.items() if v is not None or not (k in fields or isinstance(kind, inspect.DictType))}
    return {_normal(k): _normal(v, fields.get(k)) for k, v in kept.items()}


def _kind(kind: inspect.Type) -> inspect.Type:
    """Return a type without its bounds, and without None."""
    if isinstance(kind, inspect.Metadata):
        return _kind(kind.type)
    if isinstance(kind, inspect.UnionType):
        others = [one for one in kind.types if not isinstance(one, inspect.NoneType)]
        return _kind(others[0]) if len(others) == 1 else kind
    return kind


_RESOURCE = _kind(inspect.type_info(Resource))


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
        close = (
            [] if field[1] in FIELDS else difflib.get_close_matches(field[1], FIELDS, n=1)
        )  # else it stands elsewhere
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
