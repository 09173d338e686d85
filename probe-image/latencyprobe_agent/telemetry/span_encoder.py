"""Rows of spans → OTLP trace requests: one CLIENT or SERVER span each, grouped by the container that was observed.

Pure: receives spans that need not wait any longer, returns encoded requests below 4 MiB. A span is made of pieces, each
of them written for all spans at once: its length, its numbers, what it says of the exchange and of the peer in words,
its evidence, its calls. Protobuf takes the parts of a message one after the other. Its child spans follow it. Rules:
docs/design/telemetry.md, "Spans" and "Parents".
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from latencyprobe.plan import Identity
from latencyprobe_agent.identity.resources import Resources
from latencyprobe_agent.measure.groups import groups
from latencyprobe_agent.measure.sampling import Reason
from latencyprobe_agent.telemetry import ragged, span_numbers, span_words
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.telemetry.ragged import Piece, pick
from latencyprobe_agent.telemetry.span_calls import called
from latencyprobe_agent.telemetry.span_evidence import Names, explained
from latencyprobe_agent.telemetry.span_numbers import Spans
from latencyprobe_agent.telemetry.span_rows import NOT_JOINED, Ready, SpanTarget
from latencyprobe_agent.telemetry.span_words import CLIENT_NOT_MEASURED, PEER_UNRESOLVED
from latencyprobe_agent.telemetry.stage_spans import children
from latencyprobe_agent.telemetry.wire import head, heads
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.records import Role

_SPANS = 2048  # that are encoded at once: fewer cost more calls, more leave the second-level cache
_BYTES = 1 << 20  # of a request, give or take a span and its resource: receivers accept 4 MiB by default

_SCOPE: bytes = ScopeSpans(scope=InstrumentationScope(name=names.SCOPE)).SerializeToString()


class Context(NamedTuple):
    """What holds for all spans of a turn. `unix_offset_ns`: add to boot time for Unix time. `shared_key`: another
    host measures the other half with the same pairing key (standalone `--pair-key`), though nobody can confirm it.
    `naming`: of stacks."""

    resources: Resources
    unix_offset_ns: int
    shared_key: bool = False
    naming: Names = Names()


def requests(ready: Ready, context: Context) -> Iterator[tuple[bytes, int]]:
    """Yield (encoded ExportTraceServiceRequest, number of spans, child spans included)."""
    by_owner = ready.take(np.argsort(ready.rows["owner"], kind="stable"))
    for start in range(0, len(ready), _SPANS):
        yield from _requests(by_owner.take(slice(start, start + _SPANS)), context)


def _requests(ready: Ready, context: Context) -> Iterator[tuple[bytes, int]]:
    """Yield the requests of these spans, of which those of one owner stand together."""
    count, owner = len(ready), ready.rows["owner"]
    columns, stages = _columns(ready, context), children(ready.rows, context.unix_offset_ns)
    parent = heads(ScopeSpans.SPANS_FIELD_NUMBER, ragged.lengths(columns, count))
    columns = [[Piece(np.arange(count), parent)], *columns, *stages.columns]
    size = ragged.lengths(columns, count)
    of_owner = np.flatnonzero(np.diff(owner, prepend=~owner[:1]))
    resources = [_resource(tuple(context.resources.attributes(one).items())) for one in owner[of_owner].tolist()]

    with_resource = size.copy()
    with_resource[of_owner] += list(map(len, resources))
    request = np.cumsum(with_resource) // _BYTES
    of_request = np.flatnonzero(np.diff(request, prepend=-1))
    first = np.union1d(of_owner, of_request)
    of_first = np.searchsorted(of_owner, first, side="right") - 1
    envelopes = map(_envelope, [resources[i] for i in of_first], np.add.reduceat(size, first).tolist())
    columns.insert(0, pick(list(envelopes), np.arange(len(first)), first))
    size += ragged.lengths(columns[:1], count)

    starts = np.cumsum(size) - size
    body = np.empty(size.sum(), np.uint8)
    cuts = [*starts[of_request].tolist(), len(body)]
    ragged.write(body, columns, starts)
    spans = np.add.reduceat(1 + stages.counts, of_request).tolist()
    for begin, end, in_it in zip(cuts, cuts[1:], spans, strict=False):
        yield body[begin:end].tobytes(), in_it


def _columns(ready: Ready, context: Context) -> list[list[Piece]]:
    """Return what each span is made of."""
    rows = ready.rows
    server, root = rows["role"] == Role.SERVER, _roots(ready, shared_key=context.shared_key)
    evidence = explained(rows["number"], ready.evidence, context.unix_offset_ns, context.naming)
    return [
        *span_numbers.columns(Spans(rows, context.unix_offset_ns, server & (root == 0), evidence.resent)),
        *span_words.columns(ready, root, context.resources),
        evidence.pieces,
        called(rows["number"], ready.calls, context.unix_offset_ns),
    ]


def _roots(ready: Ready, *, shared_key: bool) -> NDArray[np.uint8]:
    """Return the index in ROOT_REASONS of each span: 0 if it is a client's, or the client half of it is measured."""
    rows = ready.rows
    found = np.zeros(len(rows), np.uint8)
    alone = (rows["role"] == Role.SERVER) & (rows["joined"] == NOT_JOINED) & (rows["reason"] != Reason.OTHER_HALF)
    at = np.flatnonzero(alone)
    if not len(at):
        return found
    first, code = groups([rows["target"][at], rows["peer"][at]])
    combinations = zip(rows["target"][at[first]].tolist(), rows["peer"][at[first]].tolist(), strict=True)
    reasons = [_root(ready.targets[target], ready.peers[peer].identity, shared_key) for target, peer in combinations]
    found[at] = np.array(reasons)[code]
    return found


def _root(target: SpanTarget, identity: Identity | None, shared_key: bool) -> int:
    """Return 0 if the client half of a lone server half is measured, else the index of why no parent can be named."""
    if shared_key and target.clients:
        return 0
    if identity is None:
        return PEER_UNRESOLVED
    return 0 if target.id in identity.measured else CLIENT_NOT_MEASURED


def _envelope(resource: bytes, length: int) -> bytes:
    """Return what stands before the first span of a resource, whose spans are so long together."""
    scope = head(ResourceSpans.SCOPE_SPANS_FIELD_NUMBER, len(_SCOPE) + length) + _SCOPE
    spans = len(resource) + len(scope) + length
    return head(ExportTraceServiceRequest.RESOURCE_SPANS_FIELD_NUMBER, spans) + resource + scope


@lru_cache(maxsize=1024)  # about 2 kB each
def _resource(attributes: tuple[tuple[str, str | int], ...]) -> bytes:
    spans = ResourceSpans()
    fill(spans.resource.attributes, dict(attributes))
    encoded: bytes = spans.SerializeToString()
    return encoded
