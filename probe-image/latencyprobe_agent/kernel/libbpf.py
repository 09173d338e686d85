"""Thin binding to libbpf 1.x (`libbpf.so.1`, 1.1 or newer): the only module that speaks ctypes.

`Btf` and `Object` own what they open and free it in `close()`. Calls that fail raise OSError with libbpf's own words
(its print callback is captured, nothing goes to stderr); `programs.py` turns that into what a person can do about it.
libbpf raises the memory-lock limit by itself where the kernel is old enough to need it.
"""

import ctypes as c
import errno
import os
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import AbstractContextManager
from functools import cache
from pathlib import Path

from latencyprobe.errors import Unsupported

TCX_INGRESS, TCX_EGRESS = 46, 47  # enum bpf_attach_type
CLSACT_INGRESS, CLSACT_EGRESS = 1, 2  # enum bpf_tc_attach_point
BTF_KIND_FUNC = 12
BTF_KIND_STRUCT = 4
BTF_KIND_TYPEDEF = 8
_BEFORE = 8  # linux/bpf.h: BPF_F_BEFORE
_WARN = 0  # enum libbpf_print_level
_MESSAGES_KEPT = 200


class _OpenOptions(c.Structure):  # struct bpf_object_open_opts of libbpf 1.0; `sz` tells newer ones where it ends
    _fields_ = [
        ("sz", c.c_size_t),
        ("object_name", c.c_char_p),
        ("relaxed_maps", c.c_bool),
        ("pin_root_path", c.c_char_p),
        ("_removed", c.c_uint32),
        ("kconfig", c.c_char_p),
        ("btf_custom_path", c.c_char_p),
    ]


class _IteratorOptions(c.Structure):  # struct bpf_iter_attach_opts
    _fields_ = [("sz", c.c_size_t), ("link_info", c.c_void_p), ("link_info_len", c.c_uint32)]


class _LinkOptions(c.Structure):  # struct bpf_link_create_opts, as far as we use it
    _fields_ = [("sz", c.c_size_t), ("flags", c.c_uint32), ("_end", c.c_uint32)]


class _Hook(c.Structure):  # struct bpf_tc_hook
    _fields_ = [("sz", c.c_size_t), ("ifindex", c.c_int), ("point", c.c_int), ("_parent", c.c_uint32)]


class _FilterOptions(c.Structure):  # struct bpf_tc_opts
    _fields_ = [
        ("sz", c.c_size_t),
        ("prog_fd", c.c_int),
        ("flags", c.c_uint32),
        ("prog_id", c.c_uint32),
        ("handle", c.c_uint32),
        ("priority", c.c_uint32),
    ]


class _RunOptions(c.Structure):  # struct bpf_test_run_opts, as far as we use it
    _fields_ = [
        ("sz", c.c_size_t),
        ("data_in", c.c_char_p),
        ("data_out", c.c_void_p),
        ("data_size_in", c.c_uint32),
        ("data_size_out", c.c_uint32),
        ("_context", c.c_void_p * 2),
        ("_context_size", c.c_uint32 * 2),
        ("retval", c.c_uint32),
        ("repeat", c.c_int),
        ("_end", c.c_uint32 * 2),
    ]


class _ProgramInfo(c.Structure):  # the part of struct bpf_prog_info (linux/bpf.h) that we read
    _fields_ = [("_before", c.c_uint8 * 208), ("recursion_misses", c.c_uint64), ("_verified_insns", c.c_uint64)]


class _BatchOptions(c.Structure):  # struct bpf_map_batch_opts
    _fields_ = [("sz", c.c_size_t), ("elem_flags", c.c_uint64), ("flags", c.c_uint64)]


class _BtfType(c.Structure):
    _fields_ = [("name_off", c.c_uint32), ("info", c.c_uint32), ("size", c.c_uint32)]


