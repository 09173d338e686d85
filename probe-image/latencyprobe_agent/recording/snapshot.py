"""A snapshot as bytes: gzip (whose checksum finds what is cut short) of a mark, a header and the events of each CPU.

The header is msgpack and describes itself: names instead of numbers, and the layout of an event. A reader takes the
fields that it knows, so a later version may add some; one that changes the meaning of a field gets a new `VERSION`.
"""

import gzip
import io
import re
import struct
import zlib
from typing import BinaryIO

import msgspec
import numpy as np
from numpy.typing import NDArray

from latencyprobe.errors import LatencyProbeError
from latencyprobe.wire import UNREADABLE

VERSION = 1
MARK = b"latencyprobe snapshot\n"
CALL, SWITCH, WAKEUP = 1, 2, 3  # enum recorded_kind
COMPAT, PREEMPTED, FOLLOWED, OTHER_FOLLOWED = 1, 2, 4, 8  # enum recorded_flags
# Of bpf/events.h, struct recorded: times are ns of boot time.
EVENT = np.dtype(
    [
        *(("number", "<u8"), ("time_ns", "<u8"), ("duration_ns", "<u8"), ("ret", "<i8")),
        *(("tgid", "<u4"), ("tid", "<u4"), ("other_tgid", "<u4"), ("other_tid", "<u4")),
        *(("comm", "S16"), ("other_comm", "S16"), ("nr", "<u4"), ("kind", "u1"), ("flags", "u1")),
    ]
)
_HEADER_LENGTH = struct.Struct("<I")
_HEADER_BYTES = 1 << 24  # a user stack of 127 names of 16,384 characters of up to three bytes, and what else there is
_EVENT_BYTES = 1 << 31  # of a file: 1.5 MiB of each of 1,300 CPUs
_FORMAT = re.compile(r"[<|]?(?:[iu][1248]|S\d{1,3})\Z")


class SnapshotError(LatencyProbeError):
    """A file is no snapshot that can be read."""


class Waited(msgspec.Struct, frozen=True):
    """Where a trigger waited in the kernel: ns, names of functions, leaf first."""

    waited_ns: int
    frames: list[str]


class Trigger(msgspec.Struct, frozen=True, kw_only=True):
    """Why a snapshot was taken. `tracker` empty: somebody asked for it, and only `time_ns` (boot time) is set.

    `what`: the system call, or the reason of a wait; `returned`: of a call, as text.
    """

    time_ns: int
    tracker: str = ""
    what: str = ""
    returned: str = ""
    comm: str = ""
    tgid: int = 0
    tid: int = 0
    start_ns: int = 0
    duration_ns: int = 0
    kernel_stacks: list[Waited] = []
    user_stack: list[str] = []
    user_stack_complete: bool = False


class Cpu(msgspec.Struct, frozen=True):
    """All events of a CPU from `from_ns` to `to_ns` (boot time), but those that are `missing`, are in the file.

    `overwritten`: older ones, since the recorder began; where that is not 0, the window may reach back further than
    `from_ns`.
    """

    cpu: int
    events: int
    from_ns: int
    to_ns: int
    overwritten: int
    missing: int


class Header(msgspec.Struct, frozen=True, kw_only=True):
    """What a snapshot is of. `unix_offset_ns`: Unix time less boot time; `window_ns`: before the trigger.

    `tgid`, `cgroup_id`, `comm`: whose events, 0 and empty: of all; `calls`: names of system calls by number;
    `idle`: numbers of those in which programs wait for work, which trigger nothing;
    `suppressed`: triggers since the snapshot before this one that got none; `lost`: what else was not kept, by reason,
    since the recorder began.
    """

    version: int
    trigger: Trigger
    unix_offset_ns: int
    window_ns: int
    contents: list[str]
    keep_above_ns: int
    cpus: list[Cpu]
    fields: list[tuple[str, str]]
    host: str = ""
    kernel: str = ""
    tgid: int = 0
    cgroup_id: int = 0
    comm: str = ""
    calls: dict[int, str] = {}
    idle: list[int] = []
    suppressed: int = 0
    lost: dict[str, int] = {}


