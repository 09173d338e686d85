"""Folded stacks as a profile of pprof: profile.proto, gzipped. The kernel's functions are in the file `[kernel]`.

The messages are described here, with the numbers of github.com/google/pprof/proto/profile.proto; only what is written.
"""

import gzip
from functools import cache
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from latencyprobe_agent.flame.folding import KERNEL, Folded

_INT64, _UINT64, _BOOL, _STRING, _MESSAGE = 3, 4, 8, 9, 11  # google/protobuf/descriptor.proto
_ONE, _MANY = 1, 3
_MESSAGES: dict[str, dict[str, tuple[int, int, int, str]]] = {
    "Profile": {
        "sample_type": (1, _MANY, _MESSAGE, "ValueType"),
        "sample": (2, _MANY, _MESSAGE, "Sample"),
        "location": (4, _MANY, _MESSAGE, "Location"),
        "function": (5, _MANY, _MESSAGE, "Function"),
        "string_table": (6, _MANY, _STRING, ""),
        "comment": (13, _MANY, _INT64, ""),
    },
    "ValueType": {"type": (1, _ONE, _INT64, ""), "unit": (2, _ONE, _INT64, "")},
    "Sample": {"location_id": (1, _MANY, _UINT64, ""), "value": (2, _MANY, _INT64, "")},
    "Location": {"id": (1, _ONE, _UINT64, ""), "line": (4, _MANY, _MESSAGE, "Line")},
    "Line": {"function_id": (1, _ONE, _UINT64, "")},
    "Function": {
        "id": (1, _ONE, _UINT64, ""),
        "name": (2, _ONE, _INT64, ""),
        "system_name": (3, _ONE, _INT64, ""),
        "filename": (4, _ONE, _INT64, ""),
    },
}


def encode(folded: Folded, comment: str = "") -> bytes:
    """Return the file. The border between program and kernel is no frame here."""
    profile = message()
    strings = _Strings()
    profile.sample_type.add(type=strings["time"], unit=strings["nanoseconds"])
    locations: dict[tuple[str, bool], int] = {}
    for stack in sorted(folded):
        border = stack.index(KERNEL) if KERNEL in stack else len(stack)
        frames = [(name, depth > border) for depth, name in enumerate(stack) if depth != border]
        ids = [locations.setdefault(frame, len(locations) + 1) for frame in frames]
        profile.sample.add(location_id=reversed(ids), value=[folded[stack]])
    for (name, of_kernel), at in locations.items():
        file = strings["[kernel]" if of_kernel else ""]
        profile.function.add(id=at, name=strings[name], system_name=strings[name], filename=file)
        profile.location.add(id=at).line.add(function_id=at)
    if comment:
        profile.comment.append(strings[comment])
    profile.string_table.extend(strings)
    return gzip.compress(profile.SerializeToString(), mtime=0)


class _Strings(dict[str, int]):
    """The table of strings: the index of each, in the order in which they were asked for."""

    def __init__(self) -> None:
        super().__init__({"": 0})

    def __missing__(self, text: str) -> int:
        self[text] = len(self)
        return self[text]


@cache
def _profile() -> type[Any]:
    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for name, fields in _MESSAGES.items():
        described = file.message_type.add(name=name)
        for field, (number, label, kind, of) in fields.items():
            of_type = f".perftools.profiles.{of}" if of else None
            described.field.add(name=field, number=number, label=label, type=kind, type_name=of_type)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    profile: type[Any] = message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))
    return profile


def message() -> Any:
    """Return an empty Profile."""
    return _profile()()