class _BtfMember(c.Structure):
    _fields_ = [("name_off", c.c_uint32), ("type", c.c_uint32), ("offset", c.c_uint32)]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "btf__parse": (c.c_void_p, [c.c_char_p, c.c_void_p]),
    "btf__free": (None, [c.c_void_p]),
    "btf__find_by_name_kind": (c.c_int32, [c.c_void_p, c.c_char_p, c.c_uint32]),
    "btf__type_by_id": (c.c_void_p, [c.c_void_p, c.c_uint32]),
    "btf__name_by_offset": (c.c_char_p, [c.c_void_p, c.c_uint32]),
    "bpf_object__open_file": (c.c_void_p, [c.c_char_p, c.POINTER(_OpenOptions)]),
    "bpf_object__load": (c.c_int, [c.c_void_p]),
    "bpf_object__close": (None, [c.c_void_p]),
    "bpf_object__btf": (c.c_void_p, [c.c_void_p]),
    "bpf_object__next_program": (c.c_void_p, [c.c_void_p, c.c_void_p]),
    "bpf_object__find_map_by_name": (c.c_void_p, [c.c_void_p, c.c_char_p]),
    "bpf_program__name": (c.c_char_p, [c.c_void_p]),
    "bpf_program__section_name": (c.c_char_p, [c.c_void_p]),
    "bpf_program__set_autoload": (c.c_int, [c.c_void_p, c.c_bool]),
    "bpf_program__fd": (c.c_int, [c.c_void_p]),
    "bpf_program__attach": (c.c_void_p, [c.c_void_p]),
    "bpf_program__attach_iter": (c.c_void_p, [c.c_void_p, c.POINTER(_IteratorOptions)]),
    "bpf_link_create": (c.c_int, [c.c_int, c.c_int, c.c_int, c.POINTER(_LinkOptions)]),
    "bpf_tc_hook_create": (c.c_int, [c.POINTER(_Hook)]),
    "bpf_tc_hook_destroy": (c.c_int, [c.POINTER(_Hook)]),
    "bpf_tc_attach": (c.c_int, [c.POINTER(_Hook), c.POINTER(_FilterOptions)]),
    "bpf_tc_detach": (c.c_int, [c.POINTER(_Hook), c.POINTER(_FilterOptions)]),
    "bpf_prog_test_run_opts": (c.c_int, [c.c_int, c.POINTER(_RunOptions)]),
    "bpf_link__fd": (c.c_int, [c.c_void_p]),
    "bpf_link__destroy": (c.c_int, [c.c_void_p]),
    "bpf_iter_create": (c.c_int, [c.c_int]),
    "bpf_map__fd": (c.c_int, [c.c_void_p]),
    "bpf_map__key_size": (c.c_uint32, [c.c_void_p]),
    "bpf_map__value_size": (c.c_uint32, [c.c_void_p]),
    "bpf_map__type": (c.c_int, [c.c_void_p]),
    "bpf_map__max_entries": (c.c_uint32, [c.c_void_p]),
    "bpf_map__set_max_entries": (c.c_int, [c.c_void_p, c.c_uint32]),
    "bpf_map__reuse_fd": (c.c_int, [c.c_void_p, c.c_int]),
    "bpf_map_lookup_elem": (c.c_int, [c.c_int, c.c_char_p, c.c_void_p]),
    "bpf_map_lookup_batch": (
        c.c_int,
        [c.c_int, c.c_char_p, c.c_char_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_uint32), c.POINTER(_BatchOptions)],
    ),
    "bpf_map_update_elem": (c.c_int, [c.c_int, c.c_char_p, c.c_char_p, c.c_uint64]),
    "bpf_map_delete_elem": (c.c_int, [c.c_int, c.c_char_p]),
    "bpf_map_get_next_key": (c.c_int, [c.c_int, c.c_char_p, c.c_char_p]),
    "bpf_obj_get_info_by_fd": (c.c_int, [c.c_int, c.c_void_p, c.POINTER(c.c_uint32)]),
    "libbpf_num_possible_cpus": (c.c_int, []),
}
_RINGBUF_TYPE = 27  # BPF_MAP_TYPE_RINGBUF
_F_LOCK = 4  # BPF_F_LOCK
_PERCPU_TYPES = {5, 6}  # BPF_MAP_TYPE_PERCPU_HASH, _PERCPU_ARRAY
_PRINT = c.CFUNCTYPE(c.c_int, c.c_int, c.c_char_p, c.c_void_p)
_messages: deque[str] = deque(maxlen=_MESSAGES_KEPT)


@cache
def _libc() -> c.CDLL:
    return c.CDLL(None)


def _print(level: int, template: bytes, arguments: int) -> int:
    # A va_list parameter is passed as a pointer on x86-64 and, being larger than 16 bytes, on arm64.
    if level == _WARN:
        text = c.create_string_buffer(1 << 24)  # a verifier log can be as long, and its end matters most
        _libc().vsnprintf(text, c.c_size_t(len(text)), template, c.c_void_p(arguments))
        _messages.append(text.value.decode(errors="replace").strip())
    return 0


