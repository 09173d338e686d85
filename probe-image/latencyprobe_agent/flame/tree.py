"""Folded stacks as one tree, in the order in which it is drawn: each node before its children, children by name."""

from collections.abc import Iterator
from typing import NamedTuple

from latencyprobe_agent.flame.folding import KERNEL, ON_CPU, OTHER, Folded

COMM, USER, BORDER, KERNEL_FRAME, CPU, UNNAMED = range(6)  # what a frame is, for its colour


class Node(NamedTuple):
    """A frame below the frames above it. `ns`: with all below it; `end`: the index behind its last descendant."""

    name: str
    kind: int
    depth: int
    start_ns: int
    ns: int
    end: int


def tree(folded: Folded) -> list[Node]:
    """Return the nodes in preorder; depth 0 are the first frames. Empty for no stacks."""
    stacks = sorted((stack, ns) for stack, ns in folded.items() if ns > 0)
    nodes: list[Node] = []
    open_at: list[int] = []  # indices of the frames of the stack before
    start = 0

    def close(depth: int) -> None:
        while len(open_at) > depth:
            at = open_at.pop()
            node = nodes[at]
            nodes[at] = node._replace(ns=start - node.start_ns, end=len(nodes))

    for stack, ns in stacks:
        shared = 0
        while shared < min(len(open_at), len(stack)) and nodes[open_at[shared]].name == stack[shared]:
            shared += 1
        close(shared)
        for depth, kind in enumerate(kinds(stack)):
            if depth >= shared:
                open_at.append(len(nodes))
                nodes.append(Node(stack[depth], kind, depth, start, 0, 0))
        start += ns
    close(0)
    return nodes


def kinds(stack: tuple[str, ...]) -> Iterator[int]:
    """Yield what each frame of a stack is."""
    below_border = False
    for depth, name in enumerate(stack):
        if depth == 0 and name.startswith("["):
            yield COMM
        elif name in (ON_CPU, OTHER):
            yield CPU
        elif name == KERNEL and not below_border:
            below_border = True
            yield BORDER
        elif name == "[unknown]" or "+0x" in name or name.endswith(".so()"):
            yield UNNAMED
        else:
            yield KERNEL_FRAME if below_border else USER
