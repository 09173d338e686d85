"""What crosses the pipes between the asking process and the one that knows names: msgpack behind a length."""

import struct
from typing import Final

import msgspec

LENGTH: Final = struct.Struct("<I")
KERNEL: Final = 0  # no process: addresses of the kernel
ADDRESSES_AT_ONCE: Final = 256
NAME_BYTES: Final = 16 << 10  # of one name; a longer one ends with an ellipsis
ANSWER_BYTES: Final = ADDRESSES_AT_ONCE * (NAME_BYTES * 3 + 64)  # a byte that is no text becomes three


class Question(msgspec.Struct, array_like=True, frozen=True):
    """At most ADDRESSES_AT_ONCE addresses of one process, or of the kernel.

    `taken_ns`: boot time of the stack, if known: a process that began later is another one with the same number.
    """

    tgid: int
    addresses: list[int]
    taken_ns: int = 0


class Answer(msgspec.Struct, array_like=True, frozen=True):
    """As many names as addresses; how many have none, by reason."""

    names: list[str]
    unnamed: dict[str, int]


def packed(message: Question | Answer) -> bytes:
    """Return the message as it goes through a pipe."""
    body = msgspec.msgpack.encode(message)
    return LENGTH.pack(len(body)) + body
