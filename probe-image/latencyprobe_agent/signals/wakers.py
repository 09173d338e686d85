"""More that `waits` tells of one wait: where its thread was, in the kernel and in its program, and who ended it."""

from collections.abc import Mapping

import numpy as np

from latencyprobe_agent.signals.evidence import Stack
from latencyprobe_agent.vocabulary import conventions as names
from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.conventions import Attribute, AttributeValue
from latencyprobe_agent.vocabulary.records import WaitFlags, WakerKind

_LOCKS = {"futex", "futex_wait", "futex_waitv"}
_NAMED_WAKERS = {
    WakerKind.THREAD: 'thread "{}"',
    WakerKind.PROCESS: 'process "{}"',
    WakerKind.KERNEL: 'kernel thread "{}"',
}
_NAMELESS_WAKERS = {WakerKind.OUTSIDE: "another container", WakerKind.INTERRUPT: "an interrupt"}


def attributes_of_waker(record: np.void) -> Mapping[Attribute, AttributeValue]:
    """Return the attributes of a wait's span event that tell who ended it."""
    kind = WakerKind(record["waker"]["kind"])
    if not kind:
        return {}
    found: dict[Attribute, AttributeValue] = {names.WAIT_WAKER: kind.name.lower()}
    if kind in _NAMED_WAKERS:
        found[names.WAIT_WAKER_NAME] = comm(record["waker"]["comm"])
        found[names.WAIT_WAKER_ID] = int(record["waker"]["tid"])
    return found


def stacks(record: np.void) -> list[Stack]:
    """Return where a thread waited in the kernel, in its program, and where its waker was in its own."""
    flags, began_ns, waker = record["flags"], int(record["start_ns"]), record["waker"]

    def frames(of: str, count: str) -> tuple[int, ...]:
        return tuple(record[of][: int(record[count])].tolist())

    return [
        Stack(names.WAIT_STACK, frames("stack", "frames"), not flags & WaitFlags.TRUNCATED),
        Stack(
            names.WAIT_USER_STACK,
            frames("user_stack", "user_frames"),
            bool(flags & WaitFlags.USER_COMPLETE),
            int(record["flow"]["owner_tgid"]),
            began_ns,
            names.WAIT_USER_STACK_COMPLETE,
        ),
        Stack(
            names.WAIT_WAKER_STACK,
            frames("waker_stack", "waker_frames"),
            bool(flags & WaitFlags.WAKER_COMPLETE),
            int(waker["tgid"]),
            began_ns + int(record["blocked_ns"]),
            names.WAIT_WAKER_STACK_COMPLETE,
        ),
    ]


def woken_by(record: np.void) -> str:
    """Return who ended a wait, in words: `thread "gc"`; empty where that is not known."""
    kind = WakerKind(record["waker"]["kind"])
    if kind in _NAMED_WAKERS:
        return _NAMED_WAKERS[kind].format(comm(record["waker"]["comm"]))
    return _NAMELESS_WAKERS.get(kind, "")


def with_waker(record: np.void, found: list[tuple[str, int, int]]) -> list[tuple[str, int, int]]:
    """Return causes of a request's time, of which a lock says who ended its wait, or the longest of several."""
    by, locks = woken_by(record), [name for name, *_ in found if name in _LOCKS]
    if not by or len(locks) != 1:
        return found
    return [
        (f"{name} ({'longest ' if count > 1 else ''}woken by {by})" if name in _LOCKS else name, count, ns)
        for name, count, ns in found
    ]
