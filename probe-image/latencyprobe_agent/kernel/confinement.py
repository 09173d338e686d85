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

from latencyprobe_agent.kernel import syscall_filter
from latencyprobe_agent.kernel.syscall_filter import Only

# linux/prctl.h, linux/capability.h
_CAPBSET_DROP, _SET_NO_NEW_PRIVS = 24, 38
_CAPABILITY_VERSION_3 = 0x20080522
_LAST_CAPABILITY = 63


class Capability(IntEnum):
    """linux/capability.h."""

    DAC_READ_SEARCH = 2
    SYS_PTRACE = 19
    SYSLOG = 34


# All that a Python process does which only reads files and answers.
_READER: Final = """
brk clock_gettime close exit exit_group fcntl fstat futex getrandom getrusage ioctl lseek madvise mmap mprotect
mremap munmap newfstatat openat openat2 poll ppoll pread64 prlimit64 read restart_syscall rt_sigaction
rt_sigprocmask rt_sigreturn setitimer statx write
"""
# All that the agent and the processes that it starts do: Python, threads, files, sockets, BPF. Counted at the agents of
# the end-to-end tests (tracepoint sys_enter) and by strace of their children;
# clock_gettime for where the vDSO has no clock.
_AGENT: Final = """
accept4 bind bpf brk capset clock_gettime clock_nanosleep clone close connect dup3 epoll_create1 epoll_ctl execve
exit exit_group faccessat2 fcntl fdatasync fstat ftruncate futex getcwd getdents64 geteuid getpeername getpid getrandom
getrusage getsockname getsockopt gettid ioctl kill listen lseek madvise memfd_create mmap mprotect mremap munmap
newfstatat openat openat2 pipe2 prctl pread64 prlimit64 pwrite64 read recvfrom restart_syscall rseq rt_sigaction
rt_sigprocmask rt_sigreturn sendmmsg sendto set_robust_list set_tid_address setitimer setsid setsockopt shutdown
sigaltstack socket statfs uname wait4 write
"""
_AGENT_X86_64: Final = "arch_prctl dup2 epoll_wait mkdir poll readlink rename unlink vfork"
_AGENT_AARCH64: Final = "epoll_pwait mkdirat ppoll readlinkat renameat renameat2 unlinkat"
_NEW_NAMESPACES: Final = 0x7E020000  # linux/sched.h, CLONE_NEW*
_WRITING: Final = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND

_libc = ctypes.CDLL(None, use_errno=True)


def confine(kept: Iterable[Capability], *, answers: int, memory_bytes: int, descriptors: int) -> None:
    """Keep these capabilities, as far as they are there; read files, and write to the descriptor `answers` alone.

    `memory_bytes`: of private memory, above what the process has now. Nothing of it can be undone. Raises OSError.
    """
    _prctl(_SET_NO_NEW_PRIVS, 1)
    _keep(kept)
    _limit(memory_bytes, descriptors)
    if platform.machine() in syscall_filter.ARCHITECTURES:  # elsewhere all but this holds
        conditions = {
            "write": Only(0, answers),
            "prlimit64": Only(0, 0),  # of itself
            "openat": Only(2, no_bits=_WRITING),
            "mmap": Only(3, no_bits=mmap.MAP_SHARED),
        }
        syscall_filter.allow(_READER.split(), conditions)


def agent_calls() -> list[str]:
    """Return the names of all system calls that an agent of this architecture makes."""
    return (_AGENT + (_AGENT_X86_64 if platform.machine() == "x86_64" else _AGENT_AARCH64)).split()


def keep_to_own_calls() -> None:
    """Refuse this process, the threads and processes that it starts from now on, all system calls that no agent makes.

    To be called before any thread is started. Raises OSError where the kernel or the architecture has no such filter.
    """
    _prctl(_SET_NO_NEW_PRIVS, 1)
    # clone3 has its flags in memory, where no filter sees them: a C library takes clone instead
    syscall_filter.allow(agent_calls(), {"clone": Only(0, no_bits=_NEW_NAMESPACES)}, unknown=["clone3"])


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


def _prctl(option: int, value: int) -> None:
    if _libc.prctl(option, value, 0, 0, 0):
        raise OSError(error := ctypes.get_errno(), os.strerror(error))