class Snapshot(msgspec.Struct, frozen=True):
    """A header, and EVENT[n] of each of its CPUs, in the order in which they were written."""

    header: Header
    events: list[NDArray[np.void]]


def layout() -> list[tuple[str, str]]:
    """Return the layout of EVENT, as the header has it."""
    return [(name, EVENT[name].str) for name in EVENT.names or ()]


def encode(snapshot: Snapshot) -> bytes:
    """Return the file."""
    header = msgspec.msgpack.encode(snapshot.header)
    parts = [MARK, _HEADER_LENGTH.pack(len(header)), header, *(events.tobytes() for events in snapshot.events)]
    return gzip.compress(b"".join(parts), compresslevel=1, mtime=0)


def decode(file: BinaryIO) -> Snapshot:
    """Read a file. Raises SnapshotError, whose text says what is wrong with it and what to do."""
    try:
        with gzip.GzipFile(fileobj=file) as content:
            return _decoded(io.BufferedReader(content))
    except gzip.BadGzipFile as error:
        raise SnapshotError("is no snapshot: `latencyprobe record` writes them") from error
    except EOFError as error:
        raise SnapshotError("is cut short: it was not written, or not copied, to its end") from error
    except zlib.error as error:
        raise SnapshotError(f"is damaged ({error}): copy it again") from error


def _decoded(content: io.BufferedReader) -> Snapshot:
    if content.read(len(MARK)) != MARK:
        raise SnapshotError("is no snapshot: `latencyprobe record` writes them")
    (length,) = _HEADER_LENGTH.unpack(_exactly(content, _HEADER_LENGTH.size))
    if length > _HEADER_BYTES:
        raise SnapshotError("is damaged (a header of impossible size): copy it again")
    packed = _exactly(content, length)
    try:
        version = msgspec.msgpack.decode(packed, type=dict)["version"]
        if not isinstance(version, int) or version > VERSION:
            raise SnapshotError(
                f"was written by a later version (format {version}, this one reads up to {VERSION}): upgrade this one"
            )
        header = msgspec.msgpack.decode(packed, type=Header)
    except (*UNREADABLE, KeyError) as error:
        raise SnapshotError(f"is damaged (its header: {error}): copy it again") from error
    there = _layout_of(header)
    events = [_events(content, there, cpu.events) for cpu in header.cpus]
    if content.read(1):  # gzip's checksum is only looked at when the end is reached
        raise SnapshotError("is damaged (more in it than its header says): copy it again")
    return Snapshot(header, events)


def _layout_of(header: Header) -> np.dtype[np.void]:
    """Return the layout of the file's events."""
    fields = dict(header.fields)
    if len(fields) != len(header.fields) or not all(map(_FORMAT.match, fields.values())):
        raise SnapshotError("is damaged (the layout of its events): copy it again")
    if missing := [name for name in EVENT.names or () if name not in fields]:
        raise SnapshotError(f"has events without {', '.join(missing)}: another program wrote it")
    there = np.dtype(list(fields.items()))
    counts = [cpu.events for cpu in header.cpus]
    if sum(counts) * there.itemsize > _EVENT_BYTES or min(counts, default=0) < 0:
        raise SnapshotError("is damaged (an impossible number of events): copy it again")
    return there


def _events(content: io.BufferedReader, there: np.dtype[np.void], count: int) -> NDArray[np.void]:
    raw = np.frombuffer(_exactly(content, count * there.itemsize), there)
    events = np.zeros(count, EVENT)
    for name in EVENT.names or ():
        events[name] = raw[name]
    return events


def _exactly(content: io.BufferedReader, size: int) -> bytes:
    found = content.read(size)
    if len(found) < size:
        raise SnapshotError("is cut short: it was not written, or not copied, to its end")
    return found
