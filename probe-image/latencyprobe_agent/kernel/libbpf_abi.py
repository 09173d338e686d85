"""libbpf 1.x as C declares it (`libbpf.so.1`, 1.1 or newer): structs, functions, and its messages when a call fails.

The print callback is captured, nothing goes to stderr. libbpf raises the memory-lock limit by itself where the kernel
is old enough to need it.
"""

import ctypes as c
import os
import threading
from collections import deque
from functools import cache

from latencyprobe.errors import Unsupported

_HOW_TO_INSTALL = "install Debian's package libbpf1, or your distribution's libbpf 1.1 or newer"
_WARN = 0  # enum libbpf_print_level
_MESSAGES_KEPT = 200


class OpenOptions(c.Structure):
    """`struct bpf_object_open_opts` of libbpf 1.0; by `sz` newer ones know where it ends."""

    _fields_ = [
        ("sz", c.c_size_t),
        ("object_name", c.c_char_p),
        ("relaxed_maps", c.c_bool),
        ("pin_root_path", c.c_char_p),
        ("_removed", c.c_uint32),
        ("kconfig", c.c_char_p),
        ("btf_custom_path", c.c_char_p),
    ]


class IteratorOptions(c.Structure):
    """`struct bpf_iter_attach_opts`."""

    _fields_ = [("sz", c.c_size_t), ("link_info", c.c_void_p), ("link_info_len", c.c_uint32)]


class LinkOptions(c.Structure):
    """`struct bpf_link_create_opts`, as far as we use it."""

    _fields_ = [("sz", c.c_size_t), ("flags", c.c_uint32), ("_end", c.c_uint32)]


class Hook(c.Structure):
    """`struct bpf_tc_hook`."""

    _fields_ = [("sz", c.c_size_t), ("ifindex", c.c_int), ("point", c.c_int), ("_parent", c.c_uint32)]


class FilterOptions(c.Structure):
    """`struct bpf_tc_opts`."""

    _fields_ = [
        ("sz", c.c_size_t),
        ("prog_fd", c.c_int),
        ("flags", c.c_uint32),
        ("prog_id", c.c_uint32),
        ("handle", c.c_uint32),
        ("priority", c.c_uint32),
    ]


class RunOptions(c.Structure):
    """`struct bpf_test_run_opts`, as far as we use it."""

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


class ProgramInfo(c.Structure):
    """The part of struct bpf_prog_info (linux/bpf.h) that we read."""

    _fields_ = [("_before", c.c_uint8 * 208), ("recursion_misses", c.c_uint64), ("_verified_insns", c.c_uint64)]


class BatchOptions(c.Structure):
    """`struct bpf_map_batch_opts`."""

    _fields_ = [("sz", c.c_size_t), ("elem_flags", c.c_uint64), ("flags", c.c_uint64)]


class BtfType(c.Structure):
    """`struct btf_type` (linux/btf.h)."""

    _fields_ = [("name_off", c.c_uint32), ("info", c.c_uint32), ("size", c.c_uint32)]


class BtfMember(c.Structure):
    """`struct btf_member`."""

    _fields_ = [("name_off", c.c_uint32), ("type", c.c_uint32), ("offset", c.c_uint32)]


_SIGNATURES: dict[str, tuple[object, list[object]]] = {
    "btf__parse": (c.c_void_p, [c.c_char_p, c.c_void_p]),
    "btf__free": (None, [c.c_void_p]),
    "btf__find_by_name_kind": (c.c_int32, [c.c_void_p, c.c_char_p, c.c_uint32]),
    "btf__type_by_id": (c.c_void_p, [c.c_void_p, c.c_uint32]),
    "btf__name_by_offset": (c.c_char_p, [c.c_void_p, c.c_uint32]),
    "bpf_object__open_file": (c.c_void_p, [c.c_char_p, c.POINTER(OpenOptions)]),
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
    "bpf_program__attach_iter": (c.c_void_p, [c.c_void_p, c.POINTER(IteratorOptions)]),
    "bpf_link_create": (c.c_int, [c.c_int, c.c_int, c.c_int, c.POINTER(LinkOptions)]),
    "bpf_tc_hook_create": (c.c_int, [c.POINTER(Hook)]),
    "bpf_tc_hook_destroy": (c.c_int, [c.POINTER(Hook)]),
    "bpf_tc_attach": (c.c_int, [c.POINTER(Hook), c.POINTER(FilterOptions)]),
    "bpf_tc_detach": (c.c_int, [c.POINTER(Hook), c.POINTER(FilterOptions)]),
    "bpf_prog_test_run_opts": (c.c_int, [c.c_int, c.POINTER(RunOptions)]),
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
        [c.c_int, c.c_char_p, c.c_char_p, c.c_void_p, c.c_void_p, c.POINTER(c.c_uint32), c.POINTER(BatchOptions)],
    ),
    "bpf_map_update_elem": (c.c_int, [c.c_int, c.c_char_p, c.c_char_p, c.c_uint64]),
    "bpf_map_delete_elem": (c.c_int, [c.c_int, c.c_char_p]),
    "bpf_map_get_next_key": (c.c_int, [c.c_int, c.c_char_p, c.c_char_p]),
    "bpf_obj_get_info_by_fd": (c.c_int, [c.c_int, c.c_void_p, c.POINTER(c.c_uint32)]),
    "libbpf_num_possible_cpus": (c.c_int, []),
}
_PRINT = c.CFUNCTYPE(c.c_int, c.c_int, c.c_char_p, c.c_void_p)


class _Messages(threading.local):
    """What the calls of this thread said."""

    def __init__(self) -> None:
        self.kept: deque[str] = deque(maxlen=_MESSAGES_KEPT)


_messages = _Messages()


@cache
def libc() -> c.CDLL:
    """Return the C library of this process."""
    return c.CDLL(None)


def _print(level: int, template: bytes, arguments: int) -> int:
    # A va_list parameter is passed as a pointer on x86-64 and, being larger than 16 bytes, on arm64.
    if level == _WARN:
        text = c.create_string_buffer(1 << 24)  # a verifier log can be as long, and its end matters most
        libc().vsnprintf(text, c.c_size_t(len(text)), template, c.c_void_p(arguments))
        _messages.kept.append(text.value.decode(errors="replace").strip())
    return 0


_print_callback = _PRINT(_print)


@cache
def lib() -> c.CDLL:
    """Return the library. Raises Unsupported where it is not installed."""
    try:
        loaded = c.CDLL("libbpf.so.1", use_errno=True)
    except OSError as e:
        raise Unsupported("LibbpfMissing", f"cannot load libbpf.so.1 ({e}): {_HOW_TO_INSTALL}") from e
    for name, (result, arguments) in _SIGNATURES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.libbpf_set_print(_print_callback)
    return loaded


def error(what: str, result: int = 0) -> OSError:
    """Make the error of a call that failed: libbpf sets errno, and returns it negative where it returns an int."""
    number = -result or c.get_errno()
    messages = "\n".join(_messages.kept)
    _messages.kept.clear()
    return OSError(number, f"{what}: {os.strerror(number)}" + (f"\n{messages}" if messages else ""))
