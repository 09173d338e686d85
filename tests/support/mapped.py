"""Processes with chosen code in a root of their own, and ELF files as hostile as they need to be."""

import shutil
import struct
import subprocess
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).with_name("mapper.c")
CODE = 0x1000  # where functions of an ELF file of `elf()` begin, in the file and in memory


class Mapped(NamedTuple):
    """`addresses`: where each file is mapped."""

    pid: int
    addresses: list[int]


def build(folder: Path) -> Path:
    """Compile the program that maps; static, for it goes into roots without libraries."""
    binary = folder / "mapper"
    if not binary.exists():
        subprocess.run(["cc", "-O1", "-static", "-Wall", "-Werror", "-o", binary, SOURCE], check=True)
    return binary


@contextmanager
def mapping(mapper: Path, root: Path | None, files: Iterable[str], *, later: str = "-") -> Iterator[Mapped]:
    """A process that has mapped these files; paths are as in its root. `later`: a folder of it, its root since."""
    command = [mapper, root or "-", later, *files]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        said = []
        while (line := process.stdout.readline().strip()) and line != "ready":
            said.append(int(line, 16))
        assert line == "ready"
        try:
            yield Mapped(process.pid, said)
        finally:
            process.kill()


def elf(names: Iterable[bytes], *, table: bytes | None = None, strings: bytes | None = None, link: int = 2) -> bytes:
    """Return a shared object whose functions are 16 bytes each from CODE on. `table`, `strings`: instead of theirs."""
    if strings is None:
        strings = b"\0" + b"".join(name + b"\0" for name in names)
    if table is None:
        at, entries = 1, [bytes(24)]
        for i, name in enumerate(names):
            entries.append(struct.pack("<IBBHQQ", at, 0x12, 0, 1, CODE + 16 * i, 16))
            at += len(name) + 1
        table = b"".join(entries)
    offset = 0x2000
    sections = [
        struct.pack("<IIQQQQIIQQ", 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
        struct.pack("<IIQQQQIIQQ", 0, 2, 0, 0, offset, len(table), link, 0, 8, 24),  # SHT_SYMTAB
        struct.pack("<IIQQQQIIQQ", 0, 3, 0, 0, offset + len(table), len(strings), 0, 0, 1, 0),  # SHT_STRTAB
    ]
    load = struct.pack("<IIQQQQQQ", 1, 5, 0, 0, 0, 0x2000, 0x2000, 0x1000)
    headers = offset + len(table) + len(strings)
    ident = b"\x7fELF\x02\x01\x01" + bytes(9)
    header = ident + struct.pack("<HHIQQQIHHHHHH", 3, 62, 1, 0, 64, headers, 0, 64, 56, 1, 64, len(sections), 2)
    return (header + load).ljust(offset, b"\0") + table + strings + b"".join(sections)


def fresh(root: Path) -> Path:
    """Return an empty folder for a root."""
    shutil.rmtree(root, ignore_errors=True)
    root.mkdir(parents=True)
    return root
