"""What a JIT says about its code: /tmp/perf-PID.map, lines of start, size (hexadecimal) and name."""

import os
from collections.abc import Iterable

_BYTES = 32 << 20


def functions(descriptor: int, addresses: Iterable[int]) -> dict[int, bytes]:
    """Return the raw name of the code around each address; of several the last one, which replaced the others."""
    asked = sorted(set(addresses))
    lowest, highest = asked[0], asked[-1]
    found: dict[int, bytes] = {}
    rest, read = b"", 0
    while read < _BYTES and (piece := os.read(descriptor, 1 << 16)):
        read += len(piece)
        *lines, rest = (rest + piece).split(b"\n")
        rest = rest[-(1 << 16) :]
        for line in lines:
            start, _, more = line.partition(b" ")
            size, _, name = more.partition(b" ")
            try:
                begin = int(start, 16)
                end = begin + int(size, 16)
            except ValueError:
                continue
            if begin <= highest and lowest < end:
                found.update((address, name) for address in asked if begin <= address < end)
    return found
