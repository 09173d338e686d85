"""LatencyProbes of somebody who wants more than to measure: 500 on purpose, and as many fuzzed ones as wanted."""

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import yaml

from latencyprobe.api import API_VERSION, KIND
from tests.support.fuzz import Fuzz, places

Document = dict[str, Any]
GOOD = sorted((Path(__file__).parents[1] / "data/latencyprobes/good").glob("*.yaml"))
RIGHT: tuple[Document, ...] = tuple(yaml.safe_load(path.read_text()) for path in GOOD)
KNOWN = (
    *(
        "1ns",
        "999999999ns",
        "3600s",
        "60m",
        "61m",
        "1h",
        "0s",
        "01s",
        "1ms ",
        "25ms",
        "10m",
        "9ms",
        "-1s",
        "+1s",
        "1.5s",
    ),
    *(
        "0",
        "0.0",
        "1.0",
        "1.000000",
        "0.000001",
        "0.0000001",
        "1.1",
        "99.99999",
        "00.1",
        "0.00000",
        "100",
        "9",
        ".9",
        "9.",
    ),
    *("1d", "7d", "90d", "Client", "Server", "client", "Cluster", "Namespace", "None", "In", "NotIn", "Exists", "User"),
    *(
        "http",
        "a-b",
        "-a",
        "a-",
        "a--b",
        "1a",
        "8080",
        "a" * 15,
        "a" * 16,
        "a" * 63,
        "a" * 253,
        "x.y",
        "a/b",
        "b.c/d",
        "a/b/c",
    ),
    *(1, 8, 9, 80, 443, 65_535, 65_536, 1_000_000_000, 1_000_000_001, 100_000, 100_001, True, False, None, [], {}),
    *("cart", "db", "Cart", "a" * 317, "a" * 318, f"{'a' * 253}/{'b' * 63}", f"{'a' * 254}/b"),
    *([80, "http"], ["http", "http"], ["8080"], [None], {"a": "b"}, {"matchLabels": {"app": "x"}}, {"scope": "None"}),
    {"key": "a", "operator": "In", "values": ["b"]},
)

DURATIONS = (*KNOWN[:15], "20ms", "1s", "59m", "3599s", "3600000ms", "3600001ms", "600s", "601s", "10000us", "9999us")
NEAR: dict[str, tuple[Any, ...]] = {  # by field: values on both sides of what is right
    **dict.fromkeys(("threshold", "slowerThan", "pause"), DURATIONS),
    **dict.fromkeys(("role", "perspective"), ("Client", "Server", "Server", None, "client")),
    "ports": (
        [],
        [1],
        [65_535],
        [80.0],
        [True],
        [443, 443],
        [80, "http"],
        ["a-1"],
        ["1-"],
        list(range(1, 33)),
        list(range(1, 34)),
    ),
    "setupTurns": (0, 8, 9, -0.0, 8.0, None, True),
    "tls": (True, False, None, "true"),
    "scope": ("None", "Namespace", "Cluster", None, "none"),
    "goal": ("99", "0.1", "0.00001", "00.1", "0", "0.0", "99.99999", "100", ".5", "5.", "1.000000"),
    "ratio": ("0", "1", "1.0", "1.000000", "1.0000000", "0.1", "0.000001", "0.0", "1.1", "0.", ""),
    "minEvents": (1, 0, 1_000_000_000, 1e9, 10**9 + 1, None, 1.0),
    "maxPerSecond": (0, 100_000, 100_001, -1, -0.0, None),
    "window": ("1d", "7d", "28d", "30d", "90d", "2d", None),
    "name": ("cart", "db", "a", "a" * 63, "a" * 64, "0", "a-", "a\n"),
    "target": ("cart", "db", "a", "t", "x"),
    "operator": ("In", "NotIn", "Exists", "DoesNotExist", "Lt"),
    "values": ([], ["a"], ["a", "a"], [""], ["a_b.c"], ["-"], None),
    "key": ("a", "a/b", "a.b/c_d", "A/b", "a" * 317, "a//b", "a/"),
    "matchLabels": (
        {},
        {"a": ""},
        {"a": "b"},
        {"": "b"},
        {"a b": "c"},
        {"a" * 317: "b"},
        {"ä": "b"},
        {"a\n": "b"},
        None,
    ),
    **dict.fromkeys(
        ("syscalls", "offcpu"), ({}, None, {"slowerThan": "1h"}, {"stacks": "User"}, {"slowerThan": None}, [])
    ),
    **dict.fromkeys(("suspend", "retransmits", "errorsCountAsBad", "peers"), (True, False, None, "false", 0)),
    **dict.fromkeys(("spans", "evidence", "clients", "podSelector", "objectives"), ({}, [], None)),
}

