"""Calls as folded stacks: each call weighs its duration, spread over the stacks that were seen of it.

docs/design/flame.md, "Weights".
"""

from collections.abc import Iterable, Iterator, Sequence

from latencyprobe.text import frame

ON_CPU = "[oncpu]"
OTHER = "[other]"  # of a call whose shorter waits are not in the input
KERNEL = "-"  # between the frames of the program and those of the kernel

Frames = tuple[str, ...]  # root to leaf
Folded = dict[Frames, int]  # ns
MOST_NS = 2**63 - 1  # of all stacks: the numbers of a profile of pprof


def weights(duration_ns: int, elapsed_ns: Iterable[int]) -> Iterator[int]:
    """Yield the weight of each stack, then what remains: their sum is the duration.

    `elapsed_ns`: since the beginning of the call, oldest first. A stack weighs the time since the one before it.
    """
    before = 0
    for elapsed in elapsed_ns:
        now = min(max(elapsed, before), duration_ns)
        yield now - before
        before = now
    yield duration_ns - before


def add(
    folded: Folded,
    comm: str,
    user: Sequence[str],
    kernel: Iterable[tuple[int, Sequence[str]]],
    *,
    rest_ns: int,
    rest: str = ON_CPU,
) -> None:
    """Add one call. `user`, and in `kernel` each (ns, frames): leaf first. `rest_ns`: of it that no stack has."""
    above = (f"[{frame(comm)}]", *map(frame, reversed(user)), KERNEL)
    for ns, frames in (*kernel, (rest_ns, (rest,))):
        if ns > 0:
            stack = (*above, *map(frame, reversed(frames)))
            folded[stack] = folded.get(stack, 0) + ns


def lines(folded: Folded) -> Iterator[str]:
    """Yield `frame;frame ns`, in order of the frames."""
    for stack in sorted(folded):
        yield f"{';'.join(stack)} {folded[stack]}"


def parse(line: str) -> tuple[Frames, int] | None:
    """Return frames and ns of a folded line; None if it is none, or of more digits than MOST_NS."""
    stack, _, ns = line.rstrip().rpartition(" ")
    frames = tuple(stack.split(";"))
    is_number = ns.isascii() and ns.isdigit() and len(ns) <= len(str(MOST_NS))
    return (tuple(map(frame, frames)), int(ns)) if all(frames) and is_number else None
