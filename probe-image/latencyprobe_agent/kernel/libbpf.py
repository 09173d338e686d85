"""Thin binding to libbpf: objects, programs and links, as what they are and who owns them.

`Btf` and `Object` own what they open and free it in `close()`. Calls that fail raise OSError with libbpf's own words.
"""

import ctypes as c
import errno
import os
import sys
from contextlib import AbstractContextManager
from pathlib import Path

from latencyprobe_agent.kernel.libbpf_abi import (
    BtfMember,
    BtfType,
    FilterOptions,
    Hook,
    IteratorOptions,
    LinkOptions,
    OpenOptions,
    ProgramInfo,
    RunOptions,
    error,
    lib,
    libc,
)
from latencyprobe_agent.kernel.maps import Map

NO_OBJECT_REMEDY = "install a release's wheel or package, which has it, or build it in a checkout with `make bpf`"
TCX_INGRESS, TCX_EGRESS = 46, 47  # enum bpf_attach_type
CLSACT_INGRESS, CLSACT_EGRESS = 1, 2  # enum bpf_tc_attach_point
BTF_KIND_FUNC = 12
BTF_KIND_STRUCT = 4
BTF_KIND_TYPEDEF = 8
_BEFORE = 8  # linux/bpf.h: BPF_F_BEFORE
_FIRST = bytes(4)  # slot of an array
_ARENA_MAX = -8  # malloc.h: M_ARENA_MAX


def one_arena() -> None:
    """Let threads that begin from now on share one heap: of others glibc's malloc_trim() keeps the top, some 17 MB once
    a thread has loaded programs (malloc/malloc.c: mtrim())."""
    if hasattr(libc(), "mallopt"):
        libc().mallopt(_ARENA_MAX, 1)


def give_back() -> None:
    """Return freed memory to the system. Loading takes some 40 MB for a moment, which glibc would keep."""
    if hasattr(libc(), "malloc_trim"):
        libc().malloc_trim(0)


class Btf(AbstractContextManager["Btf"]):
    """Type information of a kernel, from its file."""

    def __init__(self, path: Path) -> None:
        self._handle = lib().btf__parse(os.fsencode(path), None)
        if not self._handle:
            raise error(f"cannot read BTF from {path}")

    def has(self, name: str, kind: int) -> bool:
        """Return whether a type of this name and BTF kind exists."""
        return bool(lib().btf__find_by_name_kind(self._handle, name.encode(), kind) > 0)

    def __exit__(self, *_: object) -> None:
        lib().btf__free(self._handle)


class Link:
    """An attached program; detached by `close()`, or by the kernel when this process ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self) -> None:
        """Run an iterator program once over everything it iterates; what it prints is dropped."""
        fd = lib().bpf_iter_create(lib().bpf_link__fd(self._handle))
        if fd < 0:
            raise error("cannot start an iterator", fd)
        try:
            while _goes_on(fd):
                pass
        finally:
            os.close(fd)

    def close(self) -> None:
        """Detach."""
        lib().bpf_link__destroy(self._handle)


def _goes_on(iterator: int) -> bool:
    """Read on; return whether there may be more. After a million entries that print nothing the kernel gives way to
    others, and says EAGAIN."""
    try:
        return bool(os.read(iterator, 4096))
    except BlockingIOError:
        return True


class SlotLink(Link):
    """A program in the first slot of an array of programs, to which others go on; taken out by `close()`."""

    def __init__(self, slots: Map) -> None:
        self._slots = slots

    def close(self) -> None:
        """Take it out. The array's object must still be open."""
        self._slots.delete(_FIRST)


class TcxLink(Link):
    """A program in front of all others of a tcx hook; detached when its descriptor is closed."""

    def close(self) -> None:
        """Detach."""
        os.close(self._handle)


class ClsactLink(Link):
    """A program in front of all others of a clsact queueing discipline; it outlives a process that is killed."""

    def __init__(self, hook: Hook, options: FilterOptions) -> None:
        self._hook, self._options = hook, options

    def close(self) -> None:
        """Detach."""
        mine = FilterOptions(c.sizeof(FilterOptions), handle=self._options.handle, priority=self._options.priority)
        lib().bpf_tc_detach(c.byref(self._hook), c.byref(mine))


def make_clsact(ifindex: int) -> bool:
    """Give an interface the queueing discipline that `Program.attach_clsact()` needs; False: it had one."""
    result = lib().bpf_tc_hook_create(c.byref(Hook(c.sizeof(Hook), ifindex, CLSACT_INGRESS | CLSACT_EGRESS)))
    if result and -result != errno.EEXIST:
        raise error(f"cannot make a clsact queueing discipline on interface {ifindex}", result)
    return not result


def remove_clsact(ifindex: int) -> None:
    """Remove it, with all programs on it."""
    lib().bpf_tc_hook_destroy(c.byref(Hook(c.sizeof(Hook), ifindex, CLSACT_INGRESS | CLSACT_EGRESS)))