# By which others let who writes a resource decide what runs where, what is read, or where it is sent.
MEANS = (
    *("image", "images", "command", "args", "env", "envFrom", "volumes", "volumeMounts", "nodeSelector", "nodeName"),
    *("affinity", "tolerations", "hostPath", "hostNetwork", "hostPID", "hostIPC", "privileged", "securityContext"),
    *("capabilities", "serviceAccountName", "serviceAccount", "automountServiceAccountToken", "file", "path", "paths"),
    *("url", "endpoint", "otlp", "exporter", "headers", "secretRef", "secretName", "configMapRef", "namespace"),
    *("namespaces", "namespaceSelector", "priorityClassName", "runtimeClassName", "initContainers", "containers"),
    *("sidecars", "template", "script", "program", "bpf"),
)
VALUES = ("evil", ["evil"], {"evil": "evil"}, {"name": "evil", "value": "http://evil/"})


class Hostile(NamedTuple):
    """`says`: what the API server must have taken out if it does not refuse it, None if it must refuse it."""

    name: str
    document: Document
    says: str | None


def hostile() -> Iterator[Hostile]:
    """Yield all of them: a field of each means in each place, then values that are too much or not for their place."""
    for place in PLACES:
        for i, field in enumerate(MEANS):
            document = whole()
            _at(document, place)[field] = VALUES[i % len(VALUES)]
            yield Hostile(f"{field} in {place or 'the document'}", document, field)
    for place, value in ((place, value) for place, values in TOO_MUCH.items() for value in values):
        document, (holder, _, field) = whole(), place.rpartition(".")
        _at(document, holder)[field] = value
        yield Hostile(f"{place} {str(value)[:60]!r}", document, None)


def whole() -> Document:
    """Return a right LatencyProbe with something in each place."""
    requirement = {"key": "tier", "operator": "In", "values": ["front"]}
    spec = {
        "targets": [{"name": "cart", "podSelector": {"matchExpressions": [requirement]}, "ports": [8080]}],
        "clients": {"podSelector": {"matchLabels": {"app": "web"}}},
        "objectives": [{"name": "fast", "target": "cart", "threshold": "25ms", "goal": "99.9"}],
        "spans": {"ratio": "0.01"},
        "evidence": {"syscalls": {"slowerThan": "20ms"}, "offcpu": {}},
    }
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "hostile"}, "spec": copy.deepcopy(spec)}


def fuzzed(fuzz: Fuzz) -> Document:
    """Return a LatencyProbe some parts of which are wrong, or right by chance."""
    right = fuzz.one((*RIGHT, whole()))
    metadata = {"name": "fuzzed"}
    if fuzz.often(0.02):
        metadata = {"name": fuzz.one([known for known in KNOWN if isinstance(known, str)])}
    spec = fuzz.mutated(right["spec"], KNOWN) if fuzz.often(0.4) else _nearly(right["spec"], fuzz)
    return {"apiVersion": API_VERSION, "kind": KIND, "metadata": metadata, "spec": spec}


def _nearly(right: Document, fuzz: Fuzz) -> Document:
    """Return a spec in which some fields have other values, most of them right."""
    spec = copy.deepcopy(right)
    for _ in range(fuzz.one((1, 1, 2, 3, 5))):
        holder, field = fuzz.one([place for place in places([spec]) if isinstance(place[0], dict)])
        field = fuzz.one((field, fuzz.one(list(NEAR))))
        if field in NEAR:
            holder[field] = copy.deepcopy(fuzz.one(NEAR[field]))
    return spec


