"""Functions of an ELF file by address, read from a descriptor and from nothing else.

Memory does not grow with the file: tables are read piece by piece, and only names that are asked for are read at all.
"""

import os
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from elftools.common.exceptions import ELFError
from elftools.construct import ConstructError
from elftools.elf.elffile import ELFFile
from elftools.elf.sections import NoteSection

from latencyprobe_agent.symbols.messages import NAME_BYTES

_FUNC, _GNU_IFUNC, _UNDEFINED = 2, 10, 0  # elf.h: STT_FUNC, STT_GNU_IFUNC, SHN_UNDEF
_AT_ONCE = 1 << 15  # entries of a symbol table, 768 KiB
_ALIASES = 64
_BUILD_ID_BYTES = 64
_WRONG = (ELFError, ConstructError, ValueError, OverflowError, LookupError, TypeError, AttributeError, RecursionError)


class NotElf(Exception):  # noqa: N818 - a state of the file
    """The file is none that has symbols, or is damaged."""


class ElfFile:
    """One file. `descriptor` stays the caller's. Methods raise NotElf and OSError."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        try:
            self._elf = ELFFile(open(descriptor, "rb", closefd=False))  # noqa: SIM115 - the caller's
            self._entry = _entry_type(self._elf.elfclass, little=self._elf.little_endian)
        except _WRONG as error:
            raise NotElf(str(error)) from error

    def virtual(self, file_offset: int) -> int | None:
        """Return the address that the file itself gives to one of its bytes. Raises NotElf."""
        try:
            for segment in self._elf.iter_segments(type="PT_LOAD"):
                begin = segment["p_offset"]
                if begin <= file_offset < begin + segment["p_filesz"]:
                    return int(segment["p_vaddr"]) + file_offset - int(begin)
        except _WRONG as error:
            raise NotElf(str(error)) from error
        return None

    def build_id(self) -> str:
        """Return it in hexadecimal, empty if there is none. Raises NotElf."""
        try:
            for section in self._elf.iter_sections(type="SHT_NOTE"):
                if isinstance(section, NoteSection) and section["sh_size"] <= 1 << 16:
                    for note in section.iter_notes():
                        if note["n_type"] == "NT_GNU_BUILD_ID" and len(note["n_desc"]) <= 2 * _BUILD_ID_BYTES:
                            return bytes.fromhex(note["n_desc"]).hex()
        except _WRONG as error:
            raise NotElf(str(error)) from error
        return ""

    def functions(self, addresses: Sequence[int]) -> dict[int, bytes]:
        """Return the raw name of the function around each of these addresses that lies inside of one.

        .symtab before .dynsym; the function that starts last; of its names the one with fewest leading underscores.
        Raises NotElf.
        """
        found: dict[int, bytes] = {}
        try:
            for kind in ("SHT_SYMTAB", "SHT_DYNSYM"):
                for section in self._elf.iter_sections(type=kind):
                    if missing := [address for address in addresses if address not in found]:
                        strings = self._elf.get_section(section["sh_link"])
                        found |= self._search(section["sh_offset"], section["sh_size"], missing, strings["sh_offset"])
        except _WRONG as error:
            raise NotElf(str(error)) from error
        return found

    def _search(self, offset: int, size: int, addresses: list[int], strings: int) -> dict[int, bytes]:
        asked = np.array(sorted(set(addresses)), np.uint64)
        starts: dict[int, int] = {}
        names: dict[int, list[int]] = {}
        for entries in self._entries(offset, size):
            kind = entries["info"] & 15
            function = ((kind == _FUNC) | (kind == _GNU_IFUNC)) & (entries["shndx"] != _UNDEFINED)
            start = entries["value"].astype(np.uint64)
            begin = np.searchsorted(asked, start)
            end = np.searchsorted(asked, start + entries["size"].astype(np.uint64))
            for i in np.flatnonzero(function & (begin < end)).tolist():
                for address in asked[begin[i] : end[i]].tolist():
                    if int(start[i]) > starts.get(address, -1):
                        starts[address], names[address] = int(start[i]), []
                    if int(start[i]) == starts[address] and len(names[address]) < _ALIASES:
                        names[address].append(int(entries["name"][i]))
        read = {address: [self._string(strings + at) for at in at_all] for address, at_all in names.items()}
        return {address: min(named, key=_plainness) for address, named in read.items() if any(named)}

    def _entries(self, offset: int, size: int) -> Iterator[Any]:
        step = self._entry.itemsize
        while size >= step:
            piece = os.pread(self._descriptor, min(size, _AT_ONCE * step), offset)
            whole = len(piece) // step
            if not whole:
                return
            yield np.frombuffer(piece, self._entry, whole)
            offset, size = offset + whole * step, size - whole * step

    def _string(self, offset: int) -> bytes:
        short = os.pread(self._descriptor, 128, offset)
        if b"\0" not in short:
            short = os.pread(self._descriptor, NAME_BYTES + 1, offset)
        return short.split(b"\0", 1)[0]


def _plainness(name: bytes) -> tuple[bool, int, int, bytes]:
    return not name, len(name) - len(name.lstrip(b"_")), len(name), name


def _entry_type(elfclass: int, *, little: bool) -> np.dtype[Any]:
    order = "<" if little else ">"
    if elfclass == 64:
        fields = [("name", "u4"), ("info", "u1"), ("other", "u1"), ("shndx", "u2"), ("value", "u8"), ("size", "u8")]
    else:
        fields = [("name", "u4"), ("value", "u4"), ("size", "u4"), ("info", "u1"), ("other", "u1"), ("shndx", "u2")]
    return np.dtype([(name, order + kind) for name, kind in fields])
