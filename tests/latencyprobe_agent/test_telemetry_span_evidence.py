"""Evidence on spans: which records become events, in which order, and how stacks are written."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from latencyprobe_agent.signals.evidence import Explains, Stack
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
    stacks=lambda record: [Stack(names.WAIT_STACK, tuple(range(1, int(record["depth"]) + 1)), whole=True)],
)


def user_stack(*, whole: bool) -> Explains:
    """Records of which each has a stack of a program."""

    def stacks(record: np.void) -> list[Stack]:
        addresses = tuple(range(1, int(record["depth"]) + 1))
        return [Stack(names.WAIT_USER_STACK, addresses, whole, 70, 5, names.WAIT_USER_STACK_COMPLETE)]

    return replace(STACKED, stacks=stacks)


def letters(addresses: Iterable[int]) -> list[str]:
    return [chr(ord("a") + address - 1) for address in addresses]


LETTERS = Names(letters)


def events(*records: tuple[int, int], naming: Names = LETTERS, explains: Explains = STACKED) -> list[dict[str, Any]]:
    """Attributes of the events of one span with these records: depth of the stack, and wait in ms."""
    made = np.zeros(len(records), RECORD)
    made["depth"] = [depth for depth, _ in records]
    wait_ns = np.array([ms * 1_000_000 for _, ms in records])
    number = np.array([7], np.uint64)
    noted = Noted(explains, np.repeat(number, len(records)), made, wait_ns)
    pieces = explained(number, [noted], 0, naming).pieces
    body = np.empty(ragged.lengths([pieces], 1).sum(), np.uint8)
    ragged.write(body, [pieces], np.zeros(1, np.intp))
    return [values(event.attributes) for event in Span.FromString(body.tobytes()).events]


def test_only_the_records_that_the_signal_shows_are_events_in_its_order() -> None:
    found = events((0, 1), (0, 30), (0, 20))
    assert [0.03, 0.02] == [one[names.WAIT] for one in found]


def test_a_stack_is_one_line_outermost_first() -> None:
    ((found),) = events((3, 1))
    assert "c;b;a" == found[names.WAIT_STACK]


def test_a_stack_whose_names_the_kernel_hides_is_left_out() -> None:
    ((found),) = events((3, 1), naming=Names(lambda addresses: ["[unknown]" for _ in addresses]))
    assert names.WAIT_STACK not in found
    ((found),) = events((0, 1))
    assert names.WAIT_STACK not in found, "none was taken"


@pytest.mark.parametrize(
    ("functions", "whole", "text", "complete"),
    [
        (["nap", "serve", "entry"], True, "entry;serve;nap", True),
        (["nap", "[unknown]", "entry"], True, "…;entry;[unknown];nap", False),
        (["nap", "serve"], False, "…;serve;nap", False),
        (["nap", "[unknown]", "serve"], False, "…;nap", False),  # what follows no frame is no caller
    ],
)
def test_a_stack_of_a_program_says_whether_it_is_whole(
    functions: list[str], whole: bool, text: str, complete: bool
) -> None:
    asked: list[tuple[int, int]] = []

    def user(stack: Stack) -> list[str]:
        asked.append((stack.tgid, stack.taken_ns))
        return functions

    naming = Names(letters, user)
    ((found),) = events((len(functions), 1), naming=naming, explains=user_stack(whole=whole))
    assert (text, complete) == (found[names.WAIT_USER_STACK], found[names.WAIT_USER_STACK_COMPLETE])
    assert [(70, 5)] == asked


@pytest.mark.parametrize("functions", [[], ["[unknown]", "[unknown]"]])
def test_a_stack_of_a_program_that_nobody_can_name_is_left_out(functions: list[str]) -> None:
    naming = Names(letters, lambda _: functions)
    ((found),) = events((2, 1), naming=naming, explains=user_stack(whole=True))
    assert names.WAIT_USER_STACK not in found
    assert names.WAIT_USER_STACK_COMPLETE not in found


@pytest.mark.parametrize(("functions", "truncated", "text"), [(["b", "a"], True, "…;a;b"), (["b"], False, "b")])
def test_a_stack_that_may_have_more_begins_with_dots(functions: list[str], truncated: bool, text: str) -> None:
    assert text == fold(functions, truncated=truncated)


def test_a_folded_stack_has_as_many_parts_as_functions() -> None:
    """As perf-map-agent and Rust name them."""
    functions = ["Ljava/util/HashMap;::get", "<[u8; 4] as core::fmt::Debug>::fmt", "main"]
    assert "main;<[u8: 4] as core::fmt::Debug>::fmt;Ljava/util/HashMap:::get" == fold(functions, truncated=False)


def test_a_long_stack_keeps_the_functions_nearest_to_the_wait() -> None:
    text = fold([f"function_{number}" for number in range(1000)], truncated=False)
    assert len(text) <= 2002
    assert text.startswith("…;")
    assert text.endswith(";function_1;function_0")
