"""Spans whose stacks take long to name: they come with names, nobody waits for these, and none is lost at the end."""

import threading
from collections.abc import Sequence

import numpy as np
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.identity.resources import FakeResources
from latencyprobe_agent.signals.evidence import Explains, Stack
from latencyprobe_agent.telemetry.naming import Naming
from latencyprobe_agent.telemetry.outbox import FakeOutbox
from latencyprobe_agent.telemetry.span_encoder import Context
from latencyprobe_agent.telemetry.span_rows import ROW, Noted, Peer, Ready, SpanTarget
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Event
from latencyprobe_agent.vocabulary.records import FLOW_HEADER
from tests.support.otlp import spans, values
from tests.support.waiting import wait_until

STACKED = Explains(
    event=Event("stacked", "one record"),
    fields=lambda record: {},
    samples=lambda _: [],
    describe=lambda *_: [],
    stacks=lambda _: [Stack(names.WAIT_USER_STACK, (1, 2), whole=True, tgid=70)],
)
CONTEXT = Context(FakeResources(), 0)


def ready() -> Ready:
    """One span with a stack."""
    rows = np.zeros(1, ROW)
    rows["number"], rows["role"] = 7, 1
    noted = Noted(STACKED, np.array([7], np.uint64), np.zeros(1, np.dtype([("flow", FLOW_HEADER)])), np.zeros(1, "i8"))
    return Ready(rows, [SpanTarget("d/p/t", "p", "t", False)], [Peer("10.0.0.1", None)], (), [noted])


def stacks(outbox: FakeOutbox) -> list[object]:
    """The stack of each span that was sent, None for none."""
    found: list[Span] = [span for _, span in spans(outbox.bodies)]
    events = [event for span in found for event in span.events if event.name == "stacked"]
    return [values(event.attributes).get(names.WAIT_USER_STACK) for event in events]


class Slow:
    """Knows names, once `may` is set."""

    def __init__(self) -> None:
        self.may = threading.Event()
        self.asked = threading.Event()

    def __call__(self, stack: Stack) -> Sequence[str]:
        self.asked.set()
        self.may.wait()
        return ["nap", "main"]


def test_spans_come_with_names_and_who_hands_them_over_does_not_wait() -> None:
    outbox, slow = FakeOutbox(), Slow()
    naming = Naming(outbox, slow)
    naming.put(ready(), CONTEXT)
    assert slow.asked.wait(60)
    assert [] == stacks(outbox)
    slow.may.set()
    wait_until(lambda: ["main;nap"] == stacks(outbox), "it has its names")
    naming.close()
    assert 0 == naming.unnamed


def test_at_the_end_what_has_no_names_yet_goes_out_without_and_once() -> None:
    outbox, slow = FakeOutbox(), Slow()
    naming = Naming(outbox, slow, end_s=0.01)
    naming.put(ready(), CONTEXT)
    naming.put(ready(), CONTEXT)
    assert slow.asked.wait(60)
    naming.close()
    assert [None, None] == stacks(outbox)
    assert 2 == naming.unnamed
    slow.may.set()
    assert naming.ended(60)
    assert [None, None] == stacks(outbox)


def test_when_too_many_wait_further_ones_go_out_without_names() -> None:
    outbox, slow = FakeOutbox(), Slow()
    naming = Naming(outbox, slow, end_s=60)
    for _ in range(18):
        naming.put(ready(), CONTEXT)
    assert [None, None] == stacks(outbox)
    slow.may.set()
    naming.close()
    assert 16 == stacks(outbox).count("main;nap")


def test_names_that_cannot_be_had_cost_no_span() -> None:
    def broken(_: Stack) -> Sequence[str]:
        raise RuntimeError("no names today")

    outbox = FakeOutbox()
    naming = Naming(outbox, broken)
    naming.put(ready(), CONTEXT)
    naming.close()
    assert [None] == stacks(outbox)
    assert 1 == naming.unnamed
