"""Ask a recorder that runs for a snapshot: a socket in the folder of its snapshots, which only its own user may use."""

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager, suppress
from pathlib import Path

import msgspec

from latencyprobe.errors import LatencyProbeError, OutputError

_NAME = ".trigger"
_ASKED = b"snapshot\n"
_ASKING_S = 0.5  # whoever connects asks at once
_ANSWER_S = 30.0  # names of functions may take 10 s
_LONGEST = 107  # bytes: sockaddr_un


class Answer(msgspec.Struct):
    """What became of it. `file`: empty if it was suppressed."""

    file: str


class Asked(AbstractContextManager["Asked"]):
    """The recorder's end. Raises OutputError if the folder cannot have it, or another recorder has it."""

    def __init__(self, folder: Path) -> None:
        self._path = _path(folder)
        if other := _connected(self._path):
            other.close()
            raise OutputError(f"{folder}: another recorder writes there: give this one a --dir of its own")
        self._socket = socket.socket(socket.AF_UNIX)
        try:
            self._path.unlink(missing_ok=True)  # of one that was killed
            os.fchmod(self._socket.fileno(), 0o600)
            self._socket.bind(str(self._path))
        except OSError as error:
            self._socket.close()
            raise OutputError(f"{self._path}: {error.strerror}") from error
        self._socket.listen()
        self._socket.setblocking(False)

    def __exit__(self, *_: object) -> None:
        self._socket.close()
        self._path.unlink(missing_ok=True)

    def waiting(self) -> Iterator[socket.socket]:
        """Yield who asks for a snapshot, each to be given to `answer()`."""
        while True:
            try:
                asking, _ = self._socket.accept()
            except BlockingIOError:
                return
            asking.settimeout(_ASKING_S)
            with suppress(OSError):
                if asking.recv(len(_ASKED)) == _ASKED:
                    yield asking
            asking.close()


def answer(asking: socket.socket, file: Path | None) -> None:
    """Say where the snapshot is; None: it was suppressed. Who does not wait for it is no error."""
    with suppress(OSError):
        asking.sendall(msgspec.json.encode(Answer(str(file) if file else "")))


def ask(folder: Path) -> Path:
    """Ask the recorder of this folder for a snapshot, and return its file. Raises LatencyProbeError."""
    asking = _connected(_path(folder))
    if asking is None:
        raise LatencyProbeError(f"{folder}: no recorder writes there: start `latencyprobe record --dir {folder}`")
    with asking:
        asking.settimeout(_ANSWER_S)
        try:
            asking.sendall(_ASKED)
            answered = b"".join(iter(lambda: asking.recv(4096), b""))
            file = msgspec.json.decode(answered, type=Answer).file
        except (OSError, msgspec.DecodeError) as error:
            raise LatencyProbeError(f"{folder}: its recorder ended, or gave no answer") from error
    if not file:
        raise LatencyProbeError("suppressed: there is at most one snapshot a second; ask again")
    return Path(file)


def _path(folder: Path) -> Path:
    path = folder.resolve() / _NAME
    if len(os.fsencode(path)) > _LONGEST:
        raise OutputError(f"{folder}: its path is too long for a socket in it: use one of at most 98 bytes")
    return path


def _connected(path: Path) -> socket.socket | None:
    made = socket.socket(socket.AF_UNIX)
    try:
        made.connect(str(path))
    except (FileNotFoundError, ConnectionRefusedError):
        made.close()
        return None
    except OSError as error:
        made.close()
        raise OutputError(f"{path}: {error.strerror}") from error
    return made
