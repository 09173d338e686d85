"""A file system with one file, whose reads and fsyncs take as long as they are told: a FUSE server in a thread.

What waits for it waits in the kernel as for a slow device. Needs /dev/fuse and root. Layouts: linux/fuse.h, 7.31.
"""

import ctypes
import os
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

SIZE = 1 << 20
_ROOT, _FILE = 1, 2
_FORGET, _INTERRUPT, _DESTROY, _BATCH_FORGET = 2, 36, 38, 42
_UNANSWERED = (_FORGET, _INTERRUPT, _DESTROY, _BATCH_FORGET)
_ENOSYS = 38
_FOREVER_S = 3600
_DETACH = 2  # linux/fs.h: MNT_DETACH

_libc = ctypes.CDLL(None, use_errno=True)


@dataclass
class SlowFiles:
    """`path`: of the file. `read_s`, `fsync_s`: how long each call waits, from now on."""

    path: Path
    read_s: float = 0.0
    fsync_s: float = 0.0


@contextmanager
def slow_files(folder: Path) -> Iterator[SlowFiles]:
    """Mount the file system on an empty folder for the block. Raises OSError where that cannot be."""
    fd = os.open("/dev/fuse", os.O_RDWR)
    options = f"fd={fd},rootmode=40000,user_id=0,group_id=0,allow_other".encode()
    if _libc.mount(b"slow", os.fsencode(folder), b"fuse", 0, options):
        os.close(fd)
        raise OSError(ctypes.get_errno(), f"cannot mount FUSE on {folder}")
    files = SlowFiles(folder / "file")
    server = threading.Thread(target=_serve, args=(fd, files))
    server.start()
    try:
        yield files
    finally:
        files.read_s = files.fsync_s = 0.0
        _libc.umount2(os.fsencode(folder), _DETACH)
        server.join()
        os.close(fd)


def _serve(fd: int, files: SlowFiles) -> None:
    while True:
        try:
            message = os.read(fd, SIZE)
        except OSError:
            return  # unmounted
        _, opcode, unique, node = struct.unpack_from("<IIQQ", message)
        if opcode in _UNANSWERED:
            continue
        answer = _answer(files, opcode, node, message[40:])
        content = answer if isinstance(answer, bytes) else b""
        error = answer if isinstance(answer, int) else 0
        try:
            os.write(fd, struct.pack("<IiQ", 16 + len(content), -error, unique) + content)
        except OSError:
            continue  # its caller was killed


def _answer(files: SlowFiles, opcode: int, node: int, body: bytes) -> bytes | int:
    match opcode:
        case 26:  # INIT
            return struct.pack("<IIIIHHIIHHI28x", 7, 31, SIZE, 0, 16, 12, 1 << 17, 1, 32, 0, 0)
        case 1:  # LOOKUP
            return struct.pack("<QQQQII", _FILE, 0, _FOREVER_S, _FOREVER_S, 0, 0) + _attributes(_FILE)
        case 3 | 4:  # GETATTR, SETATTR
            return struct.pack("<QII", _FOREVER_S, 0, 0) + _attributes(node)
        case 14 | 27:  # OPEN, OPENDIR
            return struct.pack("<QII", node, 0, 0)
        case 15:  # READ
            time.sleep(files.read_s)
            _, _, size = struct.unpack_from("<QQI", body)
            return bytes(size)
        case 16:  # WRITE
            return struct.pack("<II", struct.unpack_from("<QQI", body)[2], 0)
        case 17:  # STATFS
            return bytes(80)
        case 20:  # FSYNC
            time.sleep(files.fsync_s)
            return b""
        case 18 | 25 | 28 | 29:  # RELEASE, FLUSH, READDIR, RELEASEDIR
            return b""
    return _ENOSYS


def _attributes(node: int) -> bytes:
    mode, size = (0o040755, 0) if node == _ROOT else (0o100666, SIZE)
    return struct.pack("<6Q10I", node, size, size // 512, 0, 0, 0, 0, 0, 0, mode, 1, 0, 0, 0, 4096, 0)
