"""Byte strings that somebody chose as a thread's name, path, symbol, label or annotation (100,000 with
`STRINGS=100000` in the environment; else some thousands): each log line is one of JSON, OTLP is valid, no terminal is
steered."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans

from latencyprobe.logs import JsonLines
from latencyprobe.plan import Container, NodePlan, Pod
from latencyprobe_agent.identity.cgroups import Cgroup
from latencyprobe_agent.identity.process_name import process_name
from latencyprobe_agent.identity.resources import PodResources
from latencyprobe_agent.symbols.messages import NAME_BYTES
from latencyprobe_agent.symbols.names import readable
from latencyprobe_agent.telemetry.attributes import fill
from latencyprobe_agent.vocabulary.comm import comm
from tests.support.fuzz import TEXTS, Fuzz, seeded

MANGLED = (b"_ZN4cart3getEv", b"_RNvC4cart3get", b"_Z", b"_R", b"_ZN")


def chosen(fuzz: Fuzz) -> bytes:
    """Bytes that are a name, or steer a terminal, or are no text at all."""
    parts = [fuzz.one(TEXTS).encode("utf-8", "surrogatepass") for _ in range(fuzz.one((1, 1, 2)))]
    parts += fuzz.one(([], [fuzz.random.randbytes(9)], [fuzz.one(MANGLED)], [b"\x9b31m", b"\xc2\x9b"]))
    fuzz.random.shuffle(parts)
    return b"".join(parts) * (fuzz.one((1, 4096)) if fuzz.often(0.001) else 1)


def logged(text: str, raw: bytes) -> str:
    record = logging.LogRecord("agent", logging.WARNING, "", 1, "%s: %r", (text, raw[:99]), None)
    record.path = text
    return JsonLines().format(record)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_somebody_calls_himself_stays_text_everywhere(tmp_path: Path) -> None:
    cases, fuzz = seeded("STRINGS", 5_000)
    longest = 0
    (tmp_path / "7").mkdir()
    for _ in range(cases):
        raw = chosen(fuzz)
        longest = max(longest, len(raw))
        text = raw.decode(errors="replace")
        field = np.frombuffer(raw[:16].ljust(16, b"\0"), np.uint8)
        assert comm(field).isprintable()
        (tmp_path / "7" / "comm").write_bytes(raw[:15] + b"\n")
        assert process_name(7, tmp_path).isprintable()
        symbol = readable(raw.partition(b"\0")[0])
        assert symbol.isprintable()
        assert len(symbol) <= NAME_BYTES

        line = logged(text, raw)
        assert line.isascii()
        assert line.isprintable(), "one line, without escapes"
        assert json.loads(line)["path"] == text

        container = Container("main", "ab" * 32, {"service.name": text})
        pod = Pod("u", "shop", "cart-0", (), (container,), {"team": text, text: "x"})
        plan = NodePlan("n1", 1, "", (), (), pods=(pod,))
        attributes = PodResources(plan, {7: Cgroup("u", container.id)}).attributes(7)
        message = ResourceSpans()
        fill(message.resource.attributes, attributes)
        read = ResourceSpans.FromString(message.SerializeToString()).resource.attributes
        assert {one.key: one.value.string_value for one in read}["service.name"] == text
    print(f"the longest has {longest} bytes")
