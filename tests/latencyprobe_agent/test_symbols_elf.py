"""Functions of ELF files: of any class and order, whichever table has them, and of what is no ELF file at all."""

import os
import struct
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from latencyprobe_agent.symbols.elf import ElfFile, NotElf
from tests.support.mapped import CODE, elf

GOOD = elf([b"first", b"second"])


def functions(raw: bytes, *addresses: int) -> dict[int, bytes]:
    descriptor = os.memfd_create("elf")
    try:
        os.write(descriptor, raw)
        file = ElfFile(descriptor)
        file.build_id()
        at = [found for address in addresses if (found := file.virtual(address)) is not None]
        return file.functions(at)
    finally:
        os.close(descriptor)


def test_an_address_belongs_to_the_function_around_it() -> None:
    assert {CODE: b"first", CODE + 15: b"first", CODE + 16: b"second"} == functions(
        GOOD, CODE - 1, CODE, CODE + 15, CODE + 16, CODE + 32
    )


def entry(name: int, value: int, size: int, info: int = 0x12, section: int = 1) -> bytes:
    return struct.pack("<IBBHQQ", name, info, 0, section, value, size)


def test_of_names_of_one_function_the_plainest_and_of_functions_the_innermost() -> None:
    strings = b"\0__libc_read\0read\0outer\0data\0undefined\0"
    at = {name: strings.index(b"\0" + name) + 1 for name in (b"__libc_read", b"read", b"outer", b"data", b"undefined")}
    table = (
        entry(at[b"outer"], CODE, 64)
        + entry(at[b"__libc_read"], CODE + 16, 16)
        + entry(at[b"read"], CODE + 16, 16)
        + entry(at[b"data"], CODE + 20, 16, info=0x11)
        + entry(at[b"undefined"], CODE + 20, 16, section=0)
    )
    found = functions(elf([], table=table, strings=strings), CODE + 8, CODE + 20, CODE + 40)
    assert {CODE + 8: b"outer", CODE + 20: b"read", CODE + 40: b"outer"} == found


@pytest.mark.root  # as all that compiles
@pytest.mark.parametrize("target", ["x86_64", "aarch64", "i686", "mips", "s390x"])
def test_files_of_other_classes_and_orders(tmp_path: Path, target: str) -> None:
    source, binary = tmp_path / "f.c", tmp_path / "f.o"
    source.write_text("int here(void) { return 7; }\nint there(int a, int b) { return a + b * here(); }\n")
    subprocess.run(["clang-19", f"--target={target}-linux-gnu", "-O1", "-c", "-o", binary, source], check=True)
    table = subprocess.run(["llvm-nm-19", binary], capture_output=True, text=True, check=True).stdout
    at = {name: int(address, 16) for address, _, name in map(str.split, table.splitlines())}
    with binary.open("rb") as file:
        assert {address: name.encode() for name, address in at.items()} == ElfFile(file.fileno()).functions(
            list(at.values())
        )


@given(st.binary(max_size=4096))
def test_bytes_that_are_no_elf_file_are_refused(raw: bytes) -> None:
    with pytest.raises(NotElf):
        functions(raw, 0)


@given(st.lists(st.tuples(st.integers(0, len(GOOD) - 1), st.integers(0, 255)), max_size=16))
def test_a_damaged_file_is_refused_or_has_names_of_its_own(damage: list[tuple[int, int]]) -> None:
    raw = bytearray(GOOD)
    for at, byte in damage:
        raw[at] = byte
    try:
        found = functions(bytes(raw), CODE, CODE + 16)
    except NotElf:
        return
    assert all(isinstance(name, bytes) for name in found.values())


@pytest.mark.parametrize(("table", "other"), [(1, 2), (2, 1)], ids=["symbols", "their names"])
def test_a_table_further_off_than_a_file_can_be_is_refused(table: int, other: int) -> None:
    raw = bytearray(GOOD)
    struct.pack_into("<Q", raw, len(raw) - 64 * (3 - table) + 24, (1 << 64) - 1)  # sh_offset
    struct.pack_into("<H", raw, 62, other)  # e_shstrndx: the names of sections can be read
    with pytest.raises(NotElf):
        functions(bytes(raw), CODE)


@pytest.mark.root
def test_the_build_id_of_a_program(tmp_path: Path) -> None:
    source, target = tmp_path / "f.c", tmp_path / "f.so"
    source.write_text("int here(void) { return 7; }\n")
    build_id = "0123456789abcdef0123456789abcdef01234567"
    flags = ["-shared", "-nostdlib", f"-Wl,--build-id=0x{build_id}"]
    subprocess.run(["cc", *flags, "-o", target, source], check=True)
    with target.open("rb") as file:
        assert build_id == ElfFile(file.fileno()).build_id()
