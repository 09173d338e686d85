"""What a container's owner can put under the nose of the process that names functions: nothing outside is read."""

import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from latencyprobe_agent.symbols.messages import Answer, packed
from latencyprobe_agent.symbols.serving import MEMORY_BYTES
from latencyprobe_agent.symbols.symbolizer import Symbolizer
from tests.support.mapped import CODE, build, elf, fresh, mapping
from tests.support.programs import needs
from tests.support.waiting import wait_until
from tests.truth.slow_files import slow_files

pytestmark = pytest.mark.root

GOOD = elf([b"good_function", b"another_function"])
SECRET = b"host_secret"
GROWING = b"".join(b"St4pairIS%d_S%d_E" % (i, i) for i in range(30))
RANDOM = random.Random(13)


@pytest.fixture(scope="module")
def mapper(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("mapper"))


@pytest.fixture
def host(tmp_path: Path) -> Path:
    """A folder that no container has: a library, and a map of JIT code, that both name the secret."""
    folder = tmp_path / "host"
    folder.mkdir()
    (folder / "library.so").write_bytes(elf([SECRET] * 2))
    (folder / "perf.map").write_bytes(b"0 ffffffffffffffff " + SECRET + b"\n")
    os.mkfifo(folder / "fifo")
    return folder


def bent(good: bytes, at: int, form: str, *values: int) -> bytes:
    raw = bytearray(good)
    struct.pack_into(form, raw, at, *values)
    return bytes(raw)


def noise(good: bytes) -> bytes:
    """Some bytes of headers and tables are others."""
    raw = bytearray(good)
    for _ in range(RANDOM.choice([1, 4, 32])):
        raw[RANDOM.choice([RANDOM.randrange(120), RANDOM.randrange(0x2000, len(raw))])] = RANDOM.randrange(256)
    return bytes(raw)


def everywhere(entries: int, name_at: int = 1) -> bytes:
    """A table of which each symbol covers all."""
    return struct.pack("<IBBHQQ", name_at, 0x12, 0, 1, CODE, 16) * entries


# What a library becomes once it is mapped. In place: the file that is mapped changes, and is read.
IN_PLACE: dict[str, Callable[[], bytes]] = {
    "a table of a million symbols that cover everything": lambda: elf([], table=everywhere(1 << 20), strings=b"\0x\0"),
    "a table whose end is not in the file": lambda: bent(GOOD, len(GOOD) - 128 + 32, "<Q", 1 << 40),
    "a table further off than a file can be": lambda: bent(GOOD, len(GOOD) - 128 + 24, "<Q", (1 << 64) - 1),
    "a string table that is the symbol table": lambda: elf([b"a", b"b"], link=1),
    "65,535 sections": lambda: bent(GOOD, 60, "<H", 65535) + GOOD[-128:-64] * 65535,
    "65,535 sections by the first one": lambda: bent(GOOD, 60, "<H", 0),
    "65,535 segments": lambda: bent(GOOD, 56, "<H", 65535),
    "segments of no size": lambda: bent(GOOD, 54, "<H", 0),
    "sections of no size": lambda: bent(GOOD, 58, "<H", 0),
    "a name of 10 MB": lambda: elf([b"n" * (10 << 20)]),
    "a name without end": lambda: elf([], table=everywhere(2), strings=b"n" * (1 << 20)),
    "a mangled name that grows": lambda: elf([b"_Z" + b"N1a" * 4000 + b"E" * 4000]),
    "a mangled name that refers to itself": lambda: elf([b"_Z1fI" + b"S_" * 5000 + b"EvT_"]),
    "a mangled name of exponential length": lambda: elf([b"_Z1fSt4pairIiiE" + GROWING]),
    "a name that controls a terminal": lambda: elf([b"\x1b]0;owned\x07\n;\xff"]),
    "an empty file": lambda: b"",
    "text": lambda: b"#!/bin/sh\n" * 1000,
    **{f"damage {i}": lambda: noise(GOOD) for i in range(61)},
}  # fmt: skip


def link_to(target: str) -> Callable[[Path, Path], None]:
    return lambda path, host: path.symlink_to(target.format(host=host))


def sparse(path: Path, _: Path) -> None:
    path.write_bytes(GOOD)
    os.truncate(path, 10 << 30)


def bound(path: Path, _: Path) -> None:
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))


def a_cycle(path: Path, _: Path) -> None:
    path.symlink_to("other.so")
    path.with_name("other.so").symlink_to(path.name)


