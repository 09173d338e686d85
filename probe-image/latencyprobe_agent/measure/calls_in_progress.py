"""System calls as a tracker tells of them: what was sampled while one went on, matched with the call once it has ended.

Receives batches of two rings, the records and the stacks, returns finished calls. Called by the live tools.
"""

from typing import NamedTuple


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
    user: tuple[int, ...]
    kernel: tuple[tuple[int, tuple[int, ...]], ...]