_print_callback = _PRINT(_print)


@cache
def _lib() -> c.CDLL:
    try:
        lib = c.CDLL("libbpf.so.1", use_errno=True)
    except OSError as e:
        raise Unsupported("LibbpfMissing", f"cannot load libbpf.so.1 ({e}): install the package libbpf1") from e
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    lib.libbpf_set_print(_print_callback)
    return lib


def _error(what: str, result: int = 0) -> OSError:
    """Make the error of a call that failed: libbpf sets errno, and returns it negative where it returns an int."""
    number = -result or c.get_errno()
    said = "\n".join(_messages)
    _messages.clear()
    return OSError(number, f"{what}: {os.strerror(number)}" + (f"\n{said}" if said else ""))


def give_back() -> None:
    """Return freed memory to the system. Loading takes some 40 MB for a moment, which glibc would keep."""
    if hasattr(_libc(), "malloc_trim"):
        _libc().malloc_trim(0)


def possible_cpus() -> int:
    """Return how many values a per-CPU map holds per key."""
    return int(_lib().libbpf_num_possible_cpus())


class Btf(AbstractContextManager["Btf"]):
    """Type information of a kernel, from its file."""

    def __init__(self, path: Path) -> None:
        self._handle = _lib().btf__parse(os.fsencode(path), None)
        if not self._handle:
            raise _error(f"cannot read BTF from {path}")

    def has(self, name: str, kind: int) -> bool:
        """Tell whether a type of this name and BTF kind exists."""
        return bool(_lib().btf__find_by_name_kind(self._handle, name.encode(), kind) > 0)

    def __exit__(self, *_: object) -> None:
        _lib().btf__free(self._handle)


class Map:
    """A map of a loaded object. Keys and values are bytes in the kernel's layout."""

    def __init__(self, handle: int, name: str) -> None:
        self.name = name
        self._handle = handle
        self.key_size = int(_lib().bpf_map__key_size(handle))
        self.value_size = int(_lib().bpf_map__value_size(handle))
        if _lib().bpf_map__type(handle) in _PERCPU_TYPES:
            self.value_size = (self.value_size + 7) // 8 * 8 * possible_cpus()

    @property
    def fd(self) -> int:
        """File descriptor, owned by the object; -1 before it is loaded."""
        return int(_lib().bpf_map__fd(self._handle))

    @property
    def max_entries(self) -> int:
        """Number of entries; bytes for a ring."""
        return int(_lib().bpf_map__max_entries(self._handle))

    @max_entries.setter
    def max_entries(self, entries: int) -> None:
        result = _lib().bpf_map__set_max_entries(self._handle, entries)
        if result:
            raise _error(f"cannot resize map {self.name} to {entries}", result)

    @property
    def is_ring(self) -> bool:
        """Whether it is a BPF ring buffer."""
        return bool(_lib().bpf_map__type(self._handle) == _RINGBUF_TYPE)

    def read_range(self, first: int, into: memoryview) -> int:
        """Copy the values of an array of locked values from index `first`, each under its lock; return how many."""
        count = c.c_uint32(into.nbytes // self.value_size)
        before = (first - 1).to_bytes(4, sys.byteorder) if first else None
        keys = c.create_string_buffer(4 * count.value)
        options = _BatchOptions(sz=c.sizeof(_BatchOptions), elem_flags=_F_LOCK)
        values = (c.c_char * into.nbytes).from_buffer(into)
        after = c.create_string_buffer(4)
        result = _lib().bpf_map_lookup_batch(self.fd, before, after, keys, values, c.byref(count), c.byref(options))
        if result and -result != errno.ENOENT:  # the array's end
            raise _error(f"cannot read map {self.name}", result)
        return count.value

    def share(self, fd: int) -> None:
        """Use the map behind `fd`, of an object that is loaded, in place of one of its own. Before `Object.load()`."""
        result = _lib().bpf_map__reuse_fd(self._handle, fd)
        if result:
            raise _error(f"cannot share map {self.name}", result)

    def keys(self) -> Iterator[bytes]:
        """Walk the keys; one that is added or removed meanwhile may be missed, or others seen twice."""
        key, following = None, c.create_string_buffer(self.key_size)
        while not _lib().bpf_map_get_next_key(self.fd, key, following):
            key = following.raw
            yield key

    def lookup(self, key: bytes, into: memoryview) -> bool:
        """Copy a value (of a per-CPU map: each CPU's, 8-byte aligned) into a buffer; False without such a key."""
        if len(key) != self.key_size or into.nbytes != self.value_size:
            raise ValueError(f"map {self.name} has keys of {self.key_size} and values of {self.value_size} bytes")
        result = _lib().bpf_map_lookup_elem(self.fd, key, (c.c_char * self.value_size).from_buffer(into))
        if result and -result != errno.ENOENT:
            raise _error(f"cannot read map {self.name}", result)
        return not result

    def update(self, key: bytes, value: bytes) -> None:
        """Add or replace an entry."""
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"map {self.name} has keys of {self.key_size} and values of {self.value_size} bytes")
        result = _lib().bpf_map_update_elem(self.fd, key, value, 0)
        if result:
            raise _error(f"cannot write map {self.name}", result)

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it is there."""
        result = _lib().bpf_map_delete_elem(self.fd, key)
        if result and -result != errno.ENOENT:
            raise _error(f"cannot take an entry out of map {self.name}", result)


class Link:
    """An attached program; detached by `close()`, or by the kernel when this process ends."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def read(self) -> None:
        """Run an iterator program once over everything it iterates; what it prints is dropped."""
        fd = _lib().bpf_iter_create(_lib().bpf_link__fd(self._handle))
        if fd < 0:
            raise _error("cannot start an iterator", fd)
        try:
            while os.read(fd, 4096):
                pass
        finally:
            os.close(fd)

    def close(self) -> None:
        """Detach."""
        _lib().bpf_link__destroy(self._handle)


