"""A real Jaeger: what its query API knows of a service's traces, and one of our own to start without a cluster."""

import json
import os
import socket
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import requests

from tests.e2e.bench.cluster import BENCH, HOST, wait_for

CONFIG = Path(__file__).parent / "conf/jaeger.yaml"


@dataclass(frozen=True)
class Span:
    """One span as Jaeger gives it back; times in µs since 1970, `resource` are the attributes of who sent it.

    `events`: the attributes of each, with its name as `event` and its time as `at_us`. `links`: (trace id, span id) of
    each; Jaeger does not tell their attributes.
    """

    trace_id: str
    span_id: str
    parent_id: str | None
    name: str
    service: str
    start_us: int
    duration_us: int
    tags: Mapping[str, Any] = field(hash=False)
    resource: Mapping[str, Any] = field(hash=False)
    events: tuple[Mapping[str, Any], ...] = field(hash=False)
    links: tuple[tuple[str, str], ...] = ()

    @property
    def kind(self) -> str:
        """`client`, `server`, `internal` ..."""
        return str(self.tags.get("span.kind", "internal"))


Trace = tuple[Span, ...]


@dataclass(frozen=True)
class Jaeger:
    """`query`: URL of the query API. `otlp`: where spans are sent by OTLP/HTTP, from pods too."""

    query: str = f"http://{HOST}:16686"
    otlp: str = f"http://{HOST}:4318"

    def services(self) -> set[str]:
        """The service names that have sent a span."""
        return set(self._get("services") or ())

    def traces(self, service: str, tags: Mapping[str, str] | None = None, limit: int = 1000) -> list[Trace]:
        """Traces of the last hour with a span of this service that has all these tags (resource attributes count)."""
        found = self._get("traces", service=service, limit=limit, lookback="1h", tags=json.dumps(dict(tags or {})))
        return [_trace(one) for one in found]

    def trace(self, trace_id: str) -> Trace:
        """All spans of one trace."""
        (found,) = self._get(f"traces/{trace_id}")
        return _trace(found)

    def dependencies(self, end_ms: int, lookback_ms: int = 3_600_000) -> set[tuple[str, str]]:
        """(caller, callee) service names that Jaeger draws an arrow between."""
        found = self._get("dependencies", endTs=end_ms, lookback=lookback_ms)
        return {(edge["parent"], edge["child"]) for edge in found if edge["parent"] != edge["child"]}

    def _get(self, path: str, **parameters: Any) -> Any:
        answer = requests.get(f"{self.query}/api/{path}", params=parameters, timeout=120)
        answer.raise_for_status()
        return answer.json()["data"]


def linked(traces: list[Trace]) -> list[tuple[Span, Span]]:
    """(client, server) spans of which the client's is the server's parent."""
    return [
        (client, server)
        for trace in traces
        for server in trace
        for client in trace
        if (client.kind, server.kind) == ("client", "server") and server.parent_id == client.span_id
    ]


def stages_us(trace: Trace, half: Span) -> dict[str, int]:
    """The stages of a CLIENT or SERVER span that are child spans of it: how long each took."""
    return {one.name: one.duration_us for one in trace if (one.kind, one.parent_id) == ("internal", half.span_id)}


def _trace(document: Mapping[str, Any]) -> Trace:
    return tuple(_span(span, document["processes"][span["processID"]]) for span in document["spans"])


def _span(span: Mapping[str, Any], process: Mapping[str, Any]) -> Span:
    def values(tags: list[dict[str, Any]] | None) -> dict[str, Any]:
        return {tag["key"]: tag["value"] for tag in tags or ()}

    return Span(
        trace_id=span["traceID"],
        span_id=span["spanID"],
        parent_id=next((one["spanID"] for one in span["references"] if one["refType"] == "CHILD_OF"), None),
        name=span["operationName"],
        service=process["serviceName"],
        start_us=span["startTime"],
        duration_us=span["duration"],
        tags=values(span["tags"]),
        resource=values(process.get("tags")),
        events=tuple({**values(log["fields"]), "at_us": log["timestamp"]} for log in span.get("logs") or ()),
        links=tuple((one["traceID"], one["spanID"]) for one in span["references"] if one["refType"] == "FOLLOWS_FROM"),
    )


@contextmanager
def own_jaeger() -> Iterator[Jaeger]:
    """A Jaeger of one's own on free loopback ports; needs neither root nor the cluster."""
    program = subprocess.run([BENCH, "program", "jaeger"], check=True, stdout=subprocess.PIPE, text=True).stdout.strip()
    names = ("OTLP_HTTP", "OTLP_GRPC", "QUERY", "QUERY_GRPC")
    listeners = [socket.create_server(("127.0.0.1", 0)) for _ in names]
    ports = {f"JAEGER_{name}": f"127.0.0.1:{one.getsockname()[1]}" for name, one in zip(names, listeners, strict=True)}
    for listener in listeners:
        listener.close()
    environment = os.environ | ports | {"OTEL_TRACES_SAMPLER": "always_off"}  # else it traces itself and ends slowly
    process = subprocess.Popen([program, "--config", CONFIG], env=environment, stderr=subprocess.DEVNULL)
    jaeger = Jaeger(query=f"http://{ports['JAEGER_QUERY']}", otlp=f"http://{ports['JAEGER_OTLP_HTTP']}")
    try:
        wait_for(lambda: _answers(jaeger), "Jaeger answers")
        yield jaeger
    finally:
        process.terminate()
        process.wait(timeout=20)


def _answers(jaeger: Jaeger) -> bool:
    try:
        jaeger.services()
    except requests.ConnectionError:
        return False
    return True
