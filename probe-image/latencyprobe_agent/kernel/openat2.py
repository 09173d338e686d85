"""openat2(2): a path that is resolved inside of a folder as if that were the root, whatever links lie on the way."""

import ctypes
import os

_OPENAT2 = 437  # asm-generic/unistd.h, x86-64: alike
_NO_MAGICLINKS, _IN_ROOT = 0x02, 0x10  # linux/openat2.h


class _How(ctypes.Structure):
    _fields_ = (("flags", ctypes.c_uint64), ("mode", ctypes.c_uint64), ("resolve", ctypes.c_uint64))


_libc = ctypes.CDLL(None, use_errno=True)


def open_beneath(root: int, path: str) -> int:
    """Return a descriptor that stands for the file and has not opened it (O_PATH).

    `root`: descriptor of the folder. Absolute links and `..` stay inside of it, links of /proc are not followed. Raises
    OSError: ELOOP for a cycle or such a link.
    """
    how = _How(os.O_PATH | os.O_CLOEXEC, 0, _NO_MAGICLINKS | _IN_ROOT)
    encoded = ctypes.c_char_p(os.fsencode(path))
    descriptor = _libc.syscall(_OPENAT2, root, encoded, ctypes.byref(how), ctypes.sizeof(how))
    if descriptor < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error), path)
    return int(descriptor)