class Program:
    """A program of an object. `section`: what it attaches to, such as `tp_btf/sk_data_ready`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name = lib().bpf_program__name(handle).decode()
        self.section = lib().bpf_program__section_name(handle).decode()

    def autoload(self, enabled: bool) -> None:
        """Decide whether `Object.load()` loads it."""
        lib().bpf_program__set_autoload(self._handle, enabled)

    def attach(self, over: Map | None = None) -> Link:
        """Attach to what the section names; an iterator over a map's entries needs that map."""
        if over is None:
            handle = lib().bpf_program__attach(self._handle)
        else:
            info = (c.c_uint32 * 4)(over.fd)  # union bpf_iter_link_info, 16 bytes, map_fd first
            options = IteratorOptions(c.sizeof(IteratorOptions), c.addressof(info), c.sizeof(info))
            handle = lib().bpf_program__attach_iter(self._handle, c.byref(options))
        if not handle:
            raise error(f"cannot attach {self.name} to {self.section}")
        return Link(handle)

    def put_into(self, slots: Map) -> SlotLink:
        """Put it into an array of programs, instead of attaching it."""
        slots.update(_FIRST, int(lib().bpf_program__fd(self._handle)).to_bytes(4, sys.byteorder))
        return SlotLink(slots)

    def attach_tcx(self, ifindex: int, hook: int) -> TcxLink:
        """Attach in front of all programs at TCX_INGRESS or TCX_EGRESS of an interface."""
        options = LinkOptions(c.sizeof(LinkOptions), _BEFORE)
        fd = lib().bpf_link_create(lib().bpf_program__fd(self._handle), ifindex, hook, c.byref(options))
        if fd < 0:
            raise error(f"cannot attach {self.name} to tcx of interface {ifindex}", fd)
        return TcxLink(fd)

    def attach_clsact(self, ifindex: int, point: int) -> ClsactLink:
        """Attach in front of all filters at CLSACT_INGRESS or CLSACT_EGRESS of an interface."""
        hook = Hook(c.sizeof(Hook), ifindex, point)
        # no priority: the kernel takes one in front of all others
        options = FilterOptions(c.sizeof(FilterOptions), lib().bpf_program__fd(self._handle))
        result = lib().bpf_tc_attach(c.byref(hook), c.byref(options))
        if result:
            raise error(f"cannot attach {self.name} to clsact of interface {ifindex}", result)
        return ClsactLink(hook, options)

    def run(self, frame: bytes) -> tuple[int, bytes]:
        """Run a tc program on a frame that is on no wire. Return its verdict and the frame behind it; for tests."""
        out = c.create_string_buffer(len(frame) + 256)
        options = RunOptions(c.sizeof(RunOptions), frame, c.addressof(out), len(frame), len(out), repeat=1)
        result = lib().bpf_prog_test_run_opts(lib().bpf_program__fd(self._handle), c.byref(options))
        if result:
            raise error(f"cannot run {self.name}", result)
        return c.c_int32(options.retval).value, out.raw[: options.data_size_out]

    def recursion_misses(self) -> int:
        """Return how often the kernel skipped the program because it would have run inside itself."""
        info, size = ProgramInfo(), c.c_uint32(c.sizeof(ProgramInfo))
        result = lib().bpf_obj_get_info_by_fd(lib().bpf_program__fd(self._handle), c.byref(info), c.byref(size))
        if result:
            raise error(f"cannot read the statistics of {self.name}", result)
        return int(info.recursion_misses)


class Object:
    """A compiled BPF object: opened, perhaps adjusted, then loaded. `kernel_btf` replaces the running kernel's own."""

    def __init__(self, path: Path, kernel_btf: Path | None = None) -> None:
        options = OpenOptions(sz=c.sizeof(OpenOptions), btf_custom_path=kernel_btf and os.fsencode(kernel_btf))
        self._handle = lib().bpf_object__open_file(os.fsencode(path), c.byref(options))
        if not self._handle:
            raise error(f"cannot open {path}")

    def programs(self) -> list[Program]:
        """Return all programs, in the object's order."""
        found, handle = [], None
        while handle := lib().bpf_object__next_program(self._handle, handle):
            found.append(Program(handle))
        return found

    def map(self, name: str) -> Map:
        """Return a map. Raises KeyError if the object has none of this name."""
        handle = lib().bpf_object__find_map_by_name(self._handle, name.encode())
        if not handle:
            raise KeyError(name)
        return Map(handle, name)

    def struct(self, name: str) -> tuple[int, dict[str, int]] | None:
        """Return size and field offsets, in bytes, of a struct in the object's own BTF; None if it is not there."""
        btf = lib().bpf_object__btf(self._handle)
        type_id = lib().btf__find_by_name_kind(btf, name.encode(), BTF_KIND_STRUCT)
        if type_id <= 0:
            return None
        address = lib().btf__type_by_id(btf, type_id)
        struct = BtfType.from_address(address)
        members = (BtfMember * (struct.info & 0xFFFF)).from_address(address + c.sizeof(BtfType))
        offsets = {lib().btf__name_by_offset(btf, m.name_off).decode(): m.offset // 8 for m in members}
        return struct.size, offsets

    def load(self) -> None:
        """Create the maps and load the programs. After an error the object can only be closed."""
        result = lib().bpf_object__load(self._handle)
        if result:
            raise error("cannot load the programs", result)

    def close(self) -> None:
        """Free the object and the kernel's part of it that nothing else holds."""
        lib().bpf_object__close(self._handle)
