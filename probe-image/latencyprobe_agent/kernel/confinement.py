"""What a process gives up before it touches what strangers made: capabilities, system calls, memory."""

import ctypes
import mmap
import os
import platform
import resource
import struct
from collections.abc import Iterable
from enum import IntEnum
from pathlib import Path
from typing import Final

# linux/prctl.h, linux/seccomp.h, linux/capability.h
_CAPBSET_DROP, _SET_NO_NEW_PRIVS, _SET_SECCOMP, _SECCOMP_FILTER = 24, 38, 22, 2
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63


class Capability(IntEnum):
    """linux/capability.h."""

    DAC_READ_SEARCH = 2
    SYS_PTRACE = 19
    SYSLOG = 34


# All that a Python process does which only reads files and answers, with the numbers of x86-64 and of arm64
# (asm/unistd.h). Every other call fails with EPERM.
_CALLS: Final[dict[str, tuple[int, int | None]]] = {
    "brk": (12, 214),
    "clock_gettime": (228, 113),
    "close": (3, 57),
    "exit": (60, 93),
    "exit_group": (231, 94),
    "fcntl": (72, 25),
    "fstat": (5, 80),
    "futex": (202, 98),
    "getrandom": (318, 278),
    "getrusage": (98, 165),
    "ioctl": (16, 29),
    "lseek": (8, 62),
    "madvise": (28, 233),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "mremap": (25, 216),
    "munmap": (11, 215),
    "newfstatat": (262, 79),
    "openat": (257, 56),
    "openat2": (437, 437),
    "poll": (7, None),
    "ppoll": (271, 73),
    "pread64": (17, 67),
    "prlimit64": (302, 261),
    "read": (0, 63),
    "restart_syscall": (219, 128),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "setitimer": (38, 103),
    "statx": (332, 291),
    "write": (1, 64),
}
_MACHINES: Final = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}  # column; linux/audit.h, AUDIT_ARCH_*

_libc = ctypes.CDLL(None, use_errno=True)


def confine(kept: Iterable[Capability], *, answers: int, memory_bytes: int, descriptors: int) -> None:
    """Keep these capabilities, as far as they are there; read files, and write to the descriptor `answers` alone.

    `memory_bytes`: of private memory, above what the process has now. Nothing of it can be undone. Raises OSError.
    """
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _keep(kept)
    _limit(memory_bytes, descriptors)
    if platform.machine() in _MACHINES:  # elsewhere all but this holds
        _filter(*_MACHINES[platform.machine()], answers)


def _keep(kept: Iterable[Capability]) -> None:
    wanted = sum(1 << capability for capability in kept)
    for capability in range(_LAST_CAPABILITY):
        if not wanted >> capability & 1:
            _libc.prctl(_CAPBSET_DROP, capability, 0, 0, 0)  # refused to who may not change it: it cannot grow either
    header = struct.pack("=Ii", _CAPABILITY_VERSION_3, 0)
    status = Path("/proc/self/status").read_text()
    permitted = wanted & int(status.split("CapPrm:", 1)[1].split(None, 1)[0], 16)
    low, high = permitted & 0xFFFFFFFF, permitted >> 32
    if _libc.capset(header, struct.pack("=6I", low, low, 0, high, high, 0)):
        raise OSError(error := ctypes.get_errno(), os.strerror(error))


def _limit(memory_bytes: int, descriptors: int) -> None:
    status = Path("/proc/self/status").read_text()
    data = int(status.split("VmData:", 1)[1].split(None, 1)[0]) << 10
    for what, most in (
        (resource.RLIMIT_DATA, data + memory_bytes),
        (resource.RLIMIT_NOFILE, descriptors),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_FSIZE, 0),
        (resource.RLIMIT_CORE, 0),
    ):
        resource.setrlimit(what, (most, most))


def _filter(column: int, architecture: int, answers: int) -> None:
    """Install a filter of system calls: struct sock_filter, linux/filter.h, over struct seccomp_data."""
    load, equal, any_of, give = 0x20, 0x15, 0x45, 0x06
    allow, refuse = (give, 0, 0, 0x7FFF0000), (give, 0, 0, 0x00050001)  # SECCOMP_RET_ALLOW; SECCOMP_RET_ERRNO, EPERM
    writing = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
    conditions = {  # by the low half of an argument, the first being 0
        "write": (0, (equal, 0, 1, answers)),
        "prlimit64": (0, (equal, 0, 1, 0)),  # of itself
        "openat": (2, (any_of, 1, 0, writing)),
        "mmap": (3, (any_of, 1, 0, mmap.MAP_SHARED)),
    }
    program = [(load, 0, 0, 4), (equal, 1, 0, architecture), refuse, (load, 0, 0, 0)]
    for name, numbers in _CALLS.items():
        if (number := numbers[column]) is None:
            continue
        if name in conditions:
            argument, condition = conditions[name]
            program += [(equal, 0, 4, number), (load, 0, 0, 16 + 8 * argument), condition, allow, refuse]
        else:
            program += [(equal, 0, 1, number), allow]
    program.append(refuse)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    described = struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code))
    if _libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, described, 0, 0):
        raise OSError(error := ctypes.get_errno(), os.strerror(error))


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(error := ctypes.get_errno(), os.strerror(error))
