"""Bytes of a file as a crash of the host, or a disk, may leave them: cut, bits turned, a page of zeros."""

from collections.abc import Iterator

from tests.support.fuzz import Fuzz

PAGE = 4096


def damaged(content: bytes, cases: int, fuzz: Fuzz) -> Iterator[bytes]:
    """Yield so many damaged copies, half of them with one byte changed: spread over the whole, and over its first page
    more closely."""
    for case in range(cases):
        within = min(PAGE, len(content)) if case % 4 == 0 else len(content)
        at = fuzz.random.randrange(within)
        match case % 8:
            case 0 | 1:
                yield content[:at]
            case 2 | 3:
                yield content[:at] + bytes(len(content[at : at + PAGE])) + content[at + PAGE :]
            case _:
                yield content[:at] + bytes([content[at] ^ fuzz.one((1, 0x80, 0xFF))]) + content[at + 1 :]
