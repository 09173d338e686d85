"""The file of a snapshot: what is written is read again, also by later versions; what is no such file is told."""

import gzip
import io

import msgspec
import numpy as np
import pytest

from latencyprobe_agent.recording import snapshot
from latencyprobe_agent.recording.snapshot import EVENT, Cpu, Header, Snapshot, SnapshotError, Trigger, Waited
from latencyprobe_agent.symbols.messages import NAME_BYTES
from latencyprobe_agent.vocabulary.records import RECORDED, TRACKED_FRAMES, RecordedFlags, RecordedKind


def example(**more: object) -> Snapshot:
    events = np.zeros(3, EVENT)
    events["number"], events["time_ns"] = (7, 8, 9), (100, 200, 300)
    events["comm"], events["ret"], events["kind"] = b"worker", -11, snapshot.CALL
    trigger = Trigger(time_ns=300, tracker="syscalls", what="fsync", kernel_stacks=[Waited(5, ["io_schedule"])])
    header = {
        "version": snapshot.VERSION,
        "trigger": trigger,
        "unix_offset_ns": 10**18,
        "window_ns": 250,
        "contents": ["syscalls"],
        "keep_above_ns": 0,
        "cpus": [Cpu(0, 3, 50, 310, 6, 0), Cpu(3, 0, 60, 320, 0, 1)],
        "fields": snapshot.layout(),
        "calls": {74: "fsync"},
    }
    return Snapshot(Header(**{**header, **more}), [events, np.zeros(0, EVENT)])  # type: ignore[arg-type]


def read(content: bytes) -> Snapshot:
    return snapshot.decode(io.BytesIO(content))


def test_what_is_written_is_read_again():
    written = example()
    found = read(snapshot.encode(written))
    assert written.header == found.header
    assert [of.tolist() for of in written.events] == [of.tolist() for of in found.events]


def test_a_stack_of_the_longest_names_is_read_again():
    trigger = Trigger(time_ns=300, user_stack=["\ufffd" * NAME_BYTES] * TRACKED_FRAMES)
    assert trigger == read(snapshot.encode(example(trigger=trigger))).header.trigger


def test_an_event_of_the_file_has_the_fields_of_the_kernels():
    of_the_kernel = {name for name in RECORDED.names or () if name != "_pad"}
    assert of_the_kernel | {"number"} == set(EVENT.names or ())
    assert all(EVENT[name].itemsize == RECORDED[name].itemsize for name in of_the_kernel)
    assert [snapshot.CALL, snapshot.SWITCH, snapshot.WAKEUP] == list(RecordedKind)
    assert [snapshot.COMPAT, snapshot.PREEMPTED, snapshot.FOLLOWED, snapshot.OTHER_FOLLOWED] == list(RecordedFlags)


@pytest.mark.parametrize("content", [b"", b"no snapshot\n", b"\x7fELF", gzip.compress(b"something else" * 99, mtime=0)])
def test_what_is_no_snapshot_is_told(content: bytes):
    with pytest.raises(SnapshotError, match=r"is no snapshot|is cut short"):
        read(content)


def test_a_file_is_never_read_in_part():
    whole = snapshot.encode(example())
    for length in range(len(whole)):
        with pytest.raises(SnapshotError, match=r"is cut short|is no snapshot"):
            read(whole[:length])


def test_a_bit_that_has_changed_is_found():
    whole = snapshot.encode(example())
    for at in range(10, len(whole)):  # behind what gzip says about itself
        changed = bytearray(whole)
        changed[at] ^= 16
        try:
            events = read(bytes(changed)).events
        except SnapshotError:
            continue
        assert example().events[0].tolist() == events[0].tolist(), "a bit that means nothing"


def test_a_later_version_is_told_of():
    with pytest.raises(SnapshotError, match=r"later version \(format 2, this one reads up to 1\): upgrade this one"):
        read(snapshot.encode(example(version=2)))


def test_fields_that_a_later_version_adds_are_skipped():
    """In the header, and in each event, in another order."""
    written = example()
    header = msgspec.to_builtins(written.header) | {"weather": "fine"}
    layout = np.dtype([("humidity", "<u4"), *reversed(snapshot.layout())])
    header["fields"] = [(name, layout[name].str) for name in layout.names or ()]
    events = np.zeros(3, layout)
    for name in EVENT.names or ():
        events[name] = written.events[0][name]
    packed = msgspec.msgpack.encode(header)
    content = snapshot.MARK + len(packed).to_bytes(4, "little") + packed + events.tobytes()
    assert written.events[0].tolist() == read(gzip.compress(content)).events[0].tolist()


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"fields": [("number", "<u8")]}, "events without time_ns"),
        ({"fields": [("number", "O")]}, "layout of its events"),
        ({"fields": [*snapshot.layout(), ("number", "<u8")]}, "layout of its events"),
        ({"cpus": [Cpu(0, 1 << 30, 0, 0, 0, 0)]}, "impossible number of events"),
        ({"cpus": [Cpu(0, -1, 0, 0, 0, 0)]}, "impossible number of events"),
        ({"cpus": [Cpu(0, 4, 0, 0, 0, 0)]}, "cut short"),
        ({"cpus": [Cpu(0, 2, 0, 0, 0, 0)]}, "more in it than its header says"),
    ],
)
def test_a_header_that_is_not_true_is_refused(more: dict[str, object], said: str):
    with pytest.raises(SnapshotError, match=said):
        read(snapshot.encode(example(**more)))


@pytest.mark.parametrize("packed", [b"", b"\xc1", msgspec.msgpack.encode({"version": 1}), msgspec.msgpack.encode([1])])
def test_a_header_that_is_none_is_refused(packed: bytes):
    with pytest.raises(SnapshotError, match="its header"):
        read(gzip.compress(snapshot.MARK + len(packed).to_bytes(4, "little") + packed))


def test_a_header_of_impossible_size_is_not_even_read():
    with pytest.raises(SnapshotError, match="impossible size"):
        read(gzip.compress(snapshot.MARK + b"\xff\xff\xff\xff"))