# What stands in its place, at its path.
INSTEAD: dict[str, Callable[[Path, Path], None]] = {
    "a link to the host's file": link_to("{host}/library.so"),
    "a link up and to the host's file": link_to("../../../../../../..{host}/library.so"),
    "a link through a process's root": link_to("/proc/1/root{host}/library.so"),
    "a link through its own root": link_to("/proc/self/root{host}/library.so"),
    "a link to a descriptor": link_to("/proc/self/fd/0"),
    "a link to the executable": link_to("/proc/self/exe"),
    "a link to the kernel's memory": link_to("/proc/kcore"),
    "a link to its log": link_to("/proc/kmsg"),
    "a link to memory": link_to("/proc/self/mem"),
    "a link to the host's FIFO": link_to("{host}/fifo"),
    "a FIFO": lambda path, _: os.mkfifo(path),
    "a device that never ends": lambda path, _: os.mknod(path, 0o20666, os.makedev(1, 5)),
    "a device without a driver": lambda path, _: os.mknod(path, 0o60666, os.makedev(240, 7)),
    "a terminal": lambda path, _: os.mknod(path, 0o20666, os.makedev(5, 0)),
    "a sparse file of 10 GB": sparse,
    "a cycle of links": a_cycle,
    "a link to itself": lambda path, _: path.symlink_to(path.name),
    "forty links": lambda path, _: [
        (path if not i else path.with_name(f"l{i}")).symlink_to(f"l{i + 1}" if i < 45 else "gone") for i in range(46)
    ] and None,
    "a folder": lambda path, _: path.mkdir(),
    "a socket": bound,
    "another library": lambda path, _: path.write_bytes(elf([SECRET] * 2)) and None,
    "no file": lambda *_: None,
}  # fmt: skip


def watched(pid: int, log: Path) -> subprocess.Popen[bytes]:
    """strace, once it has attached: every descriptor with the file behind it."""
    tracer = subprocess.Popen(["strace", "-f", "-y", "-s", "64", "-o", log, "-p", str(pid)], stderr=subprocess.DEVNULL)
    wait_until(lambda: f"TracerPid:\t{tracer.pid}" in Path(f"/proc/{pid}/status").read_text(), "strace has attached")
    return tracer


def cpu_s(pid: int) -> float:
    user, system = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def memory_kib(pid: int) -> int:
    return int(Path(f"/proc/{pid}/status").read_text().split("VmHWM:")[1].split()[0])


@needs("strace")
def test_hostile_roots_lead_nowhere(mapper: Path, host: Path, tmp_path: Path) -> None:
    """100 roots: nothing but the mapped file is read, which strace sees; processor time and memory are bounded."""
    canary_before = [path.stat().st_atime_ns for path in sorted(host.iterdir()) if path.is_file()]
    used: dict[str, float] = {}
    with Symbolizer() as symbolizer:
        symbolizer.user(os.getpid(), [0])
        child, log = symbolizer.pid, tmp_path / "strace"
        tracer = watched(child, log)
        at_rest = memory_kib(child)
        for i, what in enumerate([*IN_PLACE, *INSTEAD]):
            root = fresh(tmp_path / "roots" / f"{i}")
            (root / "later" / "proc").mkdir(parents=True)
            (root / "lib.so").write_bytes(GOOD.ljust(1 << 16, b"\0"))
            if what in INSTEAD:
                INSTEAD[what](root / "later" / "lib.so", host)
            with mapping(mapper, root, ["/lib.so"], later="/later" if what in INSTEAD else "-") as process:
                if what in IN_PLACE:
                    (root / "lib.so").write_bytes(IN_PLACE[what]())
                before = cpu_s(child)
                (name,) = symbolizer.user(process.pid, [process.addresses[0] + CODE])
                used[what] = cpu_s(child) - before
                assert SECRET.decode() not in name, what
                assert what in IN_PLACE or name == "lib.so+0x1000", what
                assert name.isprintable()
                assert len(name) <= 16 << 10
                assert child == symbolizer.pid, f"{what}: it has died"
            shutil.rmtree(tmp_path / "roots")
        assert symbolizer.user(os.getpid(), [0]) == ["[unknown]"]
        used_most = max(used, key=lambda what: used[what])
        grown = memory_kib(child) - at_rest
        tracer.terminate()
        tracer.wait()
    assert str(host) not in log.read_text()
    assert "/lib.so>" in log.read_text(), "strace names the files that it sees being read"
    assert canary_before == [path.stat().st_atime_ns for path in sorted(host.iterdir()) if path.is_file()]
    assert grown << 10 <= MEMORY_BYTES
    most = f"{used[used_most]:.2f} s of CPU ({used_most}), {grown} KiB above rest"
    print(f"{len(used)} roots; at most {most}; {dict(symbolizer.unnamed)}")


