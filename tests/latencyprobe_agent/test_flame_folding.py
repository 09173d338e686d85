"""Weights of stacks, folded lines, and what is read of lines that others wrote."""

import gzip

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.flame import pprof
from latencyprobe_agent.flame.folding import Folded, add, lines, parse, weights
from latencyprobe_agent.flame.reading import read
from latencyprobe_agent.flame.tree import BORDER, COMM, CPU, KERNEL_FRAME, UNNAMED, USER, kinds, tree

NS = st.integers(0, 10**12)
NAMES = st.text(min_size=1, max_size=12)
STACKS = st.lists(NAMES, max_size=5)
CALLS = st.lists(
    st.tuples(NAMES, NS, STACKS, st.lists(st.tuples(NS, STACKS), max_size=4), st.booleans()), max_size=20
)  # comm, duration, user, kernel by ns since the beginning, in order or not


def folded_of(calls) -> Folded:
    folded: Folded = {}
    for comm, duration_ns, user, kernel, in_order in calls:
        seen = sorted(kernel) if in_order else kernel
        *each, rest = weights(duration_ns, [elapsed for elapsed, _ in seen])
        add(folded, comm, user, [(ns, frames) for ns, (_, frames) in zip(each, seen, strict=True)], rest_ns=rest)
    return folded


@given(NS, st.lists(NS))
def test_the_weights_of_a_call_are_its_duration(duration_ns, elapsed_ns) -> None:
    found = list(weights(duration_ns, elapsed_ns))
    assert duration_ns == sum(found)
    assert len(elapsed_ns) + 1 == len(found)
    assert min(found) >= 0


def test_a_stack_weighs_the_time_since_the_one_before_it() -> None:
    assert [3, 4, 2] == list(weights(9, [3, 7]))
    assert [9] == list(weights(9, []))


@given(CALLS)
def test_the_weights_of_a_graph_are_the_durations_of_its_calls(calls) -> None:
    folded = folded_of(calls)
    total = sum(duration_ns for _, duration_ns, *_ in calls)
    assert total == sum(folded.values())
    assert total == sum(node.ns for node in tree(folded) if node.depth == 0)
    print(f"{len(calls)} calls, {total} ns in {len(folded)} stacks")


@given(CALLS)
def test_folded_lines_read_back_are_the_same_stacks(calls) -> None:
    folded = folded_of(calls)
    assert (folded, {}) == read(lines(folded))


def test_the_published_example() -> None:
    """latency_tracker's: https://lttng.org/blog/2015/07/21/full-stack-latencies; frames of older kernels."""
    published = (
        "[sleep-demo];__libc_start_main;main;Recursive;Recursive;Recursive;Recursive;Recursive;Recursive;usleep;nanosleep"
        ";-;tracesys;SyS_nanosleep;hrtimer_nanosleep;do_nanosleep;schedule 27600779336"
    )
    user = ["nanosleep", "usleep", *["Recursive"] * 6, "main", "__libc_start_main"]
    kernel = ["schedule", "do_nanosleep", "hrtimer_nanosleep", "SyS_nanosleep", "tracesys"]
    folded: Folded = {}
    add(folded, "sleep-demo", user, [(27600779336, kernel)], rest_ns=0)
    assert [published] == list(lines(folded))
    assert (folded, {}) == read([published])


def test_what_remains_after_the_last_stack_ran_and_equal_stacks_are_one() -> None:
    folded: Folded = {}
    add(folded, "redis", ["write", "main"], [(5, ["schedule", "entry"]), (0, ["never"])], rest_ns=2)
    add(folded, "redis", ["write", "main"], [(6, ["schedule", "entry"])], rest_ns=3)
    add(folded, "redis", [], [], rest_ns=7)
    assert ["[redis];-;[oncpu] 7", "[redis];main;write;-;[oncpu] 5", "[redis];main;write;-;entry;schedule 11"] == list(
        lines(folded)
    )


def test_names_end_neither_frames_nor_lines() -> None:
    folded: Folded = {}
    add(folded, "a;b\nc", ["f(int; 1)", ""], [(1, ["operator new [] 7"])], rest_ns=0)
    assert ["[a:b\ufffdc];?;f(int: 1);-;operator new [] 7 1"] == list(lines(folded))