class TcxLink(Link):
    """A program in front of all others of a tcx hook; detached when its descriptor is closed."""

    def close(self) -> None:
        """Detach."""
        os.close(self._handle)


class ClsactLink(Link):
    """A program in front of all others of a clsact queueing discipline; it outlives a process that is killed."""

    def __init__(self, hook: _Hook, options: _FilterOptions) -> None:
        self._hook, self._options = hook, options

    def close(self) -> None:
        """Detach."""
        mine = _FilterOptions(c.sizeof(_FilterOptions), handle=self._options.handle, priority=self._options.priority)
        _lib().bpf_tc_detach(c.byref(self._hook), c.byref(mine))


def make_clsact(ifindex: int) -> bool:
    """Give an interface the queueing discipline that `Program.attach_clsact()` needs; False: it had one."""
    result = _lib().bpf_tc_hook_create(c.byref(_Hook(c.sizeof(_Hook), ifindex, CLSACT_INGRESS | CLSACT_EGRESS)))
    if result and -result != errno.EEXIST:
        raise _error(f"cannot make a clsact queueing discipline on interface {ifindex}", result)
    return not result


def remove_clsact(ifindex: int) -> None:
    """Remove it, with all programs on it."""
    _lib().bpf_tc_hook_destroy(c.byref(_Hook(c.sizeof(_Hook), ifindex, CLSACT_INGRESS | CLSACT_EGRESS)))