def test_a_path_that_is_swapped_all_the_time_never_names_another_file(mapper: Path, host: Path, tmp_path: Path) -> None:
    root = fresh(tmp_path / "root")
    (root / "lib.so").write_bytes(GOOD)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for target in (host / "library.so", host / "fifo"):
                (root / "lib.so").rename(root / "aside.so")
                (root / "lib.so").symlink_to(target)
                (root / "aside.so").replace(root / "lib.so")

    with Symbolizer() as symbolizer, mapping(mapper, root, ["/lib.so"]) as process:
        swapping = threading.Thread(target=swap)
        swapping.start()
        try:
            seen = set()
            for i in range(2000):
                seen |= set(symbolizer.user(process.pid, [process.addresses[0] + CODE + 16 + i % 16]))
        finally:
            done.set()
            swapping.join()
    assert {"another_function"} <= seen
    assert seen <= {"another_function"} | {
        f"{name}.so+0x{CODE + 16 + i:x}" for i in range(16) for name in ("lib", "aside")
    }


def test_a_map_of_jit_code_is_read_in_the_process_own_root_alone(mapper: Path, host: Path, tmp_path: Path) -> None:
    root = fresh(tmp_path / "root")
    (root / "tmp").mkdir()
    with Symbolizer() as symbolizer, mapping(mapper, root, ["anonymous"]) as process:
        address = process.addresses[0]
        table = root / "tmp" / f"perf-{process.pid}.map"
        assert ["[unknown]"] == symbolizer.user(process.pid, [address])
        table.symlink_to(host / "perf.map")
        assert ["[unknown]"] == symbolizer.user(process.pid, [address])
        table.unlink()
        table.symlink_to(f"/proc/1/root{host}/perf.map")
        assert ["[unknown]"] == symbolizer.user(process.pid, [address])
        table.unlink()
        os.mkfifo(table)
        assert ["[unknown]"] == symbolizer.user(process.pid, [address])
        table.unlink()
        table.write_text(f"no line\n{address:x} 10 LazyCompile:~render /app.js:3\n{address:x} 10 LazyCompile:*render\n")
        assert ["LazyCompile:*render", "[unknown]"] == symbolizer.user(process.pid, [address + 15, address + 16])


@pytest.mark.parametrize(
    ("memory", "without"),
    [("named", "[anon:Ruby:rb_yjit_reserve_addr_space]"), ("shared", "zero+0x10"), ("memfd", "doublemapper+0x10")],
)
def test_code_made_at_run_time_has_the_map_s_names_though_its_memory_has_a_name(
    mapper: Path, tmp_path: Path, memory: str, without: str
) -> None:
    """As Ruby's YJIT and .NET have it."""
    root = fresh(tmp_path / "root")
    (root / "tmp").mkdir()
    with Symbolizer() as symbolizer, mapping(mapper, root, [memory]) as process:
        address = process.addresses[0]
        (name,) = symbolizer.user(process.pid, [address + 16])
        assert name.removeprefix("memfd:") in (without, "[unknown]" if memory == "named" else without)
        (root / "tmp" / f"perf-{process.pid}.map").write_text(f"{address:x} 10 Object#slow\n")
        assert ["Object#slow", name] == symbolizer.user(process.pid, [address, address + 16])


def test_a_file_system_that_never_answers_costs_one_process_its_names(tmp_path: Path, mapper: Path) -> None:
    """As one of FUSE may: the process that reads is stopped in the middle. It is replaced, the other one is named."""
    with Symbolizer() as symbolizer, mapping(mapper, None, ["/bin/true"]) as process:
        symbolizer.user(os.getpid(), [0])
        assert symbolizer.pid
        os.kill(symbolizer.pid, signal.SIGSTOP)
        patient_s, symbolizer._answer_s = symbolizer._answer_s, 0.5
        assert ["[unknown]"] == symbolizer.user(process.pid, [process.addresses[0]])
        symbolizer._answer_s = patient_s
        assert 0 == symbolizer.pid
        assert ["[unknown]"] == symbolizer.user(process.pid, [process.addresses[0]])
        assert {"died": 1, "banned": 1} == {why: symbolizer.unnamed[why] for why in ("died", "banned")}
        began = time.monotonic()
        assert symbolizer.user(os.getpid(), [0]) == ["[unknown]"]
        assert symbolizer.pid, f"started anew within {time.monotonic() - began:.1f} s"


def test_a_file_system_that_does_not_even_let_it_be_killed_holds_up_nobody(tmp_path: Path) -> None:
    """A call that a server of FUSE has taken and does not answer ends for no signal."""
    answer = packed(Answer(["name"], {}))
    with slow_files(tmp_path) as files:
        files.fsync_s = 10.0
        code = f"""
import os, sys
for ask in range(2):
    sys.stdin.buffer.read1()
    if ask:
        os.fsync(os.open({str(files.path)!r}, os.O_RDWR))
    os.write(1, {answer!r})
"""
        with Symbolizer(command=(sys.executable, "-c", code)) as symbolizer:
            assert ["name"] == symbolizer.user(1, [1])
            symbolizer._answer_s = 2.0
            held = Path(f"/proc/{symbolizer.pid}/stat")
            assert ["[unknown]"] == symbolizer.user(1, [1])
            assert held.read_text().rpartition(")")[2].split()[0] == "D"
            assert {"died": 1} == symbolizer.unnamed
