"""Maps of a loaded object. Keys and values are bytes in the kernel's layout; calls that fail raise OSError."""

import ctypes as c
import errno
import sys
from collections.abc import Iterator

from latencyprobe_agent.kernel.libbpf_abi import BatchOptions, error, lib

_RINGBUF_TYPE = 27  # BPF_MAP_TYPE_RINGBUF
_NOEXIST = 1  # BPF_NOEXIST
_F_LOCK = 4  # BPF_F_LOCK
_PERCPU_TYPES = {5, 6}  # BPF_MAP_TYPE_PERCPU_HASH, _PERCPU_ARRAY


def possible_cpus() -> int:
    """Return how many values a per-CPU map holds per key."""
    return int(lib().libbpf_num_possible_cpus())


class Map:
    """A map of a loaded object, owned by it."""

    def __init__(self, handle: int, name: str) -> None:
        self.name = name
        self._handle = handle
        self.key_size = int(lib().bpf_map__key_size(handle))
        self.value_size = int(lib().bpf_map__value_size(handle))
        if lib().bpf_map__type(handle) in _PERCPU_TYPES:
            self.value_size = (self.value_size + 7) // 8 * 8 * possible_cpus()

    @property
    def fd(self) -> int:
        """File descriptor, owned by the object; -1 before it is loaded."""
        return int(lib().bpf_map__fd(self._handle))

    @property
    def max_entries(self) -> int:
        """Number of entries; bytes for a ring."""
        return int(lib().bpf_map__max_entries(self._handle))

    @max_entries.setter
    def max_entries(self, entries: int) -> None:
        result = lib().bpf_map__set_max_entries(self._handle, entries)
        if result:
            raise error(f"cannot resize map {self.name} to {entries}", result)

    @property
    def is_ring(self) -> bool:
        """Whether it is a BPF ring buffer."""
        return bool(lib().bpf_map__type(self._handle) == _RINGBUF_TYPE)

    def read_range(self, first: int, into: memoryview) -> int:
        """Copy the values of an array of locked values from index `first`, each under its lock; return how many."""
        count = c.c_uint32(into.nbytes // self.value_size)
        before = (first - 1).to_bytes(4, sys.byteorder) if first else None
        keys = c.create_string_buffer(4 * count.value)
        options = BatchOptions(sz=c.sizeof(BatchOptions), elem_flags=_F_LOCK)
        values = (c.c_char * into.nbytes).from_buffer(into)
        after = c.create_string_buffer(4)
        result = lib().bpf_map_lookup_batch(self.fd, before, after, keys, values, c.byref(count), c.byref(options))
        if result and -result != errno.ENOENT:  # the array's end
            raise error(f"cannot read map {self.name}", result)
        return count.value

    def share(self, fd: int) -> None:
        """Use the map behind `fd`, of an object that is loaded, in place of one of its own. Before `Object.load()`."""
        result = lib().bpf_map__reuse_fd(self._handle, fd)
        if result:
            raise error(f"cannot share map {self.name}", result)

    def keys(self) -> Iterator[bytes]:
        """Walk the keys; one that is added or removed meanwhile may be missed, or others seen twice."""
        key, following = None, c.create_string_buffer(self.key_size)
        while not lib().bpf_map_get_next_key(self.fd, key, following):
            key = following.raw
            yield key

    def lookup(self, key: bytes, into: memoryview) -> bool:
        """Copy a value (of a per-CPU map: each CPU's, 8-byte aligned) into a buffer; False without such a
        key. Raises ValueError for other sizes than the map's, OSError where the kernel refuses."""
        if len(key) != self.key_size or into.nbytes != self.value_size:
            raise ValueError(f"map {self.name} has keys of {self.key_size} and values of {self.value_size} bytes")
        result = lib().bpf_map_lookup_elem(self.fd, key, (c.c_char * self.value_size).from_buffer(into))
        if result and -result != errno.ENOENT:
            raise error(f"cannot read map {self.name}", result)
        return not result

    def update(self, key: bytes, value: bytes) -> None:
        """Add or replace an entry. Raises ValueError and OSError as `lookup` does; E2BIG: the map is full."""
        if len(key) != self.key_size or len(value) != self.value_size:
            raise ValueError(f"map {self.name} has keys of {self.key_size} and values of {self.value_size} bytes")
        result = lib().bpf_map_update_elem(self.fd, key, value, 0)
        if result:
            raise error(f"cannot write map {self.name}", result)

    def add(self, key: bytes, value: bytes) -> bool:
        """Add an entry where there is none yet; return whether there is one then: False where there is no room."""
        result = lib().bpf_map_update_elem(self.fd, key, value, _NOEXIST)
        if result and -result not in (errno.EEXIST, errno.E2BIG, errno.ENOMEM):
            raise error(f"cannot write map {self.name}", result)
        return -result in (0, errno.EEXIST)

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it is there."""
        result = lib().bpf_map_delete_elem(self.fd, key)
        if result and -result != errno.ENOENT:
            raise error(f"cannot take an entry out of map {self.name}", result)


class FakeMap:
    """`Map` for tests: a hash with room for `max_entries`, as `entries`."""

    def __init__(self, value_size: int, max_entries: int) -> None:
        self.entries: dict[bytes, bytes] = {}
        self.value_size, self.max_entries = value_size, max_entries

    def keys(self) -> Iterator[bytes]:
        """Walk the keys."""
        yield from tuple(self.entries)

    def lookup(self, key: bytes, into: memoryview) -> bool:
        """Copy a value into a buffer; False without such a key."""
        if key in self.entries:
            into[:] = self.entries[key]
        return key in self.entries

    def add(self, key: bytes, value: bytes) -> bool:
        """Add an entry where there is none yet; return whether there is one then."""
        if len(self.entries) < self.max_entries:
            self.entries.setdefault(key, value)
        return key in self.entries

    def delete(self, key: bytes) -> None:
        """Remove an entry, if it is there."""
        self.entries.pop(key, None)