def _at(document: Document, place: str) -> Any:
    found: Any = document
    for step in place.split(".") if place else ():
        found = found[int(step) if step.isdigit() else step]
    return found


PLACES = (
    *("", "spec", "spec.targets.0", "spec.targets.0.podSelector", "spec.targets.0.podSelector.matchExpressions.0"),
    *("spec.clients", "spec.objectives.0", "spec.spans", "spec.evidence", "spec.evidence.syscalls"),
)
_TARGET, _OBJECTIVE = "spec.targets.0", "spec.objectives.0"
_LABELS, _EXPRESSION = "spec.clients.podSelector.matchLabels", f"{_TARGET}.podSelector.matchExpressions.0"
TOO_MUCH: dict[str, tuple[Any, ...]] = {
    "spec.targets": ([], [{"name": f"t{i}"} for i in range(33)], [{"name": "a"}] * 2, {}, "all"),
    f"{_TARGET}.ports": ([0], [-1], [65_536], [2**63], [1.5], ["80"], ["*"], ["a b"], ["$(P)"], [80] * 33),
    f"{_TARGET}.role": ("Admin", "server", "", "Server\n", 1),
    f"{_TARGET}.setupTurns": (-1, 9, 2**63, 10**30, 0.5, "8"),
    f"{_TARGET}.pause": ("0s", "9ms", "11m", "99999999m", "1h", "250", "-1s", "1ms\n", 250),
    f"{_TARGET}.name": (
        "../cart",
        "other/cart",
        "Cart",
        "a" * 64,
        "",
        "cart\n",
        "\x1b[31m",
        "-a",
        None,
        "{{ $value }}",
    ),
    f"{_EXPRESSION}.operator": ("Exists", "DoesNotExist", "Gt", "=~", "", "in"),
    f"{_EXPRESSION}.key": ("", "a b", "a,b!=c", "in (a)", "a" * 318, "\x1b[31m", "/a", "a/"),
    f"{_EXPRESSION}.values": ([], ["a b"], ["a" * 64], [".*"], ["b)"], ["b"] * 33, ["\x1b[31m"], [None], "b"),
    _LABELS: (
        *({"a": "b,c=d"}, {"a": "b\n"}, {"a" * 318: "b"}, {"a": "b" * 64}, {"a": []}, {"a": 1}, {"a": "\x1b[31m"}),
        *({f"k{i}": "v" for i in range(17)}, ["a"], "a=b"),
    ),
    f"{_OBJECTIVE}.name": ("{{ $value }}", '{{ query "up" }}', "{{", 'a"} or up{b="', "a\nb", "", None),
    f"{_OBJECTIVE}.threshold": ("0ms", "61m", "2h", "1e3s", "25", "25 ms", "999999999m", "25ms\x00", 25),
    f"{_OBJECTIVE}.goal": ("100", "101", "0", "-1", "NaN", "1e1", "99.999999", 99.9, "99%"),
    f"{_OBJECTIVE}.window": ("2d", "365d", "28", "", "28d "),
    f"{_OBJECTIVE}.target": ("other", "other-namespace/cart", "", "a" * 64),
    f"{_OBJECTIVE}.minEvents": (0, -1, 10**9 + 1, 2**63, "100", 0.5),
    f"{_OBJECTIVE}.perspective": ("Both", "client", ""),
    "spec.objectives": ([{"name": f"o{i}"} for i in range(33)], "all"),
    "spec.clients.scope": ("All", "cluster", "kube-system", "", "*"),
    "spec.spans.ratio": ("1.5", "-1", "2", "0.0000001", "1e-3", 0.5, "NaN"),
    "spec.spans.maxPerSecond": (-1, 100_001, 2**63, "100", 0.5),
    "spec.spans.slowerThan": ("0s", "61m", "http://evil/", 5),
    "spec.evidence.syscalls": ({"stacks": "All"}, {"slowerThan": "0s"}, True, {"slowerThan": 1}),
    "spec.evidence.tcprt": ("yes", 1, {}),
    "metadata.name": ("a.b", "a" * 64, "../a", "A", "a b", "{{.}}"),
}
