"""Lines that others have written to folded stacks: folded text, or what `latencyprobe syscalls -o json` prints."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from latencyprobe.wire import UNREADABLE
from latencyprobe_agent.flame.folding import MOST_NS, ON_CPU, OTHER, Folded, add, parse

STACKS = 8  # the longest waits of a call, which `latencyprobe syscalls` prints; with as many there may have been more

NOT_UNDERSTOOD = "lines not understood"


class _Wait(msgspec.Struct):
    waited_ns: int
    frames: list[str]


class _Call(msgspec.Struct):
    """What is read of a line; names are those of `latencyprobe syscalls`."""

    comm: str
    duration_ns: int
    goes_on: bool = False
    kernel_stacks: list[_Wait] = []
    user_stack: list[str] = []


_CALL = msgspec.json.Decoder(_Call)


def read(text: Iterable[str]) -> tuple[Folded, Counter[str]]:
    """Return the stacks, and what is not in them or not whole: lines that are neither form or would bring the sum above
    MOST_NS, calls without a stack."""
    folded: Folded = {}
    missing: Counter[str] = Counter()
    room_ns = MOST_NS
    for line in filter(str.strip, text):
        is_call = line.lstrip().startswith("{")
        ns = _add_call(folded, line, room_ns, missing) if is_call else _add_stack(folded, line, room_ns)
        if ns is None:
            missing[NOT_UNDERSTOOD] += 1
        else:
            room_ns -= ns
    return folded, missing


def _add_stack(folded: Folded, line: str, room_ns: int) -> int | None:
    """Add a folded line. Return its ns; None if it is none, or of more than `room_ns`."""
    found = parse(line)
    if found is None or found[1] > room_ns:
        return None
    stack, ns = found
    folded[stack] = folded.get(stack, 0) + ns
    return ns


def _add_call(folded: Folded, line: str, room_ns: int, missing: Counter[str]) -> int | None:
    """Add a call. Return the ns that were added; None if the line is none, or of more than `room_ns`."""
    try:
        call = _CALL.decode(line)
    except UNREADABLE:
        return None
    if call.goes_on:  # it is told of again when it has ended
        return 0
    waits = [(wait.waited_ns, wait.frames) for wait in call.kernel_stacks if wait.waited_ns > 0]
    rest_ns = call.duration_ns - sum(ns for ns, _ in waits)
    if rest_ns < 0 or call.duration_ns > room_ns:
        return None
    if not waits and not call.user_stack:
        missing["calls without a stack"] += 1
    add(folded, call.comm, call.user_stack, waits, rest_ns=rest_ns, rest=OTHER if len(waits) >= STACKS else ON_CPU)
    return call.duration_ns