class Program:
    """A program of an object. `section` says what it attaches to, such as `tp_btf/sk_data_ready`."""

    def __init__(self, handle: int) -> None:
        self._handle = handle
        self.name = _lib().bpf_program__name(handle).decode()
        self.section = _lib().bpf_program__section_name(handle).decode()

    def autoload(self, wanted: bool) -> None:
        """Say whether `Object.load()` loads it."""
        _lib().bpf_program__set_autoload(self._handle, wanted)

    def attach(self, over: Map | None = None) -> Link:
        """Attach to what the section names; an iterator over a map's entries needs that map."""
        if over is None:
            handle = _lib().bpf_program__attach(self._handle)
        else:
            info = (c.c_uint32 * 4)(over.fd)  # union bpf_iter_link_info, 16 bytes, map_fd first
            options = _IteratorOptions(c.sizeof(_IteratorOptions), c.addressof(info), c.sizeof(info))
            handle = _lib().bpf_program__attach_iter(self._handle, c.byref(options))
        if not handle:
            raise _error(f"cannot attach {self.name} to {self.section}")
        return Link(handle)

    def attach_tcx(self, ifindex: int, hook: int) -> TcxLink:
        """Attach in front of all programs at TCX_INGRESS or TCX_EGRESS of an interface."""
        options = _LinkOptions(c.sizeof(_LinkOptions), _BEFORE)
        fd = _lib().bpf_link_create(_lib().bpf_program__fd(self._handle), ifindex, hook, c.byref(options))
        if fd < 0:
            raise _error(f"cannot attach {self.name} to tcx of interface {ifindex}", fd)
        return TcxLink(fd)

    def attach_clsact(self, ifindex: int, point: int) -> ClsactLink:
        """Attach in front of all filters at CLSACT_INGRESS or CLSACT_EGRESS of an interface."""
        hook = _Hook(c.sizeof(_Hook), ifindex, point)
        # no priority: the kernel takes one in front of all others
        options = _FilterOptions(c.sizeof(_FilterOptions), _lib().bpf_program__fd(self._handle))
        result = _lib().bpf_tc_attach(c.byref(hook), c.byref(options))
        if result:
            raise _error(f"cannot attach {self.name} to clsact of interface {ifindex}", result)
        return ClsactLink(hook, options)

    def run(self, frame: bytes) -> tuple[int, bytes]:
        """Run a tc program on a frame that is on no wire. Return its verdict and the frame behind it; for tests."""
        out = c.create_string_buffer(len(frame) + 256)
        options = _RunOptions(c.sizeof(_RunOptions), frame, c.addressof(out), len(frame), len(out), repeat=1)
        result = _lib().bpf_prog_test_run_opts(_lib().bpf_program__fd(self._handle), c.byref(options))
        if result:
            raise _error(f"cannot run {self.name}", result)
        return c.c_int32(options.retval).value, out.raw[: options.data_size_out]

    def recursion_misses(self) -> int:
        """Return how often the kernel skipped the program because it would have run inside itself."""
        info, size = _ProgramInfo(), c.c_uint32(c.sizeof(_ProgramInfo))
        result = _lib().bpf_obj_get_info_by_fd(_lib().bpf_program__fd(self._handle), c.byref(info), c.byref(size))
        if result:
            raise _error(f"cannot read the statistics of {self.name}", result)
        return int(info.recursion_misses)


class Object:
    """A compiled BPF object: opened, perhaps adjusted, then loaded. `kernel_btf` replaces the running kernel's own."""

    def __init__(self, path: Path, kernel_btf: Path | None = None) -> None:
        options = _OpenOptions(sz=c.sizeof(_OpenOptions), btf_custom_path=kernel_btf and os.fsencode(kernel_btf))
        self._handle = _lib().bpf_object__open_file(os.fsencode(path), c.byref(options))
        if not self._handle:
            raise _error(f"cannot open {path}")

    def programs(self) -> list[Program]:
        """Return all programs, in the object's order."""
        found, handle = [], None
        while handle := _lib().bpf_object__next_program(self._handle, handle):
            found.append(Program(handle))
        return found

    def map(self, name: str) -> Map:
        """Return a map. Raises KeyError if the object has none of this name."""
        handle = _lib().bpf_object__find_map_by_name(self._handle, name.encode())
        if not handle:
            raise KeyError(name)
        return Map(handle, name)

    def struct(self, name: str) -> tuple[int, dict[str, int]] | None:
        """Return size and field offsets, in bytes, of a struct in the object's own BTF; None if it is not there."""
        btf = _lib().bpf_object__btf(self._handle)
        type_id = _lib().btf__find_by_name_kind(btf, name.encode(), BTF_KIND_STRUCT)
        if type_id <= 0:
            return None
        address = _lib().btf__type_by_id(btf, type_id)
        struct = _BtfType.from_address(address)
        members = (_BtfMember * (struct.info & 0xFFFF)).from_address(address + c.sizeof(_BtfType))
        offsets = {_lib().btf__name_by_offset(btf, m.name_off).decode(): m.offset // 8 for m in members}
        return struct.size, offsets

    def load(self) -> None:
        """Create the maps and load the programs. After an error the object can only be closed."""
        result = _lib().bpf_object__load(self._handle)
        if result:
            raise _error("cannot load the programs", result)

    def close(self) -> None:
        """Free the object and the kernel's part of it that nothing else holds."""
        _lib().bpf_object__close(self._handle)