def test_only_folded_lines_are_parsed() -> None:
    assert parse("a;b c 12\n") == (("a", "b c"), 12)
    for line in ("a", "a;b", "a;;b 1", "a -1", "a 1.5", " 5", "a ²"):
        assert parse(line) is None, line


def call(**fields) -> str:
    return msgspec.json.encode({"comm": "pg", "duration_ns": 10, "tid": 7, "syscall": "fsync", **fields}).decode()


def test_calls_as_the_tool_prints_them() -> None:
    wait = {"waited_ns": 8, "frames": ["schedule", "fsync"]}
    folded, missing = read(
        [
            call(kernel_stacks=[wait], user_stack=["fsync", "main"], user_stack_complete=True),
            call(kernel_stacks=[wait], user_stack=["fsync", "main"], goes_on=True),
            "",
            call(),
        ]
    )
    assert ["[pg];-;[oncpu] 10", "[pg];main;fsync;-;[oncpu] 2", "[pg];main;fsync;-;fsync;schedule 8"] == list(
        lines(folded)
    )
    assert {"calls without a stack": 1} == missing


def test_of_a_call_with_more_waits_than_are_printed_the_rest_is_other() -> None:
    waits = [{"waited_ns": 1, "frames": [f"f{i}"]} for i in range(8)]
    folded, _ = read([call(kernel_stacks=waits)])
    assert 2 == folded["[pg]", "-", "[other]"]
    assert 10 == sum(folded.values())


def test_lines_of_no_form_are_counted() -> None:
    bad = ["no stack", "{", '{"comm": 5}', call(kernel_stacks=[{"waited_ns": 11, "frames": ["f"]}]), "[]"]
    assert ({}, {"lines not understood": 5}) == read(bad)


@pytest.mark.parametrize("ns", [str(2**63), "9" * 19, "9" * 20, "9" * 5000], ids=["2^63", "19", "20", "5,000 digits"])
def test_a_number_that_is_too_large_for_a_picture_is_not_understood(ns: str) -> None:
    too_large = [f"a;b {ns}", call().replace(":10,", f":{ns},")]
    assert ({("c",): 1}, {"lines not understood": 2}) == read([*too_large, "c 1"])


def test_a_line_of_json_that_is_nested_without_end_is_not_understood() -> None:
    assert ({("c",): 1}, {"lines not understood": 1}) == read(['{"more":' * 100_000, "c 1"])


def test_a_line_with_which_the_sum_is_too_large_for_a_picture_is_not_understood() -> None:
    most = 2**63 - 1
    assert ({("a", "b"): most}, {}) == read([f"a;b {most}"])
    too_much = ["a;b 21", "c 21", call(duration_ns=21)]
    folded, missing = read([f"a;b {most - 20}", *too_much, call(user_stack=["f"]), "a;b 10", "c 1"])
    assert {"lines not understood": 4} == missing
    assert {("a", "b"): most - 10, ("[pg]", "f", "-", "[oncpu]"): 10} == folded
    assert gzip.decompress(pprof.encode(folded))


def test_a_tree_has_each_frame_once_below_its_parent() -> None:
    nodes = tree({("[a]", "main", "-", "x"): 4, ("[a]", "main"): 1, ("[a]", "other"): 2, ("[b]",): 3})
    seen = [(node.name, node.depth, node.start_ns, node.ns, node.end) for node in nodes]
    assert [
        ("[a]", 0, 0, 7, 5),
        ("main", 1, 0, 5, 4),
        ("-", 2, 1, 4, 4),
        ("x", 3, 1, 4, 4),
        ("other", 1, 5, 2, 5),
        ("[b]", 0, 7, 3, 6),
    ] == seen


def test_what_frames_are() -> None:
    stack = ("[pg]", "main", "-f", "[unknown]", "libz.so+0x12", "libz.so()", "-", "-", "[oncpu]")
    assert [COMM, USER, USER, UNNAMED, UNNAMED, UNNAMED, BORDER, KERNEL_FRAME, CPU] == list(kinds(stack))
