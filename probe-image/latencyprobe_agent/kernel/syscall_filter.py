"""Which system calls a process may still make (seccomp): those it names. Its later threads and children, too.

Sources: linux/seccomp.h, linux/filter.h, Documentation/userspace-api/seccomp_filter.rst.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from latencyprobe_agent.vocabulary import syscalls

ARCHITECTURES: Final = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # linux/audit.h, AUDIT_ARCH_*
_SET_SECCOMP, _SECCOMP_FILTER = 22, 2
_LOAD, _IF_EQUAL, _IF_ANY_BIT, _GIVE = 0x20, 0x15, 0x45, 0x06
_ALLOW, _ERRNO = 0x7FFF0000, 0x00050000
_AT_CALL, _AT_ARCHITECTURE, _AT_ARGUMENTS = 0, 4, 16  # offsets in struct seccomp_data

_libc = ctypes.CDLL(None, use_errno=True)


class Only(NamedTuple):
    """Allow a call only where the low half of an argument, the first being 0, has this value; or none of these bits."""

    argument: int
    value: int | None = None
    no_bits: int = 0

    def code(self) -> tuple[int, int, int, int]:
        """Return the instruction that goes on at the next one where it is allowed, else skips that."""
        return (_IF_EQUAL, 0, 1, self.value) if self.value is not None else (_IF_ANY_BIT, 1, 0, self.no_bits)


def allow(calls: Iterable[str], conditions: Mapping[str, Only], *, unknown: Iterable[str] = ()) -> None:
    """Refuse with EPERM all calls but these; one that has a condition, where that does not hold. What this
    architecture lacks is left out. `unknown`: those that look as if the kernel lacked them (ENOSYS), for which a C
    library has others.

    Needs no_new_privs or CAP_SYS_ADMIN. Cannot be undone. Raises OSError, also where ARCHITECTURES lacks the machine.
    """
    if platform.machine() not in ARCHITECTURES:
        raise OSError(errno.ENOSYS, f"no filter of system calls for {platform.machine()}")
    refuse = (_GIVE, 0, 0, _ERRNO | errno.EPERM)
    # of another architecture the same numbers would mean other calls
    program = [(_LOAD, 0, 0, _AT_ARCHITECTURE), (_IF_EQUAL, 1, 0, ARCHITECTURES[platform.machine()]), refuse]
    program.append((_LOAD, 0, 0, _AT_CALL))
    for number in _numbers(unknown).values():
        program += [(_IF_EQUAL, 0, 1, number), (_GIVE, 0, 0, _ERRNO | errno.ENOSYS)]
    for name, number in _numbers(calls).items():
        if only := conditions.get(name):
            load = (_LOAD, 0, 0, _AT_ARGUMENTS + 8 * only.argument)
            program += [(_IF_EQUAL, 0, 4, number), load, only.code(), (_GIVE, 0, 0, _ALLOW), refuse]
        else:
            program += [(_IF_EQUAL, 0, 1, number), (_GIVE, 0, 0, _ALLOW)]
    program.append(refuse)
    code = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    described = struct.pack("=HxxxxxxQ", len(program), ctypes.addressof(code))
    if _libc.prctl(_SET_SECCOMP, _SECCOMP_FILTER, described, 0, 0):
        raise OSError(error := ctypes.get_errno(), os.strerror(error))


def _numbers(names: Iterable[str]) -> dict[str, int]:
    return {name: number for name in names if (number := syscalls.number(name)) is not None}
