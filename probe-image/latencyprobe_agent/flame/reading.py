"""Lines that others have written to folded stacks: folded text, or what `latencyprobe syscalls -o json` prints."""

from collections import Counter
from collections.abc import Iterable

import msgspec

from latencyprobe_agent.flame.folding import ON_CPU, OTHER, Folded, add, parse

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


def read(text: Iterable[str]) -> tuple[Folded, Counter[str]]:
    """Return the stacks, and what is not in them or not whole: lines that are neither form, calls without a stack."""
    folded: Folded = {}
    missing: Counter[str] = Counter()
    decoder = msgspec.json.Decoder(_Call)
    for line in text:
        if not line.strip():
            continue
        if line.lstrip().startswith("{"):
            try:
                call = decoder.decode(line)
            except msgspec.DecodeError:
                missing[NOT_UNDERSTOOD] += 1
                continue
            _add(folded, call, missing)
        elif found := parse(line):
            stack, ns = found
            folded[stack] = folded.get(stack, 0) + ns
        else:
            missing[NOT_UNDERSTOOD] += 1
    return folded, missing


def _add(folded: Folded, call: _Call, missing: Counter[str]) -> None:
    if call.goes_on:  # it is told of again when it has ended
        return
    waits = [(wait.waited_ns, wait.frames) for wait in call.kernel_stacks if wait.waited_ns > 0]
    rest_ns = call.duration_ns - sum(ns for ns, _ in waits)
    if rest_ns < 0:
        missing[NOT_UNDERSTOOD] += 1
        return
    if not waits and not call.user_stack:
        missing["calls without a stack"] += 1
    add(folded, call.comm, call.user_stack, waits, rest_ns=rest_ns, rest=OTHER if len(waits) >= STACKS else ON_CPU)
