"""Evidence on spans: which records become events, in which order, and how stacks are written."""

from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.signals.evidence import Explains
from latencyprobe_agent.telemetry import ragged
from latencyprobe_agent.telemetry.span_evidence import Names, explained, fold
from latencyprobe_agent.telemetry.span_rows import Noted
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.conventions import Event
from latencyprobe_agent.vocabulary.records import FLOW_HEADER
from tests.support.otlp import values

RECORD = np.dtype([("flow", FLOW_HEADER), ("depth", "u1")])
STACKED = Explains(
    event=Event("stacked", "one record"),
    fields=lambda record: {},
    samples=lambda _: [],
    describe=lambda *_: [],
    lasted=lambda half, key: NotImplemented,
    shown=lambda records, wait_ns: np.argsort(-wait_ns)[:2],
    stack=lambda record: (np.arange(int(record["depth"]), dtype=np.uint64) + 1, False),
)


def letters(addresses: Iterable[int]) -> list[str]:
    return [chr(ord("a") + address - 1) for address in addresses]


def events(*records: tuple[int, int], kernel_names: Names = letters) -> list[dict[str, Any]]:
    """Attributes of the events of one span with these records: depth of the stack, and wait in ms."""
    made = np.zeros(len(records), RECORD)
    made["depth"] = [depth for depth, _ in records]
    wait_ns = np.array([ms * 1_000_000 for _, ms in records])
    number = np.array([7], np.uint64)
    noted = Noted(STACKED, np.repeat(number, len(records)), made, wait_ns)
    pieces = explained(number, [noted], 0, kernel_names).pieces
    body = np.empty(ragged.lengths(pieces, 1).sum(), np.uint8)
    ragged.write(body, pieces, np.zeros(1, np.intp))
    return [values(event.attributes) for event in Span.FromString(body.tobytes()).events]


def test_only_the_records_that_the_signal_shows_are_events_in_its_order() -> None:
    found = events((0, 1), (0, 30), (0, 20))
    assert [0.03, 0.02] == [one[names.WAIT] for one in found]


def test_a_stack_is_one_line_outermost_first() -> None:
    ((found),) = events((3, 1))
    assert "c;b;a" == found[names.WAIT_STACK]


def test_a_stack_whose_names_the_kernel_hides_is_left_out() -> None:
    ((found),) = events((3, 1), kernel_names=lambda addresses: ["[unknown]" for _ in addresses])
    assert names.WAIT_STACK not in found
    ((found),) = events((0, 1))
    assert names.WAIT_STACK not in found, "none was taken"


@pytest.mark.parametrize(("functions", "truncated", "text"), [(["b", "a"], True, "…;a;b"), (["b"], False, "b")])
def test_a_stack_that_may_have_more_begins_with_dots(functions: list[str], truncated: bool, text: str) -> None:
    assert text == fold(functions, truncated=truncated)


def test_a_long_stack_keeps_the_functions_nearest_to_the_wait() -> None:
    text = fold([f"function_{number}" for number in range(1000)], truncated=False)
    assert len(text) <= 2002
    assert text.startswith("…;")
    assert text.endswith(";function_1;function_0")
