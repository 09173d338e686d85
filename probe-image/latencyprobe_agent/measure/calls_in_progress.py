"""What was sampled while a call or wait went on, kept until it has ended and its record says whether it was worth it.

Receives batches of two rings, the records (TRACKED) and the stacks (TRACKED_STACK), and gives each call its own stacks.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from latencyprobe_agent.vocabulary.comm import comm
from latencyprobe_agent.vocabulary.records import StackKind, StackWalkFlags, TrackedFlag

Addresses = tuple[int, ...]
_PER_CALL = 256  # kernel stacks: of a call that waits more often, every second one goes, again and again
_HEAD = ("tid", "start_ns", "kind", "flags", "elapsed_ns", "frames")
_ALL = 16_384  # stacks of all that goes on, of some 20 frames: 5 MB


class Call(NamedTuple):
    """A system call that has ended. Times: ns of boot time; addresses: leaf first.

    `nr`: its number; `user`: the stack that made it, as far as it could be walked, empty if none was taken;
    `kernel`: what it waited in, as (ns since `start_ns`, addresses), oldest first.
    """

    comm: str
    tgid: int
    tid: int
    start_ns: int
    duration_ns: int
    nr: int
    user: Addresses
    kernel: tuple[tuple[int, Addresses], ...]


class Stacks(NamedTuple):
    """Stacks of one call or wait. `kernel`: as in `Call`; `user`, `waker`: empty if none came.

    `user_complete`: the walk reached the thread's first frame, by frame pointers; `truncated`: one of them had more
    frames than are walked; `woken_by`: comm, tgid and tid of the waker, whose stack `waker` is.
    """

    kernel: tuple[tuple[int, Addresses], ...] = ()
    user: Addresses = ()
    waker: Addresses = ()
    user_complete: bool = False
    truncated: bool = False
    woken_by: tuple[str, int, int] | None = None


class _Kept(NamedTuple):
    """A stack without the room that its record has for more frames."""

    kind: int
    flags: int
    elapsed_ns: int
    packed: bytes

    @property
    def addresses(self) -> Addresses:
        return tuple(np.frombuffer(self.packed, np.uint64).tolist())


def by_weight(kernel: tuple[tuple[int, Addresses], ...]) -> list[tuple[int, Addresses]]:
    """Return (ns, addresses) of each stack that a call waited in, the longest first; equal ones are one.

    A stack weighs what went by since the one before it: its thread runs again at the moment that it is taken.
    """
    weights: dict[Addresses, int] = {}
    before_ns = 0
    for elapsed_ns, addresses in kernel:
        weights[addresses] = weights.get(addresses, 0) + elapsed_ns - before_ns
        before_ns = elapsed_ns
    return sorted(((ns, addresses) for addresses, ns in weights.items()), key=lambda one: -one[0])


class CallsInProgress:
    """Stacks of what goes on, by thread and start. Bounded; `dropped` counts the stacks that there was no room for."""

    def __init__(self, per_call: int = _PER_CALL, limit: int = _ALL) -> None:
        self._per_call = per_call
        self._limit = limit
        self._kept: dict[tuple[int, int], list[_Kept]] = {}
        self._wakers: dict[tuple[int, int], tuple[str, int, int]] = {}
        self._size = 0
        self.dropped = 0

    def __len__(self) -> int:
        """How many stacks are kept."""
        return self._size

    def keep(self, stacks: NDArray[np.void]) -> None:
        """Keep stacks until their call ends; the oldest calls go where there are too many."""
        heads = zip(*(stacks[name].tolist() for name in _HEAD), strict=True)
        for (tid, start_ns, kind, flags, elapsed_ns, frames), addresses in zip(heads, stacks["address"], strict=True):
            of = self._kept.setdefault((tid, start_ns), [])
            of.append(_Kept(kind, flags, elapsed_ns, addresses[:frames].tobytes()))
            self._size += 1
            if len(of) > self._per_call:  # the latest stays: what came before it is told of as if it was the same
                thinned = of[-1::-2][::-1]
                self._let_go(len(of) - len(thinned))
                of[:] = thinned
        while self._size > self._limit:
            oldest = next(iter(self._kept))
            self._let_go(len(self._kept.pop(oldest)))

    def take(self, record: np.void) -> Stacks:
        """Return the stacks of what this record says to have ended; they are kept no longer. Of what goes on, none."""
        if record["flag"] == TrackedFlag.TIMEOUT:
            return Stacks()
        key = int(record["tid"]), int(record["start_ns"])
        of = self._kept.pop(key, [])
        self._size -= len(of)
        user = next((stack for stack in of if stack.kind == StackKind.USER), None)
        waker = next((stack for stack in of if stack.kind == StackKind.WAKER), None)
        return Stacks(
            tuple((stack.elapsed_ns, stack.addresses) for stack in of if stack.kind == StackKind.KERNEL),
            user.addresses if user else (),
            waker.addresses if waker else (),
            bool(user and user.flags & StackWalkFlags.COMPLETE),
            any(stack.flags & StackWalkFlags.TRUNCATED for stack in of),
            self._wakers.pop(key, None),
        )

    def ended(self, records: NDArray[np.void]) -> Iterator[tuple[np.void, Stacks]]:
        """Yield what is to be reported, each with its stacks; let go of those of the rest."""
        for record in records:
            if record["flag"] == TrackedFlag.WAKER:
                self._remember_waker(record)
                continue
            stacks = self.take(record)
            if record["flag"] not in (TrackedFlag.LET_GO, TrackedFlag.GC):
                yield record, stacks

    def _remember_waker(self, record: np.void) -> None:
        woken = int(record["payload"][0]), int(record["start_ns"])
        self._wakers.setdefault(woken, (comm(record["comm"]), int(record["tgid"]), int(record["tid"])))
        if len(self._wakers) > self._limit:
            self._wakers.pop(next(iter(self._wakers)))

    def _let_go(self, n: int) -> None:
        self._size -= n
        self.dropped += n


def call(record: np.void, stacks: Stacks) -> Call:
    """Return a system call's record and stacks as one value."""
    return Call(
        comm(record["comm"]),
        int(record["tgid"]),
        int(record["tid"]),
        int(record["start_ns"]),
        int(record["duration_ns"]),
        int(record["payload"][0]),
        stacks.user,
        stacks.kernel,
    )
